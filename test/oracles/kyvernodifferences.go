package oracles

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// KyvernoDifferences are the intended differences from Kyverno's engine.
func KyvernoDifferences() []Difference {
	return slices.Concat(
		kyvernoUpdates(), kyvernoTemplates(), kyvernoTemplateFields(), kyvernoErrors(), kyvernoIgnored(), kyvernoTexts(), kyvernoPatches(),
		kyvernoPodSecurity(),
	)
}

// kyvernoErrors are the differences about what cannot be evaluated.
func kyvernoErrors() []Difference {
	return []Difference{
		{
			Row:  "an element of `foreach` whose preconditions cannot be evaluated",
			Note: "whose preconditions cannot be evaluated follows failurePolicy",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Ours.Failed
			},
		},
		{
			Row:  "a mutation with `foreach` over an absent list, or one that fails beside others",
			Note: "stays as it is: Kyverno denies it",
			Shows: func(d *Disagreement) bool {
				return d.Effect != DeniesMore && d.Source.Failed && d.sourceSays("failed to evaluate list")
			},
		},
		{
			Row:  "an operation that a rule does not decide",
			Note: "is not decided: Kyverno denies it",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.Source.Failed && (d.sourceSays(
					"failed to evaluate preconditions", "failed to evaluate list", "failed to load context",
				) || d.Request.Operation == admissionv1.Delete && d.sourceSays(
					"patch", "failed to mutate", "variable substitution", "failed to evaluate policy",
				))
			},
		},
		{
			Row:  "an exception from a rule whose preconditions cannot be evaluated",
			Note: "an exempt object passes: Kyverno denies it if it cannot evaluate preconditions",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.sourceSays("failed to evaluate preconditions")
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
			Row:   "`oldObject` of a CREATE, or `object` of a DELETE, in CEL",
			Note:  "Kyverno has an empty object",
			Shows: readsAbsentObject,
		},
	}
}

// readsAbsentObject reports whether a disagreement comes from an object that is empty in Kyverno and null in a result. With
// failurePolicy Ignore, the source returns the object as it is.
func readsAbsentObject(d *Disagreement) bool {
	if d.Request.Operation == admissionv1.Update {
		return false
	}
	unchanged := d.Effect == OtherObject && d.Source.Failed && sameJSON(d.Source.Object, d.Request.Object.Raw)
	return (d.Effect == AllowsMore || unchanged) && d.sourceSays("no such key") ||
		d.Effect == DeniesMore && d.Case.ignoresConditionsAboutOldObject()
}

// kyvernoIgnored are the differences of policies with the failurePolicy Ignore.
func kyvernoIgnored() []Difference {
	return []Difference{
		{
			Row:  "a mutation with `foreach` over an absent list, or one that fails beside others",
			Note: "if a mutation fails, the others of the policy are applied",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject && d.Source.Failed && sameJSON(d.Source.Object, d.Request.Object.Raw)
			},
		},
		{
			Row:  "a pattern that fails although the field of an anchor is absent, with `failurePolicy: Ignore`",
			Note: "the field of one of its anchors is absent",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Source.Failed && !d.oursSays("resulted in error") && d.sourceSays("execution error")
			},
		},
	}
}

// kyvernoTexts are the differences about texts and lists of the request.
func kyvernoTexts() []Difference {
	return []Difference{
		{
			Row:  "the name of an image that is not valid",
			Note: "an image whose name is not valid",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.sourceSays("invalid image")
			},
		},
		{
			Row:  "a wildcard in a list of the request",
			Note: "wildcards and ranges in",
			Shows: func(d *Disagreement) bool {
				return d.Effect != OtherObject
			},
			Without: strings.NewReplacer("*", "x", "?", "x").Replace,
		},
		{
			Row:  "a wildcard in a list of the request",
			Note: "compared as they are, without wildcards",
			Shows: func(d *Disagreement) bool {
				return d.Effect != OtherObject
			},
			Without: strings.NewReplacer("*", "x", "?", "x").Replace,
		},
		{
			Row:     "a number of seconds above 9,223,372,036 that is compared with a duration",
			Note:    "above 9,223,372,036 seconds is compared as it is",
			Shows:   func(*Disagreement) bool { return true },
			Without: withoutLargeNumbers,
		},
		{
			Row:  "a list in a text that has escapes",
			Note: "a list in it with escapes fails the evaluation",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Ours.Failed && d.oursSays("index out of bounds")
			},
		},
	}
}

// kyvernoPatches are the differences of changed objects.
func kyvernoPatches() []Difference {
	return []Difference{
		{
			Row: "an empty map in a patch",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject &&
					reflect.DeepEqual(withoutEmptyMaps(served(d.Source).Object), withoutEmptyMaps(served(d.Ours).Object))
			},
		},
		{
			Row:  "a field that is added with `+()` to the elements of a list",
			Note: "Kyverno decides by the first one",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject && strings.Contains(d.Case.text(), `"+(`)
			},
		},
		{
			Row:  "the place of elements that a patch changes",
			Note: "stay in their place",
			Shows: func(d *Disagreement) bool {
				return d.Effect == OtherObject &&
					sameInAnyOrder(served(d.Source).Object, served(d.Ours).Object, d.Case.indexedFields())
			},
		},
	}
}

// kyvernoPodSecurity are the differences of rules with podSecurity.
func kyvernoPodSecurity() []Difference {
	return []Difference{
		{
			Row:  "`podSecurity`, for an UPDATE of a Pod",
			Note: "an UPDATE of a Pod passes if it changes nothing that the plugin checks again",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && d.Request.Operation == admissionv1.Update && d.sourceSays("violates PodSecurity")
			},
		},
		{
			Row:  "`podSecurity`, for an UPDATE of a Pod",
			Note: "another UPDATE is denied also if the stored object fails the level",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Request.Operation == admissionv1.Update && d.oursSays("violates PodSecurity")
			},
		},
	}
}

// kyvernoUpdates are the differences about violations that exist already.
func kyvernoUpdates() []Difference {
	return []Difference{
		{
			Row:  "an UPDATE of an object that already fails",
			Note: "an UPDATE passes if the stored object fails the rule",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Effect == AllowsMore && d.oursSays(ratcheted)
			},
		},
		{
			Row:  "an UPDATE of an object that already fails, by a rule that is not evaluated alike for all requests",
			Note: "an UPDATE is denied also if the stored object fails the rule",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Effect == DeniesMore && !d.Ours.Failed && d.storedFails()
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
				return d.isAboutWorkload() && d.hasSameTemplate() && d.Effect != DeniesMore
			},
		},
		{
			Row:  "a DELETE of a workload",
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
	}
}

// kyvernoTemplateFields are the differences in what expressions about pod templates read.
func kyvernoTemplateFields() []Difference {
	return []Difference{
		{
			Row:  "metadata of a workload, by a rule that is extended to it",
			Note: "is that of the Pod of the template",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && (d.Effect != OtherObject || d.Source.Failed)
			},
		},
		{
			Row:  "`request.operation` and `oldObject` of a workload, by a rule that is extended to it",
			Note: "the oldObject of pod templates is null",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.Request.Operation == admissionv1.Update && !d.hasSameTemplate()
			},
		},
		{
			Row:  "`request.operation` and `oldObject` of a workload, by a rule that is extended to it",
			Note: "the request.operation of pod templates is",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.Request.Operation == admissionv1.Update && !d.hasSameTemplate()
			},
		},
		{
			Row:  "a new or changed template of a workload, by a rule for one operation",
			Note: "is decided too",
			Shows: func(d *Disagreement) bool {
				return d.isAboutWorkload() && d.Request.Operation != admissionv1.Delete && !d.hasSameTemplate() &&
					d.Effect != AllowsMore
			},
		},
	}
}

// sameInAnyOrder reports whether two objects differ only in the order of lists, in empty maps, and in some fields of
// elements.
func sameInAnyOrder(a, b []byte, except []string) bool {
	first, second := withoutEmptyMaps(a), withoutEmptyMaps(b)
	return first != nil && second != nil && reflect.DeepEqual(withSortedLists(first, except), withSortedLists(second, except))
}

// withSortedLists returns a value with its lists sorted, whose elements lack some fields.
func withSortedLists(value any, except []string) any {
	switch v := value.(type) {
	case object:
		out := object{}
		for key, child := range v {
			out[key] = withSortedLists(child, except)
		}
		return out
	case list:
		out := list{}
		for _, item := range v {
			sorted := withSortedLists(item, except)
			for _, field := range except {
				delete(asObject(sorted), field)
			}
			out = append(out, sorted)
		}
		slices.SortFunc(out, func(x, y any) int { return strings.Compare(fmt.Sprint(x), fmt.Sprint(y)) })
		return out
	}
	return value
}

// ignoresConditionsAboutOldObject reports whether a policy does not apply if the evaluation of a match condition fails,
// for which the source has no message, and whether one of its match conditions reads the old object.
func (c *Case) ignoresConditionsAboutOldObject() bool {
	return slices.ContainsFunc(c.Objects, func(o object) bool {
		spec := asObject(o["spec"])
		conditions, _ := spec["matchConditions"].(list)
		return spec["failurePolicy"] == "Ignore" && slices.ContainsFunc(conditions, func(condition any) bool {
			expression, _ := asObject(condition)["expression"].(string)
			return strings.Contains(expression, "oldObject")
		})
	})
}

// indexedPath is the path of a JSON patch that names an element by its index.
var indexedPath = regexp.MustCompile(`path: /[a-zA-Z/]+/\d+/(\w+)`)

// indexedFields returns the fields of elements that JSON patches name by their index. A patch before them can change
// which element that is.
func (c *Case) indexedFields() (out []string) {
	for _, found := range indexedPath.FindAllStringSubmatch(c.text(), -1) {
		out = append(out, found[1])
	}
	return out
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
