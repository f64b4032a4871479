// Package applypatch sends text of any characters in patches of server-side apply.
//
// API servers parse these patches as YAML, also when clients send JSON. YAML 1.1 does not
// allow all characters that JSON allows (https://yaml.org/spec/1.1/, section 5.1): one such
// character in a message or a name, which can come from a request, makes them reject the
// whole patch.
package applypatch

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Wrap returns a transport that escapes these characters in patches of server-side apply.
func Wrap(next http.RoundTripper) http.RoundTripper {
	return transport{next: next, escape: escapes()}
}

type transport struct {
	next   http.RoundTripper
	escape *strings.Replacer
}

// escapes replaces the characters that YAML does not allow, changes in a quoted text (the
// line break U+0085), or allows in some places (the byte order mark). In JSON, they are a
// part of a string, so that an escape can replace them.
func escapes() *strings.Replacer {
	var pairs []string
	add := func(r rune) { pairs = append(pairs, string(r), fmt.Sprintf(`\u%04x`, r)) }
	for r := rune(0x7f); r <= 0x9f; r++ {
		add(r)
	}
	for _, r := range []rune{0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff} {
		add(r)
	}
	return strings.NewReplacer(pairs...)
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType) {
		return t.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close() // it has been read
	if err != nil {
		return nil, fmt.Errorf("reading an apply patch: %w", err)
	}
	escaped := []byte(t.escape.Replace(string(body)))
	out := r.Clone(r.Context())
	out.ContentLength = int64(len(escaped))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(escaped)), nil }
	out.Body, _ = out.GetBody()
	return t.next.RoundTrip(out)
}
