package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	maxWorkloads                = 5
)

// Summary is the result for one generation of a policy. It must not be changed.
type Summary struct {
	Subject Subject
	Status  *v1alpha1.AuditStatus
}

// Summaries returns the results of all policies by name. Those of a policy that is being scanned can
// be of an earlier generation.
func (s Snapshot) Summaries() map[string]Summary {
	all := make(map[string]Summary, len(s.Scans))
	for name, scan := range s.Scans {
		all[name] = scan.summary()
	}
	for name, problem := range s.Problems {
		if _, ok := all[name]; !ok {
			all[name] = Summary{Subject: problem.Subject, Status: &v1alpha1.AuditStatus{}}
		}
	}
	sums, examples, workloads := s.sums(), s.examples(), s.workloads()
	for name, summary := range all {
		scan, isScanned := s.Scans[name]
		status := summary.Status
		status.Missing = s.missing(name)
		status.Examples, status.Workloads = examples[name], workloads[name]
		setNumbers(status, isScanned, scan, sums[name])
	}
	return all
}

// sums returns the numbers of each policy in all namespaces.
func (s Snapshot) sums() map[string]*Counts {
	out := map[string]*Counts{}
	for pair, c := range s.Counts {
		if out[pair.Policy] == nil {
			out[pair.Policy] = &Counts{}
		}
		out[pair.Policy].add(c)
	}
	return out
}

func (s Scan) summary() Summary {
	out := &v1alpha1.AuditStatus{}
	if !s.Time.IsZero() && !s.IsMixed {
		t := metav1.NewTime(s.Time.Truncate(time.Second)) // API servers store seconds: more would look like a change
		out.Time = &t
	}
	return Summary{Subject: s.Subject, Status: out}
}

// setNumbers sets the numbers of a status. Those of violations and of objects that would change are absent
// if something could not be read, because they could be too low.
func setNumbers(status *v1alpha1.AuditStatus, isScanned bool, scan Scan, sums *Counts) {
	if !isScanned {
		status.Summary = v1alpha1.AuditNotAudited
		return
	}
	var c Counts
	if sums != nil {
		c = *sums
	}
	status.ViolationsOnCreate, status.Errors, status.Objects = c.ViolationsAnew(), c.errors(), c.evaluated()
	status.Excepted = c[Excepted]
	status.Summary = strconv.FormatInt(c.Violations(), 10)
	switch {
	case len(status.Missing) == 0:
		status.Violations = ptr.To(c.Violations())
	case scan.IsDenied && c.described() == 0:
		status.Summary = v1alpha1.AuditNoAccess
	default:
		status.Summary = v1alpha1.AuditAtLeast + status.Summary
	}
	if n := status.ViolationsOnCreate; n > 0 {
		status.Summary += fmt.Sprintf(" + %d on create", n)
	}
	if n := status.Errors; n > 0 {
		status.Summary += fmt.Sprintf(", %d errors", n)
	}
	if scan.Mutates && len(status.Missing) == 0 {
		status.WouldChange = ptr.To(c.WouldChange())
	}
	if n := c.WouldChange(); n > 0 {
		status.Summary += fmt.Sprintf(", %d would change", n)
	}
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
		for _, l := range list[:min(len(list), maxExamples)] { // excepted objects are the last ones
			if l.Verdict == Excepted {
				break
			}
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

// atLeast says that more workloads can be found than were counted.
func atLeast(more int) string {
	if more == 0 {
		return "possibly more"
	}
	return fmt.Sprintf("at least %d more", more)
}

// workloads returns the first workloads of each policy whose new Pods are denied, and how many more
// there are. Findings without a line do not count.
func (s Snapshot) workloads() map[string][]string {
	all, isBounded := map[string]map[string]struct{}{}, map[string]bool{}
	for pair, list := range s.Lines {
		for i := range list {
			if list[i].Workload == "" {
				continue
			}
			if all[pair.Policy] == nil {
				all[pair.Policy] = map[string]struct{}{}
			}
			all[pair.Policy][list[i].Workload] = struct{}{}
			counts := s.Counts[pair]
			isBounded[pair.Policy] = isBounded[pair.Policy] || counts.described() > int64(len(list))
		}
	}
	out := map[string][]string{}
	for name, set := range all {
		list := slices.Sorted(maps.Keys(set))
		shown := list[:min(len(list), maxWorkloads)]
		switch more := len(list) - len(shown); {
		case isBounded[name]:
			shown = append(slices.Clone(shown), atLeast(more))
		case more > 0:
			shown = append(slices.Clone(shown), fmt.Sprintf("%d more", more))
		}
		out[name] = shown
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
	mark := e.Verdict.mark()
	return truncate.String(text, maxExampleText-len(mark)) + mark
}
