package violations

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/policy"
)

func violation(name, namespace string, d policy.Decision) policy.ViolationReport {
	return policy.ViolationReport{
		Policy: name, Decision: d, Request: &admissionv1.AdmissionRequest{Namespace: namespace},
		Violations: func() []policy.Violation { return nil },
	}
}

func TestCounts(t *testing.T) {
	now := time.Date(2026, 1, 2, 23, 30, 0, 0, time.UTC)
	c := &Counts{now: func() time.Time { return now }}
	if got := c.Encode(); got != "" {
		t.Errorf("without violations: %q, want nothing", got)
	}
	c.Add(violation("a", "x", policy.DecisionDeny))
	now = now.Add(23 * time.Hour)
	c.Add(violation("a", "x", policy.DecisionDeny))
	c.Add(violation("a", "x", policy.DecisionWarn))
	c.Add(violation("a", "", policy.DecisionAudit))
	c.Add(violation("b", "x", policy.DecisionError))
	c.Add(violation("c", "x", policy.DecisionPreview))
	if got, want := c.Encode(), `{"a":{"":[0,0,1,0],"x":[2,1,0,0]},"b":{"x":[0,0,0,1]},"c":{"x":[0,0,0,0,1]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	now = now.Add(time.Hour)
	if got, want := c.Encode(), `{"a":{"":[0,0,1,0],"x":[1,1,0,0]},"b":{"x":[0,0,0,1]},"c":{"x":[0,0,0,0,1]}}`; got != want {
		t.Errorf("an hour later: got %s, want %s", got, want)
	}
	now = now.Add(Window)
	if got := c.Encode(); got != "" {
		t.Errorf("a day later: got %q, want nothing", got)
	}
}

// TestCountsAreBounded: names come from callers.
func TestCountsAreBounded(t *testing.T) {
	c := NewCounts()
	c.now = func() time.Time { return time.Unix(0, 0) }
	const namespaces = maxPairs + 30
	for i := range namespaces {
		for range 2 {
			c.Add(violation("p", fmt.Sprintf("%s-%d", strings.Repeat("n", 50), i), policy.DecisionDeny))
		}
	}
	h := c.current()
	if n := h.size.Load(); n != maxPairs {
		t.Errorf("%d pairs, want %d", n, maxPairs)
	}
	if n := h.others.load(); n != (numbers{60}) {
		t.Errorf("beyond the bound: %v, want 60 denied requests", n)
	}
	line := c.Encode()
	if len(line) > maxEncoded || len(line) < maxEncoded/4 {
		t.Errorf("encoded to %d bytes: %.200s", len(line), line)
	}
	var sum uint64
	for _, f := range Merge([]replicas.Replica{{Violations: line}}) {
		sum += f.Denied
	}
	if sum != 2*namespaces {
		t.Errorf("the encoded counts add up to %d, want %d", sum, 2*namespaces)
	}
}

// TestInvalidNamespaces: the counts of a replica are a part of its Lease and of reports, which one invalid name must not
// prevent.
func TestInvalidNamespaces(t *testing.T) {
	c := NewCounts()
	for _, namespace := range []string{"\x01", "\x7f", "a\u0085b", "\xff", "http://[::1", "A", "..", strings.Repeat("n", 64), Others} {
		c.Add(violation("p", namespace, policy.DecisionDeny))
	}
	c.Add(violation("p", "n", policy.DecisionDeny))
	if got, want := c.Encode(), `{"(other)":{"(other)":[9,0,0,0]},"p":{"n":[1,0,0,0]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	got := Merge([]replicas.Replica{{Violations: `{"p":{"a/b":[1,0,0,0],"n":[2,0,0,0]}}`}})
	want := []Finding{{Policy: "p", Namespace: "n", Denied: 2}, {Policy: Others, Namespace: Others, Denied: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
}

func TestConcurrentCounts(t *testing.T) {
	c := NewCounts()
	var mu sync.Mutex
	now := time.Unix(0, 0)
	c.now = func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Minute)
		return now
	}
	var adding sync.WaitGroup
	for range 8 {
		adding.Go(func() {
			for range 150 { // 20 hours
				c.Add(violation("p", "n", policy.DecisionWarn))
			}
		})
	}
	adding.Wait()
	if got, want := c.Encode(), `{"p":{"n":[0,1200,0,0]}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMerge(t *testing.T) {
	got := Merge([]replicas.Replica{
		{Violations: `{"a":{"x":[1,0,0,0]},"b":{"x":[0,0,1,0]}}`}, {}, {Violations: "of another version"},
		{Violations: `{"a":{"x":[1,2,0,4],"y":[0,0,1,0,3]}}`},
	})
	want := []Finding{
		{Policy: "a", Namespace: "x", Denied: 2, Warned: 2, Failed: 4},
		{Policy: "a", Namespace: "y", Audited: 1, Previewed: 3},
		{Policy: "b", Namespace: "x", Audited: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
