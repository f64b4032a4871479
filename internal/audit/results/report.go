package results

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Limits of one object. A report that needs more has several parts.
const (
	maxPartResults = 500
	maxPartBytes   = 256 << 10
	// partOverhead is the size of a part without its results, at most.
	partOverhead = 4 << 10
)

const (
	reportVersion = "openreports.io/v1alpha1"
	// ReportSource is the source and the name of reports about stored objects.
	ReportSource = "ostiary"
	// ReportManager is the field manager of reports.
	ReportManager = "ostiary-audit"
	// annotationOmitted is the number of objects in a namespace without a result line.
	annotationOmitted = v1alpha1.GroupName + "/omitted-results"
	// propertyOmitted is the number of those of the policy, in its first line.
	propertyOmitted = "omittedResults"
	// propertyOperation is UPDATE for an object that fails as it is, and CREATE for one that
	// fails only if it is created again.
	propertyOperation = "operation"
	// propertyController is the controller of the object.
	propertyController = "controller"
	// propertyGeneration is the generation of the policy.
	propertyGeneration = "generation"
	// The exception of an excepted object, why it exists, and when it ends.
	propertyException, propertyExceptionReason, propertyExceptionEnds = "exception", "exceptionReason", "exceptionEnds"
	// propertyReason is why there is a line about a policy as a whole, as in its condition Audited.
	propertyReason                                      = "reason"
	reasonPending, reasonIncomplete, reasonNotAuditable = "Pending", "Incomplete", "NotAuditable"
	// NativeKind is the source of results of native policies.
	NativeKind = "ValidatingAdmissionPolicy"
	// NativePrefix begins the names of native policies here. No policy has such a name.
	NativePrefix = NativeKind + "/"
)

// sourceOf returns the source and the name of a policy in reports.
func sourceOf(policy string) (source, name string) {
	if name, ok := strings.CutPrefix(policy, NativePrefix); ok {
		return NativeKind, name
	}
	return ReportSource, policy
}

// Report is the content of the reports of one namespace.
type Report struct {
	Source    string // "" is that of stored objects
	Namespace string // "" for that of the cluster
	Summary   Counts
	Skipped   int64 // lines about what is not evaluated
	omitted   int64
	results   []result
}

// result returns a result of a report. Those of all reports together take much memory, so
// each is made when its report is written.
type result func() map[string]any

// Reports returns a report for each namespace with results. That of the cluster has lines about the
// policies that are not evaluated, or not completely.
func (s Snapshot) Reports() []Report {
	byNamespace := map[string]*Report{"": {}}
	byPolicy := func(a, b Pair) int { return cmp.Compare(a.Policy, b.Policy) }
	for _, pair := range slices.SortedFunc(maps.Keys(s.Counts), byPolicy) {
		r := byNamespace[pair.Namespace]
		if r == nil {
			r = &Report{Namespace: pair.Namespace}
			byNamespace[pair.Namespace] = r
		}
		r.addPolicy(pair.Policy, s.Scans[pair.Policy].Subject, s.Counts[pair], s.Lines[pair])
	}
	for _, name := range s.policies() {
		s.addSkipped(byNamespace[""], name)
	}
	var out []Report
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		out = append(out, *byNamespace[namespace])
	}
	return out
}

// policies returns the names of all policies in order.
func (s Snapshot) policies() []string {
	all := slices.Collect(maps.Keys(s.Scans))
	all = slices.AppendSeq(all, maps.Keys(s.Problems))
	all = slices.AppendSeq(all, maps.Keys(s.Pending))
	slices.Sort(all)
	return slices.Compact(all)
}

// addSkipped adds lines that say what the results of a policy do not include.
func (s Snapshot) addSkipped(r *Report, policy string) {
	reason := reasonNotAuditable
	if _, isScanned := s.Scans[policy]; isScanned {
		reason = reasonIncomplete
	}
	for _, why := range s.missing(policy) {
		r.addSkipped(policy, reason, why)
	}
	if why := s.pending(policy); why != "" {
		r.addSkipped(policy, reasonPending, why)
	}
}

// addPolicy adds the results of a generation of a policy.
func (r *Report) addPolicy(policy string, of Subject, c Counts, lines []Line) {
	r.Summary.add(c)
	omitted := c.described() - int64(len(lines))
	r.omitted += omitted
	namespace := r.Namespace
	for i := range lines {
		l := &lines[i]
		properties := map[string]any{
			propertyOperation:  l.Verdict.operation(),
			propertyGeneration: strconv.FormatInt(of.Generation, 10),
		}
		if l.Controller != "" {
			properties[propertyController] = l.Controller
		}
		if x := l.Exception; x != nil {
			properties[propertyException], properties[propertyExceptionReason] = x.String(), truncate.String(x.Reason, maxLineMessage)
			if !x.Expires.IsZero() {
				properties[propertyExceptionEnds] = x.Expires.UTC().Format(time.RFC3339)
			}
		}
		if i == 0 && omitted > 0 {
			properties[propertyOmitted] = strconv.FormatInt(omitted, 10)
		}
		r.results = append(r.results, func() map[string]any { return l.result(policy, namespace, properties) })
	}
}

func (r *Report) addSkipped(policy, reason, why string) {
	r.Skipped++
	source, name := sourceOf(policy)
	r.results = append(r.results, func() map[string]any {
		return map[string]any{
			"source": source, "policy": name, "result": "skip", "scored": false, "message": why,
			"properties": map[string]any{propertyReason: reason},
		}
	})
}

// Add adds a result that is not about one object.
func (r *Report) Add(policy string, v Verdict, message string, properties map[string]any) {
	r.Summary[v]++
	source := cmp.Or(r.Source, ReportSource)
	r.results = append(r.results, func() map[string]any {
		return map[string]any{
			"source": source, "policy": policy, "result": v.result(), "scored": false,
			"message": message, "properties": properties,
		}
	})
}

// result returns the line as a result of a report.
func (l *Line) result(policy, namespace string, properties map[string]any) map[string]any {
	subject := map[string]any{
		"apiVersion": l.Kind.GroupVersion().String(), "kind": l.Kind.Kind, "name": l.Name, "uid": l.UID,
	}
	if namespace != "" && l.Kind.Kind != "Namespace" {
		subject["namespace"] = namespace
	}
	source, name := sourceOf(policy)
	out := map[string]any{
		"source": source, "policy": name, "result": l.Verdict.result(),
		"scored": l.Verdict == Violated, "resources": []any{subject}, "message": l.Message, "properties": properties,
	}
	if l.Rule != "" {
		out["rule"] = l.Rule
	}
	return out
}

// Parts returns the objects of a report. The first part has the summary and the number of
// omitted lines of all parts.
func (r Report) Parts() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var results []any
	size := partOverhead
	end := func() {
		out = append(out, r.part(len(out), results))
		results, size = nil, partOverhead
	}
	for _, newResult := range r.results {
		result := newResult()
		data, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("encoding a result: %w", err)
		}
		if len(results) == maxPartResults || len(results) > 0 && size+len(data)+1 > maxPartBytes {
			end()
		}
		results = append(results, result)
		size += len(data) + 1
	}
	end()
	return out, nil
}

func (r Report) part(index int, results []any) *unstructured.Unstructured {
	source := cmp.Or(r.Source, ReportSource)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": reportVersion, "kind": "Report", "source": source}}
	if r.Namespace == "" {
		u.SetKind("ClusterReport")
	} else {
		u.SetNamespace(r.Namespace)
	}
	u.SetName(partName(source, index))
	u.SetLabels(map[string]string{registration.LabelManagedBy: registration.ManagedBy})
	if len(results) > 0 {
		u.Object["results"] = results
	}
	var summary Counts
	var skipped int64
	if index == 0 {
		summary, skipped = r.Summary, r.Skipped+r.Summary[Excepted]
		if r.omitted > 0 {
			u.SetAnnotations(map[string]string{annotationOmitted: strconv.FormatInt(r.omitted, 10)})
		}
	}
	u.Object["summary"] = map[string]any{
		"pass": summary[Passed], "fail": summary[Violated], "warn": summary[Warned] + summary[ViolatedAnew],
		"error": summary.errors(), "skip": skipped,
	}
	return u
}

// partName returns the name of a part: ostiary, ostiary-2, and so on.
func partName(source string, index int) string {
	if index == 0 {
		return source
	}
	return fmt.Sprintf("%s-%d", source, index+1)
}
