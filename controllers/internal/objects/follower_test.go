package objects

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// script answers requests of a follower one after the other, and notes what they ask for.
type script struct {
	mu      sync.Mutex
	answers []string // the last one repeats
	asked   []string
}

// ServeHTTP implements http.Handler.
func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	asked := "list " + q.Get("continue")
	if q.Get("watch") != "" {
		asked = "watch " + q.Get("resourceVersion")
	}
	s.asked = append(s.asked, strings.TrimSpace(asked))
	answer := s.answers[min(len(s.asked), len(s.answers))-1]
	if strings.HasPrefix(answer, `{"kind":"Status"`) {
		var status struct{ Code int }
		_ = json.Unmarshal([]byte(answer), &status)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status.Code)
	}
	_, _ = fmt.Fprint(w, answer)
}

// journal is a target that notes what it gets.
type journal struct {
	got        []string
	incomplete bool
	bad        string // an object that cannot be put
}

func (j *journal) note(format string, args ...any) {
	j.got = append(j.got, fmt.Sprintf(format, args...))
}
func (j *journal) BeginList()             { j.note("begin") }
func (j *journal) EndList(version string) { j.note("end %s", version) }
func (j *journal) Contacted()             {}
func (j *journal) IsIncomplete() bool     { return j.incomplete }

func (j *journal) Put(raw []byte, isNew bool) error {
	o, err := Identify(raw)
	if j.note("put %s %t", o.Name, isNew); o.Name == j.bad {
		err = fmt.Errorf("%s is bad", j.bad)
	}
	return err
}

func (j *journal) Remove(raw []byte) error {
	o, err := Identify(raw)
	j.note("remove %s", o.Name)
	return err
}

func list(version, next string, names ...string) string {
	var items []string
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"1"}}`, name))
	}
	return fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, version, next, strings.Join(items, ","))
}

func event(kind, name, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"resourceVersion":%q}}}`+"\n", kind, name, version)
}

// followerOf returns a follower of an API server that gives some answers.
func followerOf(t *testing.T, answers []string, target Target) (*Follower, *script) {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	things := schema.GroupVersionResource{Version: "v1", Resource: "things"}
	return &Follower{From: Collection{Client: client.CoreV1().RESTClient(), Resource: things}, Target: target, Log: logr.Discard()}, s
}

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`

func TestFollower(t *testing.T) {
	for name, tc := range map[string]struct {
		answers    []string
		incomplete bool
		steps      int
		wantAsked  []string
		want       []string
	}{
		"pages": {
			answers:   []string{list("5", "next", "a"), list("5", "", "b")},
			steps:     1,
			wantAsked: []string{"list", "list next"},
			want:      []string{"begin", "put a true", "put b true", "end 5"},
		},
		"changes, and a watch that continues": {
			answers: []string{list("5", ""), event("ADDED", "a", "6") + event("MODIFIED", "a", "7") + event("DELETED", "a", "8"),
				event("BOOKMARK", "", "20"), ""},
			steps:     4,
			wantAsked: []string{"list", "watch 5", "watch 8", "watch 20"},
			want:      []string{"begin", "end 5", "put a true", "put a false", "remove a"},
		},
		"a version that has expired": {
			answers:   []string{list("5", ""), expired, list("9", "", "a")},
			steps:     3,
			wantAsked: []string{"list", "watch 5", "list"},
			want:      []string{"begin", "end 5", "begin", "put a true", "end 9"},
		},
		"a version that expires in a watch": {
			answers:   []string{list("5", ""), `{"type":"ERROR","object":` + expired + `}`, list("9", "")},
			steps:     3,
			wantAsked: []string{"list", "watch 5", "list"},
			want:      []string{"begin", "end 5", "begin", "end 9"},
		},
		"pages that have expired": {
			answers:   []string{list("5", "next", "a"), expired, list("9", "", "a")},
			steps:     2,
			wantAsked: []string{"list", "list next", "list"},
			want:      []string{"begin", "put a true", "begin", "put a true", "end 9"},
		},
		"an object that cannot be put": {
			answers:   []string{list("5", ""), event("ADDED", "bad", "6"), list("9", "")},
			steps:     3,
			wantAsked: []string{"list", "watch 5", "list"},
			want:      []string{"begin", "end 5", "put bad true", "begin", "end 9"},
		},
		"a busy API server": {
			answers: []string{
				list("5", ""), `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503}`, "",
			},
			steps:     3,
			wantAsked: []string{"list", "watch 5", "watch 5"},
			want:      []string{"begin", "end 5"},
		},
		"room for what was left out": {
			answers:    []string{list("5", ""), list("9", "")},
			incomplete: true,
			steps:      2,
			wantAsked:  []string{"list", "list"},
			want:       []string{"begin", "end 5", "begin", "end 9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := &journal{incomplete: tc.incomplete, bad: "bad"}
			f, s := followerOf(t, tc.answers, j)
			for range tc.steps {
				_ = f.step(t.Context()) // what follows an error is compared
			}
			if diff := cmp.Diff(tc.wantAsked, s.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, j.got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// The data is as old as the last question for the latest version whose answer the target has reached, whatever a watch
// delivers later.
// slowPages answers lists, or never does.
type slowPages struct {
	isSlow bool
	limit  string // of the last request
}

func (p *slowPages) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.limit = r.URL.Query().Get("limit"); p.isSlow {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := io.NopCloser(strings.NewReader(list("5", "")))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// TestSlowPages: pages become smaller until one is complete in time, and larger again with each complete list.
func TestSlowPages(t *testing.T) {
	pages := &slowPages{}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1", QPS: -1, Transport: pages})
	if err != nil {
		t.Fatal(err)
	}
	from := Collection{Client: client.CoreV1().RESTClient(), Resource: schema.GroupVersionResource{Version: "v1", Resource: "things"}}
	f := &Follower{From: from, Target: &journal{}, Log: logr.Discard()}
	for _, tc := range []struct {
		isSlow bool
		want   string
	}{
		{true, "500"}, {true, "250"}, {true, "125"}, {true, "62"}, {true, "31"}, {true, "31"}, {false, "31"}, {false, "62"}, {false, "125"},
		{false, "250"}, {false, "500"}, {false, "500"},
	} {
		pages.isSlow, f.pageTimeout = tc.isSlow, time.Hour
		if tc.isSlow {
			f.pageTimeout = 10 * time.Millisecond
		}
		if err := f.list(t.Context()); pages.limit != tc.want || (err != nil) != tc.isSlow {
			t.Fatalf("got a page of %s and %v, want one of %s", pages.limit, err, tc.want)
		}
	}
}

func TestAsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		answers   []string
		steps     int
		wantAsked []string
		wantYoung bool // the data is confirmed after the first list
	}{
		"a list": {answers: []string{list("5", "")}, steps: 1, wantAsked: []string{"list"}},
		"nothing has changed": {
			answers:   []string{list("5", ""), list("5", ""), ""},
			steps:     2,
			wantAsked: []string{"list", "list", "watch 5"},
			wantYoung: true,
		},
		"an earlier change arrives": {
			answers:   []string{list("5", ""), list("9", ""), event("ADDED", "a", "8")},
			steps:     2,
			wantAsked: []string{"list", "list", "watch 5"},
		},
		"the change arrives": {
			answers:   []string{list("5", ""), list("9", ""), event("ADDED", "a", "9")},
			steps:     2,
			wantAsked: []string{"list", "list", "watch 5"},
			wantYoung: true,
		},
		"a bookmark arrives": {
			answers:   []string{list("5", ""), list("9", ""), event("BOOKMARK", "", "12")},
			steps:     2,
			wantAsked: []string{"list", "list", "watch 5"},
			wantYoung: true,
		},
		"it arrives in a later watch": {
			answers:   []string{list("5", ""), list("9", ""), event("ADDED", "a", "8"), event("ADDED", "b", "9")},
			steps:     3,
			wantAsked: []string{"list", "list", "watch 5", "watch 8"},
			wantYoung: true,
		},
		"the API server does not give a version": {
			answers:   []string{list("5", ""), expired},
			steps:     2,
			wantAsked: []string{"list", "list"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := followerOf(t, tc.answers, &journal{})
			f.Dates = true
			_ = f.step(t.Context())
			first := f.AsOf()
			for range tc.steps - 1 {
				_ = f.step(t.Context())
			}
			if first.IsZero() || f.AsOf().After(first) != tc.wantYoung {
				t.Errorf("as of %s after the list, then %s; want it later: %t", first, f.AsOf(), tc.wantYoung)
			}
			if diff := cmp.Diff(tc.wantAsked, s.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}
