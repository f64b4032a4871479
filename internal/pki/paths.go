package pki

import (
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// pathBytes is the randomness of a path: 160 bits, 32 characters in base32.
	pathBytes = 20
	// maxPaths bounds the accepted paths: the registered one, the previous one, the
	// next one, and one more if the CA is lost during a rotation. If there are more
	// CAs, the path of the last one waits until others are dropped.
	maxPaths = 4
)

// pathEncoding uses only characters that are valid in a segment of a webhook path.
func pathEncoding() *base32.Encoding {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
}

// newPath returns a random secret, the first segment of the paths that only API
// servers know.
func newPath(random io.Reader) (string, error) {
	secret := make([]byte, pathBytes)
	if _, err := io.ReadFull(random, secret); err != nil {
		return "", fmt.Errorf("reading random bytes: %w", err)
	}
	return pathEncoding().EncodeToString(secret), nil
}

// CheckPath returns an error if the text does not have the form of a path from
// this package. The error does not quote the text.
func CheckPath(text string) error {
	if _, err := pathEncoding().DecodeString(text); err != nil || len(text) != pathEncoding().EncodedLen(pathBytes) {
		return reject(ReasonEncoding, errors.New("not a path"))
	}
	return nil
}

// ParsePaths reads the paths of a Serving, one per line.
func ParsePaths(text string) ([]string, error) {
	paths := strings.Fields(text)
	if len(paths) == 0 || len(paths) > maxPaths {
		return nil, reject(ReasonEncoding, fmt.Errorf("%d paths: expected 1 to %d", len(paths), maxPaths))
	}
	for _, path := range paths {
		if err := CheckPath(path); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// Path returns the path in the webhook configurations, or "" if there is none.
func (s Serving) Path() string {
	if len(s.Paths) == 0 {
		return ""
	}
	return s.Paths[0]
}

// Accepts reports whether the path is one that API servers call. It compares in
// constant time.
func (s Serving) Accepts(path string) bool {
	accepted := 0
	for _, known := range s.Paths {
		accepted |= subtle.ConstantTimeCompare([]byte(known), []byte(path))
	}
	return accepted == 1
}

// paths returns the paths for the Serving, the registered one first. The path of a
// new CA is accepted first and registered once every replica accepts it. The others
// are dropped once every configuration has had the registered one for so long that
// no API server can be behind: a leader of before can register any of them again.
func (s State) paths(o Observed, c Config) []string {
	own, known := s.CA.Path, slices.Clone(s.knownPaths(o))
	switch {
	case own == "":
		return known
	case len(known) == 0:
		return []string{own}
	}
	registered := known[0]
	if s.CA.Previous == nil && o.Published.Current && o.Published.For >= c.Overlap {
		known = slices.DeleteFunc(known, func(path string) bool { return path != registered && path != own })
	}
	others := slices.DeleteFunc(slices.Clone(known), func(path string) bool { return path == own })
	switch {
	case !slices.Contains(known, own) && len(known) < maxPaths:
		return append(known, own)
	case registered != own && s.pathKnown(o):
		return append([]string{own}, others...)
	}
	return known
}

// pathKnown reports whether every replica has read a Serving with the path of the
// CA, and the rotation to that CA has ended.
func (s State) pathKnown(o Observed) bool {
	return s.CA.Previous == nil && s.Serving.Epoch == s.CA.Epoch && s.Serving.TrustEpoch == s.CA.Epoch &&
		slices.Contains(s.Serving.Paths, s.CA.Path) && o.allServe(s.CA.Epoch)
}

// knownPaths returns the paths that replicas accept: the stored ones, or those
// that this process serves if the stored ones are lost or older, or else those in
// the webhook configurations.
func (s State) knownPaths(o Observed) []string {
	known := s.Serving.Paths
	if own := o.Memory.Serving; len(known) == 0 || len(own.Paths) > 0 && own.TrustEpoch > s.Serving.TrustEpoch {
		known = own.Paths
	}
	published := o.Published.Paths[:min(len(o.Published.Paths), maxPaths-1)]
	stale := len(published) > 0 && !slices.ContainsFunc(published, func(path string) bool { return slices.Contains(known, path) })
	if len(known) == 0 || stale {
		return published
	}
	return known
}

// nextPath returns the path of the next CA. While replicas also accept a previous
// path, the current path is reused: an API server may be behind by one change, not
// by two, and a CA can be lost or replaced at any time.
func (s State) nextPath(random io.Reader) (string, error) {
	if s.CA.Epoch == s.Serving.TrustEpoch && len(s.Serving.Paths) > 1 && slices.Contains(s.Serving.Paths, s.CA.Path) {
		return s.CA.Path, nil
	}
	return newPath(random)
}
