// Package authentication decides who may call. It compares what a caller shows, a
// client certificate, a bearer token, or a user and a password, with what is
// accepted. Nothing that was shown or is accepted is ever part of an error.
package authentication

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// Reason is why a caller was rejected, as the value of a metric's label.
type Reason string

// The reasons for which callers are rejected.
const (
	ReasonNone        Reason = "no_credentials"
	ReasonCertificate Reason = "certificate"
	ReasonName        Reason = "name"
	ReasonToken       Reason = "token"
	ReasonPassword    Reason = "password"
	// ReasonNotLoaded says nothing about the caller: what is accepted has not
	// been read yet.
	ReasonNotLoaded Reason = "not_loaded"
)

// Reasons are all of them.
func Reasons() []Reason {
	return []Reason{ReasonNone, ReasonCertificate, ReasonName, ReasonToken, ReasonPassword, ReasonNotLoaded}
}

// RejectedError says that a caller may not call.
type RejectedError struct {
	Reason Reason
	Text   string
}

func (e *RejectedError) Error() string { return e.Text }

// Credentials is what a caller shows. What it does not show is empty.
type Credentials struct {
	// Certificates are those of the TLS handshake, which has proved that the
	// caller has the key of the first, and nothing else about them.
	Certificates []*x509.Certificate
	// Token is a bearer token.
	Token string
	// User and Password are those of basic authentication.
	User, Password string
}

// Method is one way for a caller to show who it is.
type Method interface {
	// Check returns nil for a caller that may call, and otherwise why not, with
	// ReasonNothing when it has shown nothing of this kind.
	Check(Credentials, time.Time) *RejectedError
	// String says what to show.
	String() string
}

// Check returns nil for a caller that may call because one of the ways accepts
// it, and a *RejectedError otherwise. That any of them is enough lets an
// operator go from one to another without a moment in which nobody may call.
func Check(ways []Method, shown Credentials, now time.Time) error {
	var first *RejectedError
	for _, way := range ways {
		rejected := way.Check(shown, now)
		if rejected == nil {
			return nil
		}
		if rejected.Reason != ReasonNone {
			first = cmp.Or(first, rejected)
		}
	}
	return cmp.Or(first, &RejectedError{ReasonNone, fmt.Sprintf("the caller has to show %s", list(ways))})
}

func list(ways []Method) string {
	names := make([]string, len(ways))
	for i, way := range ways {
		names[i] = way.String()
	}
	return strings.Join(names, " or ")
}

// noMethod is the answer of a way to a caller that has not tried it.
func noMethod() *RejectedError { return &RejectedError{Reason: ReasonNone} }

// NotLoaded is a way that is wanted and cannot be decided about yet.
type NotLoaded struct{ Method }

// Check implements [Way].
func (n NotLoaded) Check(shown Credentials, now time.Time) *RejectedError {
	if rejected := n.Method.Check(shown, now); rejected != nil && rejected.Reason == ReasonNone {
		return rejected
	}
	return &RejectedError{ReasonNotLoaded, "who may call has not been loaded yet"}
}
