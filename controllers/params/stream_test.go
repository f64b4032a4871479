package params

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// lists records the queries of lists of ConfigMaps. If expired is set, the first one that continues another gets the
// answer that API servers give when its token has expired, with the token that expired returns.
type lists struct {
	http.RoundTripper

	expired func(token string) string
	mu      sync.Mutex
	queries []url.Values
}

// RoundTrip implements http.RoundTripper.
func (l *lists) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if !strings.HasSuffix(r.URL.Path, "/configmaps") || query.Get("watch") != "" {
		return l.RoundTripper.RoundTrip(r)
	}
	l.mu.Lock()
	l.queries = append(l.queries, query)
	expired := l.expired
	if query.Has("continue") {
		l.expired = nil
	}
	l.mu.Unlock()
	if expired != nil && query.Has("continue") {
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{"continue":%q},"status":"Failure","reason":"Expired","code":410}`,
			expired(query.Get("continue")))
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
	return l.RoundTripper.RoundTrip(r)
}

// newerToken returns the token of the same page in the newest state, in the form of k8s.io/apiserver/pkg/storage.
func newerToken(t *testing.T, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := json.Unmarshal(raw, &parts); err != nil {
		t.Fatal(err)
	}
	parts["rv"] = -1
	if raw, err = json.Marshal(parts); err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// TestListsComeInPages lists more objects than a page has. A list of everything might take more than the minute after
// which API servers end it, and would then begin again without an end.
func TestListsComeInPages(t *testing.T) {
	namespace := newNamespace(t)
	const stored = pageSize + 20
	for i := range stored {
		addConfigMap(t, namespace, fmt.Sprintf("param-%d", i), nil)
	}
	for name, tc := range map[string]struct {
		expired   func(token string) string
		wantLimit string // of the last list
	}{
		"all pages": {wantLimit: fmt.Sprint(pageSize)},
		"an expired token, with one of a newer state": {
			expired:   func(token string) string { return newerToken(t, token) },
			wantLimit: fmt.Sprint(pageSize),
		},
		"an expired token, without another": {expired: func(string) string { return "" }, wantLimit: ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &lists{expired: tc.expired}
			s := newStoreThrough(t, "", func(next http.RoundTripper) http.RoundTripper {
				seen.RoundTripper = next
				return seen
			})
			s.Want(whole(configMaps))
			synced(t, s, configMaps)
			objects := watchOf(t, s, configMaps).known.Load().objects
			objects.mu.RLock()
			got := len(objects.groups[namespace].objects)
			objects.mu.RUnlock()
			if got != stored {
				t.Errorf("%d objects, want %d", got, stored)
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			first, last := seen.queries[0], seen.queries[len(seen.queries)-1]
			if len(seen.queries) < 2 || first.Get("limit") != fmt.Sprint(pageSize) || first.Has("resourceVersion") {
				t.Errorf("lists %v, want pages of %d objects, of no version", seen.queries, pageSize)
			}
			if last.Get("limit") != tc.wantLimit {
				t.Errorf("the last list is %v, want the limit %q", last, tc.wantLimit)
			}
		})
	}
}
