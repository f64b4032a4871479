package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
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
	reportSource  = "ostiary"
	// annotationOmitted is the number of objects in a namespace without a result line.
	annotationOmitted = v1alpha1.GroupName + "/omitted-results"
	// propertyOmitted is the number of those of the policy, in its first line.
	propertyOmitted = "omittedResults"
)

// report is the content of the reports of one namespace.
type report struct {
	source    string // "" is that of stored objects
	namespace string // "" for that of the cluster
	summary   counts
	skipped   int64 // policies that are not evaluated
	omitted   int64
	results   []result
}

// result returns a result of a report. Those of all reports together take much memory, so
// each is made when its report is written.
type result func() map[string]any

// reports returns a report for each namespace with results. That of the cluster has a line
// for each policy that is not evaluated.
func (r *results) reports() []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	byNamespace := map[string]*report{"": {}}
	for _, key := range slices.SortedFunc(maps.Keys(r.counts), func(a, b pairKey) int { return cmp.Compare(a.policy, b.policy) }) {
		of := byNamespace[key.namespace]
		if of == nil {
			of = &report{namespace: key.namespace}
			byNamespace[key.namespace] = of
		}
		of.add(key.policy, *r.counts[key], r.lines[key])
	}
	for _, name := range slices.Sorted(maps.Keys(r.problems)) {
		cluster := byNamespace[""]
		cluster.skipped++
		source, policy := sourceOf(name)
		message := r.problems[name]
		cluster.results = append(cluster.results, func() map[string]any {
			return map[string]any{"source": source, "policy": policy, "result": "skip", "scored": false, "message": message}
		})
	}
	var out []report
	for _, name := range slices.Sorted(maps.Keys(byNamespace)) {
		out = append(out, *byNamespace[name])
	}
	return out
}

// add adds the results of a policy.
func (p *report) add(policy string, c counts, lines []line) {
	p.summary.add(c)
	omitted := c.lines() - int64(len(lines))
	p.omitted += omitted
	namespace := p.namespace
	for i, l := range lines { // copies: the lines of later scans replace these
		var properties map[string]any
		if i == 0 && omitted > 0 {
			properties = map[string]any{propertyOmitted: strconv.FormatInt(omitted, 10)}
		}
		p.results = append(p.results, func() map[string]any { return l.result(policy, namespace, properties) })
	}
}

// result returns the line as a result of a report.
func (l *line) result(policy, namespace string, properties map[string]any) map[string]any {
	subject := map[string]any{"apiVersion": l.kind.GroupVersion().String(), "kind": l.kind.Kind, "name": l.name, "uid": l.uid}
	if namespace != "" && l.kind.Kind != "Namespace" {
		subject["namespace"] = namespace
	}
	source, name := sourceOf(policy)
	out := map[string]any{
		"source": source, "policy": name, "result": l.verdict.result(),
		"scored": l.verdict == fail, "resources": []any{subject}, "message": l.message,
	}
	if l.rule != "" {
		out["rule"] = l.rule
	}
	if len(properties) > 0 {
		out["properties"] = properties
	}
	return out
}

// result returns the verdict as in reports.
func (v verdict) result() string {
	return [verdicts]string{pass: "pass", fail: "fail", warn: "warn", failed: "error"}[v]
}

// parts returns the objects of a report. The first part has the summary and the number of
// omitted lines of all parts.
func (p report) parts() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var results []any
	size := partOverhead
	end := func() {
		out = append(out, p.part(len(out), results))
		results, size = nil, partOverhead
	}
	for _, of := range p.results {
		result := of()
		data, err := json.Marshal(result)
		if err != nil {
			return nil, fmt.Errorf("encoding a result: %w", err)
		}
		if len(results) == maxPartResults || len(results) > 0 && size+len(data)+1 > maxPartBytes {
			end()
		}
		results, size = append(results, result), size+len(data)+1
	}
	end()
	return out, nil
}

func (p report) part(index int, results []any) *unstructured.Unstructured {
	source := cmp.Or(p.source, reportSource)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": reportVersion, "kind": "Report", "source": source}}
	if p.namespace == "" {
		u.SetKind("ClusterReport")
	} else {
		u.SetNamespace(p.namespace)
	}
	u.SetName(partName(source, index))
	u.SetLabels(map[string]string{registration.LabelManagedBy: registration.ManagedBy})
	if len(results) > 0 {
		u.Object["results"] = results
	}
	summary := map[string]any{"pass": int64(0), "fail": int64(0), "warn": int64(0), "error": int64(0), "skip": int64(0)}
	if index == 0 {
		summary = map[string]any{"pass": p.summary[pass], "fail": p.summary[fail], "warn": p.summary[warn], "error": p.summary[failed], "skip": p.skipped}
		if p.omitted > 0 {
			u.SetAnnotations(map[string]string{annotationOmitted: strconv.FormatInt(p.omitted, 10)})
		}
	}
	u.Object["summary"] = summary
	return u
}

// partName returns the name of a part: ostiary, ostiary-2, and so on.
func partName(source string, index int) string {
	if index == 0 {
		return source
	}
	return fmt.Sprintf("%s-%d", source, index+1)
}
