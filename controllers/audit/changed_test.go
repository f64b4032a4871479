package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ostiary/ostiary/internal/audit/results"
)

func changedConfigMap(namespace, name string) changedObject {
	return changedObject{
		gvr: configMaps, id: results.IDOf("uid-" + namespace + name), namespace: namespace, name: name,
	}
}

// takeAll takes objects until a time, and returns their names.
func takeAll(c *changedObjects, from time.Time, during time.Duration) (names []string) {
	for at := time.Duration(0); at <= during; at += rereadInterval {
		if o, ok := c.take(from.Add(at)); ok {
			names = append(names, o.namespace+"/"+o.name)
		}
	}
	return names
}

// A tenant whose objects change all the time causes a bounded number of reads, and does not
// delay those of others.
func TestChangedObjectsAreBounded(t *testing.T) {
	c := newChangedObjects()
	start := time.Unix(1_000_000, 0)
	for i := range 1000 { // a thousand changes in a second
		c.add(changedConfigMap("noisy", "one"), start.Add(time.Duration(i)*time.Millisecond))
	}
	if got := takeAll(c, start, settleTime-time.Nanosecond); got != nil {
		t.Errorf("read before the changes settle: %v", got)
	}
	if diff := cmp.Diff([]string{"noisy/one"}, takeAll(c, start.Add(settleTime), time.Minute)); diff != "" {
		t.Errorf("reads of one object (-want +got):\n%s", diff)
	}

	for i := range 2 * maxChangedOfNamespace {
		c.add(changedConfigMap("noisy", fmt.Sprint(i)), start)
	}
	c.add(changedConfigMap("quiet", "one"), start)
	if c.total != maxChangedOfNamespace+1 {
		t.Errorf("%d objects wait, want %d", c.total, maxChangedOfNamespace+1)
	}
	now := start.Add(time.Hour)
	if diff := cmp.Diff([]string{"noisy/0", "quiet/one", "noisy/1"}, takeAll(c, now, 2*rereadInterval)); diff != "" {
		t.Errorf("namespaces do not take turns (-want +got):\n%s", diff)
	}
	reads := 0
	for range 1000 {
		if _, ok := c.take(now.Add(2 * rereadInterval)); ok {
			reads++
		}
	}
	if reads > rereadBurst {
		t.Errorf("%d reads at once, want at most %d", reads, rereadBurst)
	}
	for i := range 2 * maxChanged {
		c.add(changedConfigMap(fmt.Sprint(i), "one"), start)
	}
	if c.total != maxChanged {
		t.Errorf("%d objects of many namespaces wait, want %d", c.total, maxChanged)
	}
}

// A changed object is read by its name, and only its own results change.
func TestReread(t *testing.T) {
	one, two := configMapOf("a", "one", "1", "bad"), configMapOf("a", "two", "1", "bad")
	recreated := configMapOf("a", "one", "3", "bad")
	recreated["metadata"].(map[string]any)["uid"] = "another"
	tests := map[string]struct {
		stored          []map[string]any
		errors          []int
		wantViolations  int64
		wantEvaluations float64
	}{
		"corrected": {
			stored: []map[string]any{configMapOf("a", "one", "2", "good"), two}, wantViolations: 1, wantEvaluations: 1,
		},
		"changed": {
			stored: []map[string]any{configMapOf("a", "one", "2", "bad"), two}, wantViolations: 2, wantEvaluations: 1,
		},
		"unchanged":   {stored: []map[string]any{one, two}, wantViolations: 2},
		"deleted":     {stored: []map[string]any{two}, wantViolations: 1},
		"recreated":   {stored: []map[string]any{recreated, two}, wantViolations: 1},
		"not read":    {stored: []map[string]any{two}, errors: []int{500}, wantViolations: 2},
		"not decoded": {stored: []map[string]any{{"metadata": map[string]any{"name": "one"}}, two}, wantViolations: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			api := &apiServer{page: 10, objects: []map[string]any{one, two}}
			s, table := scannerFor(t, api), results.NewTable(10)
			p := targetFrom(t, "p", isGood)
			now := time.Now()
			scanOnce(t, s, table, now, p)
			if !table.HasFinding(configMaps, results.IDOf("uid-aone")) {
				t.Fatal("no finding")
			}
			api.objects, api.errors = tc.stored, tc.errors
			s.changed.add(changedConfigMap("a", "one"), time.Now().Add(-settleTime))
			before := testutil.ToFloat64(s.metrics.evaluations)
			if err := s.rereadNext(t.Context(), table, planned(p)); err != nil {
				t.Fatal(err)
			}
			got := table.Snapshot().Counts[results.Pair{Policy: "p", Namespace: "a"}].Violations()
			evaluations := testutil.ToFloat64(s.metrics.evaluations) - before
			if got != tc.wantViolations || evaluations != tc.wantEvaluations {
				t.Errorf("%d violations after %v evaluations, want %d after %v", got, evaluations, tc.wantViolations, tc.wantEvaluations)
			}
			if table.Next(now, time.Hour) != nil {
				t.Error("a scan is due")
			}
		})
	}
}

// docs/operations/audit.md promises that a corrected object leaves the results in 30 s if few objects
// change. Each delay on its way to the summary has a limit, and the status takes 2 s more: see
// TestResultsAreWrittenInTime of controllers/status.
func TestCorrectedObjectsAreReadInTime(t *testing.T) {
	const promised, forStatus = 30 * time.Second, 2 * time.Second
	delays := map[string]time.Duration{
		"the change settles":            settleTime,
		"it is looked for":              rereadInterval,
		"reads of others come first":    time.Second / rereadRate,
		"requests of others come first": time.Second / requestRate,
		"the API server answers":        rereadTimeout,
		"an earlier report is recent":   pollInterval,
		"changed results are found":     lookInterval,
	}
	total := forStatus
	for _, d := range delays {
		total += d
	}
	if total > promised {
		t.Errorf("a corrected object leaves the results in %s, want %s: %v", total, promised, delays)
	}
}
