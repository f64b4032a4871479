package offline

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/nearest"
)

// unknownKind returns the error about a kind that is not served, with the kind that its
// author probably means.
func (a *APIs) unknownKind(kind schema.GroupVersionKind) error {
	hint := ": add its CustomResourceDefinition to the files, or correct apiVersion and kind"
	if similar := nearest.Name(kind.Kind, a.kindsIn(kind.GroupVersion())); similar != "" {
		hint = fmt.Sprintf(", did you mean kind: %s?", similar)
	}
	var others []string
	for gv := range a.Lists() {
		for served := range a.kindsIn(gv) {
			if served == kind.Kind && !slices.Contains(others, gv.String()) {
				others = append(others, gv.String())
			}
		}
	}
	if slices.Sort(others); len(others) > 0 {
		hint = fmt.Sprintf(", did you mean apiVersion: %s?", strings.Join(others, " or "))
	}
	return fmt.Errorf("the kind %s in %s is not known%s", kind.Kind, kind.GroupVersion(), hint)
}

// kindsIn returns the kinds of the resources of a group version.
func (a *APIs) kindsIn(gv schema.GroupVersion) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, r := range a.Lists()[gv] {
			if !strings.Contains(r.Name, "/") && !yield(r.Kind) {
				return
			}
		}
	}
}

// NeverMatches reports whether no policy can match the objects of a kind although the kind is
// not known: its version is not known either, and no rule names its group.
func (e *Engine) NeverMatches(kind schema.GroupVersionKind) bool {
	_, known := e.APIs.Lists()[kind.GroupVersion()]
	return !known && !e.NamesGroup(kind.Group)
}

// NamesGroup reports whether a rule of a policy names an API group, or all of them.
func (e *Engine) NamesGroup(group string) bool {
	for _, p := range e.policies {
		if p.Spec.MatchConstraints != nil && slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, group)
		}) {
			return true
		}
	}
	return false
}
