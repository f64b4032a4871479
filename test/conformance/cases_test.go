package conformance

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

// outcomeCounts counts what became of the requests of a run.
type outcomeCounts struct {
	requests, refused, disagreements int
	outcomes, known                  map[string]int
	codes                            map[int]int
	excepted                         int // requests
}

func newOutcomeCounts() *outcomeCounts {
	return &outcomeCounts{outcomes: map[string]int{}, known: map[string]int{}, codes: map[int]int{}}
}

func (c *outcomeCounts) add(v *Verdict) {
	if v.Outcome == notInstalled {
		c.refused++
	} else {
		c.requests++
	}
	c.outcomes[v.Outcome]++
	c.codes[v.Ours.Code]++
	if len(v.Excepted) > 0 {
		c.excepted++
	}
	for _, name := range v.Known {
		c.known[name]++
	}
	if v.Diff != "" {
		c.disagreements++
	}
}

// number is that of a generated case.
func (p *placed) number() int {
	_, text, _ := strings.Cut(p.Name, ", number ")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// occurs reports whether a difference is one of the version that is tested.
func occurs(name string) bool {
	return slices.ContainsFunc(differencesOf(suite.minor), func(d difference) bool { return d.name == name })
}

// TestCases runs the hand-written cases. Every known difference has to occur in
// the cases that name it.
func TestCases(t *testing.T) {
	cases, err := LoadCases("testdata/cases")
	if err != nil {
		t.Fatal(err)
	}
	if *only != "" {
		cases = slices.DeleteFunc(cases, func(c Case) bool { return c.Name != *only && !strings.HasPrefix(c.Name, *only+"/") })
	}
	for i := range cases {
		for _, r := range cases[i].Requests {
			if r.Want == "" {
				t.Errorf("case %s has a request without want: two engines that do nothing would agree", cases[i].Name)
			}
		}
	}
	count := newOutcomeCounts()
	shown := map[string]sets.Set[string]{}
	err = suite.Run(t.Context(), cases, func(v *Verdict) {
		count.add(v)
		if v.Diff != "" {
			t.Error(v.Report())
		}
		if shown[v.Case.Name] == nil {
			shown[v.Case.Name] = sets.New[string]()
		}
		shown[v.Case.Name].Insert(v.Known...)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kubernetes 1.%d: %d cases, %d requests: %v, codes %v, known differences %v", suite.minor, len(cases),
		count.requests, count.outcomes, count.codes, count.known)
	for _, c := range cases {
		for _, name := range c.Differs {
			if occurs(name) && !shown[c.Name].Has(name) {
				t.Errorf("case %s does not show the known difference %s", c.Name, name)
			}
		}
	}
	for _, d := range differencesOf(suite.minor) {
		if *only == "" && d.normalise != nil && count.known[d.name] == 0 {
			t.Errorf("no hand-written case shows the known difference %s: remove it from the table, or write a case", d.name)
		}
	}
}
