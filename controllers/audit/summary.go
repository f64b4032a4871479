package audit

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

// Status returns the result of a policy, which must not be changed; nil while it is not known.
func (s *Scanner) Status(p *v1alpha1.WebhookPolicy) *v1alpha1.AuditStatus {
	current := s.results.Load()
	if current == nil {
		return nil
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	return current.summaries[p.Name]
}

// summarize makes the summaries of all policies. One that is being scanned keeps its last
// summary.
func (r *results) summarize() {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := map[string]*v1alpha1.AuditStatus{}
	scanning := map[string]bool{}
	r.summarizeSlots(after, scanning)
	for name, why := range r.problems {
		of := summaryOf(after, name)
		of.Missing = append(of.Missing, why)
	}
	for key, c := range r.counts {
		if of := after[key.policy]; of != nil && of.Violations != nil {
			*of.Violations += c.violations()
			of.Errors += c[failed]
			of.Objects += c.evaluated()
		}
	}
	for name, examples := range r.examples() {
		if of := after[name]; of != nil {
			of.Examples = examples
		}
	}
	for name, of := range after {
		of.Missing = boundedMissing(of.Missing)
		if scanning[name] {
			if after[name] = r.summaries[name]; after[name] == nil {
				delete(after, name)
			}
		}
	}
	r.summaries = after
}

// summarizeSlots adds the times and failures of scans, and which policies are being scanned.
func (r *results) summarizeSlots(after map[string]*v1alpha1.AuditStatus, scanning map[string]bool) {
	for _, known := range r.resources {
		for _, s := range known.slots {
			of := summaryOf(after, s.name)
			of.Violations = cmp.Or(of.Violations, ptr.To[int64](0))
			if known.failure != "" {
				of.Missing = append(of.Missing, known.failure)
			} else if s.done != s.version {
				scanning[s.name] = true
			}
			// API servers store seconds: more would look like a change.
			if t := metav1.NewTime(s.time.Truncate(time.Second)); !s.time.IsZero() && (of.Time == nil || t.Before(of.Time)) {
				of.Time = &t
			}
		}
	}
}

func summaryOf(all map[string]*v1alpha1.AuditStatus, name string) *v1alpha1.AuditStatus {
	if all[name] == nil {
		all[name] = &v1alpha1.AuditStatus{}
	}
	return all[name]
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

// examples returns the first lines of each policy, without messages: these can contain any
// value of an object, and everyone who may read policies can read the status.
func (r *results) examples() map[string][]string {
	type example struct {
		namespace string
		line
	}
	all := map[string][]example{}
	for key, list := range r.lines {
		for _, l := range list[:min(len(list), maxExamples)] {
			all[key.policy] = append(all[key.policy], example{key.namespace, l})
		}
	}
	out := map[string][]string{}
	for name, list := range all {
		slices.SortFunc(list, func(a, b example) int {
			return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(a.namespace, b.namespace), a.order(&b.line))
		})
		for _, e := range list[:min(len(list), maxExamples)] {
			object := e.name
			if e.namespace != "" && e.kind.Kind != "Namespace" {
				object = e.namespace + "/" + e.name
			}
			text := e.resource + " " + object
			if e.rule != "" {
				text += ": " + e.rule
			}
			out[name] = append(out[name], truncate.String(text, maxExampleText))
		}
	}
	return out
}
