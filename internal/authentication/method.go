// Package authentication compares the credentials of a caller, a client
// certificate, a bearer token, or a user and a password, with the accepted ones.
// Errors never contain credentials.
package authentication

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// Reason is why a caller was rejected. It is a metric label.
type Reason string

// The reasons for which callers are rejected.
const (
	ReasonNone        Reason = "no_credentials"
	ReasonCertificate Reason = "certificate"
	ReasonName        Reason = "name"
	ReasonToken       Reason = "token"
	ReasonPassword    Reason = "password"
	// ReasonNotLoaded means that the accepted credentials have not been read yet.
	ReasonNotLoaded Reason = "not_loaded"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{ReasonNone, ReasonCertificate, ReasonName, ReasonToken, ReasonPassword, ReasonNotLoaded}
}

// RejectedError means that a caller is not accepted.
type RejectedError struct {
	Reason Reason
	Text   string
}

func (e *RejectedError) Error() string { return e.Text }

// Credentials are what a caller presents. Missing ones are empty.
type Credentials struct {
	// Certificates are from the TLS handshake, which has verified only that the
	// caller has the key of the first.
	Certificates []*x509.Certificate
	// Token is a bearer token.
	Token string
	// User and Password are from basic authentication.
	User, Password string
}

// Method is one method of authentication.
type Method interface {
	// Check returns nil for an accepted caller, and an error with ReasonNone if
	// there are no credentials for this method.
	Check(Credentials, time.Time) *RejectedError
	// String names the credentials.
	String() string
}

// Check returns nil if one of the methods accepts the caller, and a *RejectedError
// otherwise. Any of them is enough, so that an operator can change the method
// without an interruption.
func Check(methods []Method, credentials Credentials, now time.Time) error {
	var first *RejectedError
	for _, method := range methods {
		rejected := method.Check(credentials, now)
		if rejected == nil {
			return nil
		}
		if rejected.Reason != ReasonNone {
			first = cmp.Or(first, rejected)
		}
	}
	return cmp.Or(first, &RejectedError{ReasonNone, fmt.Sprintf("the caller must present %s", list(methods))})
}

func list(methods []Method) string {
	names := make([]string, len(methods))
	for i, method := range methods {
		names[i] = method.String()
	}
	return strings.Join(names, " or ")
}

// noMethod is the result of a method for a caller without its credentials.
func noMethod() *RejectedError { return &RejectedError{Reason: ReasonNone} }

// NotLoaded is a configured method without accepted credentials yet.
type NotLoaded struct{ Method }

// Check implements [Method].
func (n NotLoaded) Check(credentials Credentials, now time.Time) *RejectedError {
	if rejected := n.Method.Check(credentials, now); rejected != nil && rejected.Reason == ReasonNone {
		return rejected
	}
	return &RejectedError{ReasonNotLoaded, "the accepted callers have not been loaded yet"}
}
