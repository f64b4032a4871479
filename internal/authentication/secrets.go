package authentication

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// userField is the field of the user, as in Secrets of type
	// kubernetes.io/basic-auth.
	userField = "username"
	// minSecret is the minimum length in bytes, against guessing.
	minSecret = 16
	// maxSecret bounds what a caller can have hashed.
	maxSecret = 4096
	// maxSecrets bounds the tokens or passwords of one Secret, enough to rotate them.
	maxSecrets = 8
)

// secrets are the hashes of accepted secrets. Hashes have equal lengths, so that
// the time of a comparison does not depend on the credentials.
type secrets [][sha256.Size]byte

func (s secrets) contains(secret string) bool {
	got, found := sha256.Sum256([]byte(secret)), 0
	for i := range s { // no early exit: the time must not reveal which one matches
		found |= subtle.ConstantTimeCompare(got[:], s[i][:])
	}
	return found == 1
}

// Tokens accepts callers with a bearer token.
type Tokens struct{ accepted secrets }

// NewTokens accepts every token in a Secret, in any field.
func NewTokens(data map[string][]byte) (*Tokens, error) {
	accepted, err := read(data, "token", func(token string) string { return token }, func(r rune) bool { return r <= ' ' || r > '~' })
	return &Tokens{accepted}, err
}

func (t *Tokens) String() string { return "a bearer token" }

// Check implements [Method].
func (t *Tokens) Check(credentials Credentials, _ time.Time) *RejectedError {
	switch {
	case credentials.Token == "":
		return noMethod()
	case len(credentials.Token) > maxSecret || !t.accepted.contains(credentials.Token):
		return &RejectedError{ReasonToken, "the bearer token is not accepted"}
	}
	return nil
}

// Passwords accepts callers with a user and a password.
type Passwords struct{ accepted secrets }

// NewPasswords accepts the user in the field username of a Secret with the
// password in any other field.
func NewPasswords(data map[string][]byte) (*Passwords, error) {
	user := string(bytes.TrimSpace(data[userField]))
	switch {
	case user == "":
		return &Passwords{}, fmt.Errorf("no user: set the field %s", userField)
	case len(user) > maxSecret || strings.Contains(user, ":") || strings.ContainsFunc(user, unicode.IsControl):
		return &Passwords{}, fmt.Errorf("field %s: must be one line without colons", userField)
	}
	data = maps.Clone(data)
	delete(data, userField)
	accepted, err := read(data, "password", func(password string) string { return pair(user, password) }, unicode.IsControl)
	return &Passwords{accepted}, err
}

// pair is unambiguous, because a user contains no colon.
func pair(user, password string) string { return user + ":" + password }

func (p *Passwords) String() string { return "a user and a password" }

// Check implements [Method].
func (p *Passwords) Check(credentials Credentials, _ time.Time) *RejectedError {
	switch {
	case credentials.User == "" && credentials.Password == "":
		return noMethod()
	case len(credentials.User)+len(credentials.Password) > 2*maxSecret || strings.Contains(credentials.User, ":") || !p.accepted.contains(pair(credentials.User, credentials.Password)):
		return &RejectedError{ReasonPassword, "the user and the password are not accepted"}
	}
	return nil
}

// read hashes every field of a Secret. It trims white space, because files often
// end with a line break.
func read(data map[string][]byte, what string, form func(string) string, strange func(rune) bool) (secrets, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("no %s: set one of at least %d bytes in the field %s", what, minSecret, what)
	}
	if len(data) > maxSecrets {
		return nil, fmt.Errorf("%d fields with a %s: at most %d are allowed", len(data), what, maxSecrets)
	}
	var out secrets
	for _, name := range slices.Sorted(maps.Keys(data)) {
		value := bytes.TrimSpace(data[name])
		if err := check(value, what, strange); err != nil {
			return nil, fmt.Errorf("field %s: %w", name, err)
		}
		out = append(out, sha256.Sum256([]byte(form(string(value)))))
	}
	return out, nil
}

func check(value []byte, what string, strange func(rune) bool) error {
	switch {
	case len(value) < minSecret:
		return fmt.Errorf("the %s has fewer than %d bytes: use a longer one", what, minSecret)
	case len(value) > maxSecret:
		return fmt.Errorf("the %s has more than %d bytes", what, maxSecret)
	case !utf8.Valid(value) || bytes.ContainsFunc(value, strange):
		return errors.New("the " + what + " contains characters that HTTP headers cannot transport")
	}
	return nil
}
