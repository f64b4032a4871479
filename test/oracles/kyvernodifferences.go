package oracles

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// KyvernoDifferences are the intended differences from Kyverno's engine.
func KyvernoDifferences() []Difference {
	return slices.Concat(kyvernoUpdates(), kyvernoTemplates(), []Difference{
		{
			Row: "an element of `foreach` that cannot be evaluated",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Ours.Failed && strings.Contains(d.Case.text(), `"foreach"`)
			},
		},
		{
			Row:  "a mutation with `foreach` over an absent list",
			Note: "stays as it is: Kyverno denies it",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore &&
					strings.Contains(strings.Join(d.Source.Messages, " "), "failed to evaluate list")
			},
		},
		{
			Row: "an empty map in a patch",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject &&
					reflect.DeepEqual(withoutEmptyMaps(served(d.Source).Object), withoutEmptyMaps(served(d.Ours).Object))
			},
		},
		{
			Row:  "`podSecurity`, for an UPDATE of a Pod",
			Note: "an UPDATE of a Pod passes if it changes nothing that the plugin checks again",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.Request.Operation == admissionv1.Update
			},
		},
		{
			Row:  "a validation in CEL that cannot be evaluated, with `failurePolicy: Ignore`",
			Note: "a validation that cannot be evaluated passes",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.Ours.Failed
			},
		},
		{
			Row:  "the place of elements that a patch changes",
			Note: "stay in their place",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject && sameInAnyOrder(served(d.Source).Object, served(d.Ours).Object)
			},
		},
		{
			Row:  "the name of an image that is not valid",
			Note: "an image whose name is not valid",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && strings.Contains(strings.Join(d.Source.Messages, " "), "invalid image")
			},
		},
		{
			Row:  "a wildcard in a list of the request",
			Note: "wildcards and ranges in",
			Shows: func(d *Disagreement) bool {
				return d.Effect != OtherObject && strings.ContainsAny(d.requestText(), "*?")
			},
		},
		{
			Row:  "a list in a text that has escapes",
			Note: "a list in it with escapes fails the evaluation",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Ours.Failed && strings.Contains(d.Case.text()+d.requestText(), `\\`)
			},
		},
	})
}

// kyvernoUpdates are the differences about violations that exist already.
func kyvernoUpdates() []Difference {
	return []Difference{
		{
			Row:  "an UPDATE of an object that already fails",
			Note: "an UPDATE passes if the stored object fails the rule",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Effect == AllowsMore
			},
		},
		{
			Row:  "an UPDATE of an object that already fails, by a rule that is not evaluated alike for all requests",
			Note: "an UPDATE is denied also if the stored object fails the rule",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Effect == DeniesMore
			},
		},
	}
}

// kyvernoTemplates are the differences of rules that are extended to pod templates.
func kyvernoTemplates() []Difference {
	return []Difference{
		{
			Row:  "a DELETE of a workload",
			Note: "DELETE of workloads is not decided",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Delete && d.isAboutWorkload() && d.Effect == AllowsMore
			},
		},
		{
			Row:  "an UPDATE of a workload without a change of its template",
			Note: "an UPDATE that leaves a pod template unchanged is not decided",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.hasSameTemplate()
			},
		},
		{
			Row:  "a DELETE of a workload, by a policy in CEL for DELETE only",
			Note: "pod templates are decided only when they are created or updated",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Delete && d.isAboutWorkload() && d.Effect == AllowsMore
			},
		},
		{
			Row:  "a mutation in CEL of a workload",
			Note: "for workloads, ",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.Effect != DeniesMore && strings.Contains(d.Case.text(), `MutatingPolicy"`)
			},
		},
		{
			Row:  "an UPDATE of a workload with a change of its template",
			Note: "an UPDATE that changes a pod template is decided too",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.Request.Operation == admissionv1.Update && d.Effect != AllowsMore
			},
		},
	}
}

func (d *Disagreement) requestText() string {
	return string(d.Request.Object.Raw) + string(d.Request.OldObject.Raw)
}

func (d *Disagreement) isAboutWorkload() bool { return workloads()[d.Request.Kind.Kind] != "" }

// hasSameTemplate reports whether an UPDATE leaves the template of a workload unchanged.
func (d *Disagreement) hasSameTemplate() bool {
	at := path{"spec", "template"}
	if d.Request.Kind.Kind == "CronJob" {
		at = path{"spec", "jobTemplate", "spec", "template"}
	}
	var current, old object
	return json.Unmarshal(d.Request.Object.Raw, &current) == nil &&
		json.Unmarshal(d.Request.OldObject.Raw, &old) == nil &&
		reflect.DeepEqual(valueAt(current, at), valueAt(old, at))
}

// sameInAnyOrder reports whether two objects differ only in the order of lists.
func sameInAnyOrder(a, b []byte) bool {
	var first, second any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return false
	}
	return reflect.DeepEqual(withSortedLists(first), withSortedLists(second))
}

func withSortedLists(value any) any {
	switch v := value.(type) {
	case object:
		out := object{}
		for key, child := range v {
			out[key] = withSortedLists(child)
		}
		return out
	case list:
		out := list{}
		for _, item := range v {
			out = append(out, withSortedLists(item))
		}
		slices.SortFunc(out, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		return out
	}
	return value
}

// withoutEmptyMaps returns an object without its maps that have no fields.
func withoutEmptyMaps(raw []byte) any {
	var value any
	if json.Unmarshal(raw, &value) != nil {
		return nil
	}
	return pruned(value)
}

func pruned(value any) any {
	switch v := value.(type) {
	case object:
		out := object{}
		for key, child := range v {
			if kept := pruned(child); !reflect.DeepEqual(kept, object{}) {
				out[key] = kept
			}
		}
		return out
	case list:
		out := list{}
		for _, item := range v {
			out = append(out, pruned(item))
		}
		return out
	}
	return value
}
