package params

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// lists records the queries of lists of ConfigMaps. It answers the first one that continues another as if its token had
// expired, if expires is true.
type lists struct {
	http.RoundTripper

	expires bool
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
	expired := l.expires && query.Get("continue") != ""
	l.expires = l.expires && !expired
	l.mu.Unlock()
	if expired {
		const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(status)), Request: r,
		}, nil
	}
	return l.RoundTripper.RoundTrip(r)
}

// TestListsComeInPages lists more objects than a page has. A list of everything might take more than the minute after
// which API servers end it, and would then begin again without an end.
func TestListsComeInPages(t *testing.T) {
	namespace := newNamespace(t)
	const stored = pageSize + 20
	for i := range stored {
		addConfigMap(t, namespace, fmt.Sprintf("param-%d", i), nil)
	}
	kind := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	for name, tc := range map[string]struct {
		expires   bool
		wantLimit string // of the last list
	}{
		"all pages":                     {wantLimit: fmt.Sprint(pageSize)},
		"the second page is not served": {expires: true, wantLimit: ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := &lists{expires: tc.expires}
			s := newStoreThrough(t, "", func(next http.RoundTripper) http.RoundTripper {
				seen.RoundTripper = next
				return seen
			})
			s.Want(whole(kind))
			synced(t, s, kind)
			objects := watchOf(t, s, kind).known.Load().objects
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
