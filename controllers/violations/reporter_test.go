package violations

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/policy"
)

const ownedPod = `{"apiVersion":"v1","metadata":{"labels":{"metadata":"{"},"ownerReferences":[
	{"apiVersion":"v1","kind":"Node","name":"n"},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","uid":"u","controller":true}]},
	"spec":{"secret":"s3cr3t"}}`

func deniedPod(edit func(*admissionv1.AdmissionRequest), violations ...policy.Violation) policy.ViolationReport {
	r := &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create, Namespace: "team-a", Name: "web-1-x", UserInfo: authenticationv1.UserInfo{Username: "jane"},
		Object: runtime.RawExtension{Raw: []byte(ownedPod)},
	}
	if edit != nil {
		edit(r)
	}
	return policy.ViolationReport{
		Policy:     "p",
		Decision:   policy.DecisionDeny,
		Request:    r,
		Violations: func() []policy.Violation { return violations },
	}
}

// logged returns the lines of violations.
func logged(t *testing.T, all ...policy.ViolationReport) string {
	t.Helper()
	var out bytes.Buffer
	r := NewReporter(&out, nil)
	r.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	for _, v := range all {
		r.Report(v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestLine(t *testing.T) {
	got := logged(t, deniedPod(nil, policy.Violation{
		Binding: "b", Validation: "v", Decision: policy.DecisionDeny, Message: `use <registry> & "tag"`,
	}))
	want := `{"time":"2026-01-02T03:04:05Z","log":"violation","policy":"p","decision":"deny","user":"jane","operation":"CREATE",` +
		`"object":{"apiVersion":"v1","kind":"Pod","resource":"pods","namespace":"team-a","name":"web-1-x"},` +
		`"owner":{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-1","uid":"u"},"dryRun":false,"uid":"1",` +
		`"violations":[{"decision":"deny","binding":"b","validation":"v","message":"use <registry> & \"tag\""}]}` + "\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

// TestExceptedLine: what an exception lets pass has a line, and neither counts nor has an Event.
func TestExceptedLine(t *testing.T) {
	x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "x"}}
	v := deniedPod(nil, policy.Violation{
		Validation: "v", Decision: policy.DecisionExcepted, Message: "m", Exception: exceptions.NewEntry(x),
	})
	v.Decision = policy.DecisionExcepted
	const want = `"violations":[{"decision":"excepted","validation":"v","exception":"team-a/x","message":"m"}]`
	if got := logged(t, v); !strings.Contains(got, want) || !strings.Contains(got, `"policy":"p","decision":"excepted"`) {
		t.Errorf("the line is %s, want %s", got, want)
	}
	counts := NewCounts()
	if counts.Add(v); counts.Encode() != "" {
		t.Errorf("the counts are %s, want none", counts.Encode())
	}
	sink := &eventSink{}
	sink.add(newRecord(v, time.Now()), time.Now()) // it has no recorder
	if sink.total != 0 {
		t.Errorf("%d Events, want none", sink.total)
	}
}

// TestHostileText: text of callers cannot add or forge lines, nor make them longer than container runtimes accept.
func TestHostileText(t *testing.T) {
	long := strings.Repeat(`"\`, 3000)
	tests := map[string]struct {
		violation policy.ViolationReport
		want      []string
	}{
		"line breaks and control characters": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) {
				r.UserInfo.Username, r.Name = "jane\n{\"log\":\"violation\"}\x1b[2J", "a\u2028b\u202ec\xff"
			}, policy.Violation{Message: "one\r\ntwo"}),
			want: []string{`"user":"jane {\"log\":\"violation\"} [2J"`, `"name":"a b c?"`, `"message":"one  two"`},
		},
		"long names": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) {
				r.UserInfo.Username, r.Name, r.Namespace, r.SubResource, r.UID = long, long, long, long, "u"
				r.Kind, r.Resource = metav1.GroupVersionKind{Group: long, Kind: long}, metav1.GroupVersionResource{Resource: long}
				name, _ := json.Marshal(long)
				r.Object.Raw = fmt.Appendf(nil,
					`{"metadata":{"ownerReferences":[{"apiVersion":%[1]s,"kind":"K","name":"n","uid":"u","controller":true}]}}`, name)
			}, policy.Violation{Message: long}, policy.Violation{Message: long}, policy.Violation{Message: long},
				policy.Violation{Message: long}, policy.Violation{Message: long}),
			want: []string{`..."`, `"omittedViolations":1`},
		},
		"many violations": {
			violation: deniedPod(nil, make([]policy.Violation, 50)...),
			want:      []string{`"omittedViolations":40`},
		},
		"owners that are no list": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":{"ownerReferences":{}}}`) }),
			want:      []string{`"name":"web-1-x"},"dryRun"`},
		},
		"an object that is not JSON": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":{"ownerReferences":[`) }),
			want:      []string{`"name":"web-1-x"},"dryRun"`},
		},
		"a deletion": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.OldObject, r.Object = r.Object, runtime.RawExtension{} }),
			want:      []string{`"owner":{"apiVersion":"apps/v1"`},
		},
		"a dry run": {violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }), want: []string{`"dryRun":true`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := logged(t, tt.violation)
			if n := strings.Count(got, "\n"); n != 1 || !json.Valid([]byte(got)) || len(got) > 16<<10 {
				t.Errorf("%d lines of %d bytes, valid: %t", n, len(got), json.Valid([]byte(got)))
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %s, want %s in it", got, want)
				}
			}
			if strings.Contains(got, "s3cr3t") {
				t.Errorf("the line has content of the object: %s", got)
			}
		})
	}
}

// TestOneUserDoesNotDropTheViolationsOfOthers: one of two users fills what it can.
func TestOneUserDoesNotDropTheViolationsOfOthers(t *testing.T) {
	as := func(user string) policy.ViolationReport {
		return deniedPod(func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = user })
	}
	flood := make([]policy.ViolationReport, 0, 1000)
	for range 1000 {
		flood = append(flood, as("mallory"))
	}
	got := logged(t, flood...)
	if n := strings.Count(got, `"user":"mallory"`); n != slots {
		t.Errorf("%d lines, want %d", n, slots)
	}
	if want := fmt.Sprintf(`"log":"violations dropped","dropped":%d}`, 1000-slots); !strings.Contains(got, want) {
		t.Errorf("got %q at the end, want %q", got[max(0, len(got)-200):], want)
	}
	// Of 50 other users, about 1 in 8 shares the room of the first.
	others := flood
	for i := range 50 {
		others = append(others, as(fmt.Sprintf("jane-%d", i)))
	}
	if n := strings.Count(logged(t, others...), `"user":"jane-`); n < 25 {
		t.Errorf("%d lines of 50 others, want most of them", n)
	}
}

// TestFullBufferReadsNothing: a dropped violation costs no memory.
func TestFullBufferReadsNothing(t *testing.T) {
	b := newBuffer()
	read := 0
	for range slots + 7 {
		b.add("u", func() *record { read++; return &record{} })
	}
	if read != slots || b.dropped.Load() != 7 {
		t.Errorf("%d records read and %d dropped, want %d and 7", read, b.dropped.Load(), slots)
	}
}

func TestBufferTakesInTurn(t *testing.T) {
	b := newBuffer()
	for i := range 4 * shards {
		b.add(fmt.Sprint(i), func() *record { return &record{} })
	}
	total, rounds := 0, 0
	for total < 4*shards {
		n := 0
		b.take(5, func(*record) { n++ })
		if rounds++; n == 0 || n > 5+shards-1 {
			t.Fatalf("took %d records, want at least 1 and about 5", n)
		}
		total += n
	}
	if b.take(1, func(*record) { t.Error("took a record twice") }); rounds < 2 {
		t.Errorf("took all in %d rounds", rounds)
	}
}

func TestConcurrentReports(t *testing.T) {
	b := newBuffer()
	var adding sync.WaitGroup
	var taken atomic.Uint64
	done := make(chan struct{})
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		for {
			b.take(batch, func(*record) { taken.Add(1) })
			select {
			case <-done:
				b.take(shards*slots, func(*record) { taken.Add(1) })
				return
			default:
			}
		}
	}()
	for i := range 8 {
		adding.Go(func() {
			for range 1000 {
				b.add(fmt.Sprint(i), func() *record { return &record{} })
			}
		})
	}
	adding.Wait()
	close(done)
	<-reading
	if got := taken.Load() + b.dropped.Load(); got != 8000 {
		t.Errorf("%d records taken or dropped, want 8000", got)
	}
}

// failing fails every write.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestWriteErrorIsReturned(t *testing.T) {
	r := NewReporter(failing{}, nil)
	r.Report(deniedPod(nil))
	if err := r.Start(t.Context()); err == nil || err.Error() != "writing a violation: no space" {
		t.Errorf("got %v", err)
	}
}

// recorder keeps Events.
type recorder struct{ events []string }

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	of, by := regarding.(*corev1.ObjectReference), related.(*corev1.ObjectReference)
	r.events = append(r.events, fmt.Sprintf("%s %s %s of %s %s/%s by %s: ", kind, reason, action, of.Kind, of.Namespace,
		of.Name, by.Name)+fmt.Sprintf(note, args...))
}

func TestEvents(t *testing.T) {
	bare := func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{}`) }
	tests := map[string]struct {
		violation policy.ViolationReport
		want      []string
	}{
		"of the controller": {
			violation: deniedPod(nil, policy.Violation{Message: "100% wrong"}),
			want: []string{
				`Warning PolicyViolation Deny of ReplicaSet team-a/web-1 by p: WebhookPolicy "p" denied CREATE of pods "web-1-x": 100% wrong`,
			},
		},
		"of the namespace": {
			violation: deniedPod(func(r *admissionv1.AdmissionRequest) { bare(r); r.Name, r.SubResource = "", "exec" }),
			want:      []string{`Warning PolicyViolation Deny of Namespace team-a/team-a by p: WebhookPolicy "p" denied CREATE of pods/exec`},
		},
		"long": {
			violation: deniedPod(bare, policy.Violation{Message: strings.Repeat("m", 1024)}),
			want: []string{
				`Warning PolicyViolation Deny of Namespace team-a/team-a by p: WebhookPolicy "p" denied CREATE of pods ` +
					`"web-1-x": ` + strings.Repeat("m", 946) + "...",
			},
		},
		"a dry run":       {violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) })},
		"a cluster scope": {violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.Namespace = "" })},
		"a namespace":     {violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "namespaces" })},
		"an event":        {violation: deniedPod(func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "events" })},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var events recorder
			r := NewReporter(nil, &events)
			r.Report(tt.violation)
			if err := r.flush(batch); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, events.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsAreBounded: owners are what callers claim.
func TestEventsAreBounded(t *testing.T) {
	var events recorder
	e := &eventSink{recorder: &events}
	now := time.Now()
	add := func(namespace string, i int) {
		e.add(&record{Policy: "p", Object: object{Namespace: namespace}, Owner: &owner{Name: fmt.Sprint(i)}}, now)
	}
	for i := range 1000 {
		add("flooded", i)
	}
	if len(events.events) != maxSeriesOfNamespace {
		t.Errorf("%d events of a namespace, want %d", len(events.events), maxSeriesOfNamespace)
	}
	add("flooded", 0)
	if len(events.events) != maxSeriesOfNamespace+1 {
		t.Error("a repetition was not recorded")
	}
	for i := range 1000 {
		add(fmt.Sprint(i), i)
	}
	if want := maxSeries + 1; len(events.events) != want {
		t.Errorf("%d events of all namespaces, want %d", len(events.events), want)
	}
	now = now.Add(eventPeriod)
	if add("flooded", 5000); len(events.events) != maxSeries+2 {
		t.Error("a violation of the next period was not recorded")
	}
}
