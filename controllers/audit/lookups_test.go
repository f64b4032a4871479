package audit

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// indexes are the indexes of lookups. Their snapshots do not change.
type indexes struct {
	all    map[lookups.Definition]*lookups.Index
	unread string
}

func (x *indexes) Unread(lookups.Definition) string { return x.unread }

func (x *indexes) Revision(d lookups.Definition) uint64 { return x.all[d].View().Revision }

func (x *indexes) Snapshot() policy.Lookups {
	views := snapshot{}
	for d, index := range x.all {
		views[d] = index.View()
	}
	return views
}

type snapshot map[lookups.Definition]*lookups.View

func (s snapshot) Lookup(_ context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	return s[p.Definition].Find(q)
}

// lookingUp returns a target whose policy refuses ConfigMaps with the verdict of a stored object,
// and the index of its lookup.
func lookingUp(t *testing.T, name string) (target, *lookups.Index) {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{}
	p.Name = name
	const text = `
matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]}
lookups: [{name: l, resource: {version: v1, resource: secrets}, storedKeys: "[stored.metadata.name]", requestKeys: "[object.data.verdict]"}]
validations: [{expression: lookups.l.size() == 0}]
`
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		t.Fatal(err)
	}
	compiled, errs := policy.NewCompiler().Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	of := target{name: name, policy: p, version: results.Version{Compiled: compiled}, host: testHost()}
	return of, lookups.NewIndex(compiled.LookupNeeds()[0].Definition, lookups.Limits{})
}

// TestScanWithLookups: an object that a policy looks up changes the results of the next scan of all objects, and
// one scan sees one state of an index.
func TestScanWithLookups(t *testing.T) {
	of, index := lookingUp(t, "p")
	api := &apiServer{page: 2}
	for i := range 4 {
		api.objects = append(api.objects, configMapOf("a", fmt.Sprint("o", i), "1", "bad"))
	}
	var between func() // two pages
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") != "" {
			between()
		}
		api.ServeHTTP(w, r)
	})
	s, table := scannerFor(t, pages), results.NewTable(10)
	s.options.Interval, s.lookedUp = time.Hour, map[string]lookedUp{}
	s.options.Lookups = &indexes{all: map[lookups.Definition]*lookups.Index{index.Definition(): index}}
	now := time.Unix(1_000_000, 0)
	put := func() {
		index.Put(lookups.Ref{UID: "1", Namespace: "a", Name: "bad"}, lookups.Entry{Keys: []string{"bad"}})
	}
	remove := func() { index.Remove("1") }
	for _, step := range []struct {
		name        string
		do, during  func() // before the scan and in it; nil is nothing
		after       time.Duration
		evaluations float64
		want        results.Counts
	}{
		{name: "nothing is found", evaluations: 4, want: results.Counts{results.Passed: 4}},
		{name: "before the next scan", do: put, evaluations: -1, want: results.Counts{results.Passed: 4}},
		{name: "the next scan", after: time.Hour, evaluations: 4, want: results.Counts{results.Violated: 4}},
		{name: "nothing has changed", after: time.Hour, want: results.Counts{results.Violated: 4}},
		{
			name: "the object is deleted and created during a scan", do: remove, during: put, after: time.Hour,
			evaluations: 4, want: results.Counts{results.Passed: 4},
		},
		{name: "the scan after that", after: time.Hour, evaluations: 4, want: results.Counts{results.Violated: 4}},
	} {
		for _, do := range []*func(){&step.do, &step.during} {
			if *do == nil {
				*do = func() {}
			}
		}
		step.do()
		between, now = step.during, now.Add(step.after)
		of.version.Lookups = s.lookupsVersion(s.lookedUp["p"], "p", of.version.Compiled, now)
		if got := scanOnce(t, s, table, now, of); got != step.evaluations {
			t.Errorf("%s: %v evaluations, want %v", step.name, got, step.evaluations)
		}
		want := map[results.Pair]results.Counts{{Policy: "p", Namespace: "a"}: step.want}
		if diff := cmp.Diff(want, table.Snapshot().Counts); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestUnreadLookups: a policy is not evaluated before its lookups have been listed.
func TestUnreadLookups(t *testing.T) {
	of, _ := lookingUp(t, "p")
	for name, tt := range map[string]struct {
		lookups Lookups
		target  target
		want    string
	}{
		"listed":           {lookups: &indexes{}, target: of},
		"not listed":       {lookups: &indexes{unread: "secrets are being listed"}, target: of, want: "secrets are being listed"},
		"none":             {target: of, want: "stored objects are not available here"},
		"of other targets": {target: targetFrom(t, "q", isGood)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Scanner{options: Options{Lookups: tt.lookups}}
			if got := s.unreadLookups(tt.target.version.Compiled); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
