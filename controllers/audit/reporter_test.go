package audit

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/audit/results"
)

// reportServer stores reports by path.
type reportServer struct {
	stored map[string]string
	writes int
	fail   *metav1.Status // of every write
	absent bool           // without the kinds
}

func (s *reportServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	status := func(of metav1.Status) {
		of.TypeMeta, of.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
		w.WriteHeader(int(of.Code))
		_ = json.NewEncoder(w).Encode(of)
	}
	switch {
	case s.absent:
		status(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound})
	case r.Method == http.MethodGet:
		s.list(w, r)
	case s.fail != nil:
		status(*s.fail)
	case strings.Contains(r.URL.Path, "/namespaces/gone/"):
		status(metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Details: &metav1.StatusDetails{Kind: "namespaces", Name: "gone"}})
	case r.Method == http.MethodDelete:
		s.writes++
		delete(s.stored, r.URL.Path)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
	default:
		s.writes++
		s.stored[r.URL.Path] = string(body)
		_, _ = w.Write(body)
	}
}

func (s *reportServer) list(w http.ResponseWriter, r *http.Request) {
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for path, body := range s.stored {
		var o metav1.PartialObjectMetadata
		if strings.Contains(path, "/clusterreports/") == strings.HasSuffix(r.URL.Path, "/clusterreports") && json.Unmarshal([]byte(body), &o) == nil {
			o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
			list.Items = append(list.Items, o)
		}
	}
	_ = json.NewEncoder(w).Encode(list)
}

func reporterFor(t *testing.T, s *reportServer) *reporter {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &reporter{client: client, metadata: meta, wait: func(context.Context) error { return nil }, log: logr.Discard()}
}

func TestReporter(t *testing.T) {
	const prefix = "/apis/openreports.io/v1alpha1/"
	s := &reportServer{stored: map[string]string{prefix + "namespaces/old/reports/ostiary": `{"metadata":{"namespace":"old","name":"ostiary"}}`}}
	w := reporterFor(t, s)
	now := time.Unix(1_000_000, 0)
	write := func(step string, wantDone bool, wantWrites int, want []string, reports ...results.Report) {
		t.Helper()
		before := s.writes
		if done := w.write(t.Context(), reports, now); done != wantDone || s.writes-before != wantWrites {
			t.Errorf("%s: done %t with %d writes, want %t with %d", step, done, s.writes-before, wantDone, wantWrites)
		}
		for i := range want {
			want[i] = prefix + want[i]
		}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(s.stored))); diff != "" {
			t.Errorf("%s: reports (-want +got):\n%s", step, diff)
		}
	}
	cluster, a := results.Report{}, results.Report{Namespace: "a", Summary: results.Counts{results.Violated: 1}}
	both := func() []string { return []string{"clusterreports/ostiary", "namespaces/a/reports/ostiary"} }
	write("the first time", true, 3, both(), cluster, a)
	write("without a change", true, 0, both(), cluster, a)
	a.Summary[results.Violated]++
	write("a change", true, 1, both(), cluster, a)
	write("a namespace that is gone", true, 0, both(), cluster, a, results.Report{Namespace: "gone"})

	a.Summary[results.Violated]++
	s.fail = &metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 60}}
	write("an overloaded API server", false, 0, both(), cluster, a)
	s.fail = nil
	now = now.Add(59 * time.Second)
	write("during the pause", false, 0, both(), cluster, a)
	now = now.Add(time.Second)
	write("after the pause", true, 1, both(), cluster, a)

	a.Summary[results.Violated]++
	s.fail = &metav1.Status{Code: 500, Message: "etcdserver: mvcc: database space exceeded"}
	for i, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		write("a full etcd", false, 0, both(), cluster, a)
		if got := w.resume.Sub(now); got != pause {
			t.Errorf("pause %d is %s, want %s", i, got, pause)
		}
		now = w.resume
	}
	s.fail, s.absent = nil, true
	s.stored = map[string]string{}
	write("without the kinds", false, 0, nil, cluster, a)
	s.absent, now = false, w.resume
	write("with the kinds again", true, 2, both(), cluster, a)
	write("no more results", true, 1, []string{"clusterreports/ostiary"}, cluster)
}
