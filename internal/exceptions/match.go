package exceptions

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Object is what exceptions are compared with. Its functions are called only if everything
// before matches.
type Object struct {
	// Group and Resource are those that the policy sees; a subresource is named, as in
	// "pods/exec".
	Group, Resource string
	// Name is empty for an object that has none yet.
	Name string
	// Labels returns false if they are not known.
	Labels func() (labels.Set, bool)
	// Holds evaluates a condition. An error means that it does not.
	Holds func(e *Entry) (bool, error)
}

// Mismatch is why an exception does not cover an object; "" if it does.
type Mismatch string

// The mismatches, from the first to the last part that is compared.
const (
	OtherResource  Mismatch = "no entry of spec.match has the resource"
	OtherName      Mismatch = "no entry of spec.match has the name"
	OtherLabels    Mismatch = "no entry of spec.match selects the labels"
	ConditionFalse Mismatch = "spec.condition is false"
	ConditionError Mismatch = "spec.condition failed"
)

// Covers compares an exception with an object. The error is that of the condition.
func (e *Entry) Covers(o *Object) (Mismatch, error) {
	if mismatch := e.selects(o); mismatch != "" {
		return mismatch, nil
	}
	if e.Condition == "" {
		return "", nil
	}
	switch holds, err := o.Holds(e); {
	case err != nil:
		return ConditionError, err
	case !holds:
		return ConditionFalse, nil
	}
	return "", nil
}

// selects returns the mismatch of the entry that matches the most.
func (e *Entry) selects(o *Object) Mismatch {
	nearest := OtherResource
	for i := range e.matches {
		switch m := &e.matches[i]; {
		case m.group != o.Group || !slices.Contains(m.resources, o.Resource):
		case !m.hasName(o.Name):
			if nearest == OtherResource {
				nearest = OtherName
			}
		case !m.hasLabels(o):
			nearest = OtherLabels
		default:
			return ""
		}
	}
	return nearest
}

func (m *match) hasName(name string) bool {
	if len(m.names) == 0 {
		return true
	}
	return name != "" && slices.ContainsFunc(m.names, func(pattern string) bool { return nameMatches(pattern, name) })
}

// nameMatches compares a name with one that can have a "*" for any text.
func nameMatches(pattern, name string) bool {
	before, after, wildcard := strings.Cut(pattern, "*")
	if !wildcard {
		return pattern == name
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

func (m *match) hasLabels(o *Object) bool {
	if m.selector == nil {
		return true
	}
	set, known := o.Labels()
	return known && m.selector.Matches(set)
}

// MayMatch reports whether a rule or a pod template of a policy can be about a resource. The rules of
// a plugin are not known here, and can be about any.
func MayMatch(spec *v1alpha1.WebhookPolicySpec, group, resource string) bool {
	if spec.Plugin != nil || spec.MatchConstraints == nil {
		return true
	}
	has := func(list []string, wanted ...string) bool {
		return slices.ContainsFunc(list, func(entry string) bool { return slices.Contains(wanted, entry) })
	}
	names := []string{"*", "*/*", resource}
	if name, sub, isSubresource := strings.Cut(resource, "/"); isSubresource {
		names = []string{"*/*", name + "/*", "*/" + sub, resource}
	}
	matches := slices.ContainsFunc(spec.MatchConstraints.ResourceRules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return has(r.APIGroups, "*", group) && has(r.Resources, names...)
	})
	return matches || slices.ContainsFunc(spec.TemplateKinds(), func(k v1alpha1.PodTemplateKind) bool {
		return k.Group == group && k.Resource == resource
	})
}
