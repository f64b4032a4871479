package results

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Limits of a status, as in the CustomResourceDefinition.
const (
	maxMissing, maxMissingText  = 10, 1024
	maxExamples, maxExampleText = 5, 512
)

// Summaries returns the statuses of all policies by name. One that is being scanned keeps its
// status of the previous summaries.
func (s Snapshot) Summaries(previous map[string]*v1alpha1.AuditStatus) map[string]*v1alpha1.AuditStatus {
	after := map[string]*v1alpha1.AuditStatus{}
	for name, scan := range s.Scans {
		after[name] = scan.summary()
	}
	for name, why := range s.Problems {
		if after[name] == nil {
			after[name] = &v1alpha1.AuditStatus{}
		}
		after[name].Missing = append(after[name].Missing, why)
	}
	for pair, c := range s.Counts {
		if summary := after[pair.Policy]; summary != nil && summary.Violations != nil {
			*summary.Violations += c.Violations()
			summary.Errors += c[Errored]
			summary.Objects += c.evaluated()
		}
	}
	for name, examples := range s.examples() {
		if after[name] != nil {
			after[name].Examples = examples
		}
	}
	for name, summary := range after {
		summary.Missing = boundedMissing(summary.Missing)
		if !s.Scans[name].Running {
			continue
		}
		if after[name] = previous[name]; after[name] == nil {
			delete(after, name)
		}
	}
	return after
}

func (s Scan) summary() *v1alpha1.AuditStatus {
	out := &v1alpha1.AuditStatus{Violations: ptr.To[int64](0), Missing: slices.Clone(s.Failures)}
	if !s.Time.IsZero() {
		t := metav1.NewTime(s.Time.Truncate(time.Second)) // API servers store seconds: more would look like a change
		out.Time = &t
	}
	return out
}

func boundedMissing(all []string) []string {
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - maxMissing; more > 0 {
		all = append(all[:maxMissing-1:maxMissing-1], fmt.Sprintf("%d more reasons", more+1))
	}
	for i := range all {
		all[i] = truncate.String(all[i], maxMissingText)
	}
	return all
}

// example is a line with its namespace.
type example struct {
	namespace string
	Line
}

// examples returns the first lines of each policy, without messages: these can contain any
// value of an object, and everyone who may read policies can read the status.
func (s Snapshot) examples() map[string][]string {
	all := map[string][]example{}
	for pair, list := range s.Lines {
		for _, l := range list[:min(len(list), maxExamples)] {
			all[pair.Policy] = append(all[pair.Policy], example{pair.Namespace, l})
		}
	}
	out := map[string][]string{}
	for name, list := range all {
		slices.SortFunc(list, func(a, b example) int {
			return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.namespace, b.namespace), a.compare(&b.Line))
		})
		for _, e := range list[:min(len(list), maxExamples)] {
			out[name] = append(out[name], e.text())
		}
	}
	return out
}

func (e *example) text() string {
	object := e.Name
	if e.namespace != "" && e.Kind.Kind != "Namespace" {
		object = e.namespace + "/" + e.Name
	}
	text := e.Resource + " " + object
	if e.Rule != "" {
		text += ": " + e.Rule
	}
	return truncate.String(text, maxExampleText)
}
