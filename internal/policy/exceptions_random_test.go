package policy

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// randomExceptions writes cases at random, and decides them without the code of exceptions.
type randomExceptions struct{ *rand.Rand }

func oneOf[T any](r randomExceptions, from ...T) T { return from[r.IntN(len(from))] }

func (r randomExceptions) labels() map[string]string {
	out := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if r.IntN(3) > 0 {
			out[key] = oneOf(r, "web", "api")
		}
	}
	return out
}

func (r randomExceptions) match() v1alpha1.ExceptionMatch {
	m := v1alpha1.ExceptionMatch{
		Group:     oneOf(r, "", "", "", "", "", "apps"),
		Resources: []string{oneOf(r, "pods", "pods", "pods", "pods", "pods/ephemeralcontainers", "deployments")},
	}
	if r.IntN(3) == 0 {
		m.Names = []string{oneOf(r, "web", "w*", "*b", "w*b", "web*web", "api", "*", "we")}
	}
	if r.IntN(3) == 0 {
		m.ObjectSelector = &metav1.LabelSelector{MatchLabels: r.labels()}
	}
	return m
}

// conditions are conditions with what they decide about the labels of an object.
func conditions() map[string]func(map[string]string) bool {
	return map[string]func(map[string]string) bool{
		"":                                    func(map[string]string) bool { return true },
		"true":                                func(map[string]string) bool { return true },
		"object.metadata.labels.app == 'web'": func(l map[string]string) bool { return l["app"] == "web" },
		"object.metadata.labels.app != 'web'": func(l map[string]string) bool { return l["app"] == "api" }, // an error without it
		"!('tier' in object.metadata.labels)": func(l map[string]string) bool { return l["tier"] == "" },
		"size(object.spec.containers) > 1":    func(map[string]string) bool { return false },
		"request.namespace == 'shop'":         func(map[string]string) bool { return false }, // it does not compile
		"object.spec.containers.all(c, c.name=='web')": func(map[string]string) bool { return true },
	}
}

func (r randomExceptions) exception(name string) exceptioncases.Exception {
	x := exceptioncases.Exception{Name: name, Created: new(-r.IntN(5))}
	x.Namespace = new(oneOf(r, "shop", "shop", "shop", "shop", "shop", "shop", "bank", ""))
	if r.IntN(4) > 0 {
		x.Ends = new(r.IntN(7) - 1)
	}
	x.PolicyName = oneOf(r, "p", "p", "p", "p", "p", "p", "q")
	x.Validations = oneOf(r, []string{"*"}, []string{"has-team"}, []string{"has-team", "has-owner"}, []string{"has-owner"})
	for range 1 + r.IntN(2) {
		x.Match = append(x.Match, r.match())
	}
	all := slices.Sorted(func(yield func(string) bool) {
		for text := range conditions() {
			if !yield(text) {
				return
			}
		}
	})
	if r.IntN(2) == 0 {
		x.Condition = oneOf(r, all...)
	}
	return x
}

// covers decides whether an exception lets the case pass, in the words of the API.
func covers(c *exceptioncases.Case, x *exceptioncases.Exception, longest int) bool {
	if *x.Namespace != "shop" || x.PolicyName != "p" || !slices.Contains(x.Validations, "*") && !slices.Contains(x.Validations, "has-team") {
		return false
	}
	if longest > 0 && (x.Ends == nil || *x.Ends-*x.Created > longest) || x.Ends != nil && *x.Ends <= 0 {
		return false
	}
	resource := "pods"
	if c.Subresource != "" {
		resource += "/" + c.Subresource
	}
	selected := slices.ContainsFunc(x.Match, func(m v1alpha1.ExceptionMatch) bool {
		if m.Group != "" || m.Resources[0] != resource {
			return false
		}
		if len(m.Names) > 0 && !regexp.MustCompile("^"+strings.ReplaceAll(m.Names[0], "*", ".*")+"$").MatchString("web") {
			return false
		}
		if m.ObjectSelector != nil {
			for key, value := range m.ObjectSelector.MatchLabels {
				if c.Labels[key] != value {
					return false
				}
			}
		}
		return true
	})
	return selected && conditions()[x.Condition](c.Labels)
}

// TestRandomExceptions compares decisions about random exceptions with those of an independent
// matcher.
func TestRandomExceptions(t *testing.T) {
	r := randomExceptions{rand.New(rand.NewPCG(*seed, 39))}
	counts := map[Decision]int{}
	for range *randomPolicies * 5 {
		c := exceptioncases.Case{Labels: r.labels(), OldLabels: r.labels(), Operation: oneOf(r, "CREATE", "UPDATE")}
		if r.IntN(6) == 0 {
			c.Operation, c.Subresource = "UPDATE", "ephemeralcontainers"
		}
		longest := max(0, r.IntN(12)-5)
		if longest > 0 {
			c.Changes = map[string]any{"exceptions": map[string]any{"maxDurationSeconds": longest}}
		}
		var given []exceptioncases.Exception
		for i := range 1 + r.IntN(4) {
			given = append(given, r.exception(string(rune('a'+i))))
		}
		c.Given = &given
		want, by := DecisionDeny, ""
		slices.SortStableFunc(given, func(a, b exceptioncases.Exception) int { return *a.Created - *b.Created })
		for i := range given {
			if want == DecisionDeny && covers(&c, &given[i], longest) {
				want, by = DecisionExcepted, "p has-team by "+exceptions.Key{Namespace: "shop", Name: given[i].Name}.String()
			}
		}
		counts[want]++
		x := newExceptionCase(t, &c)
		resp := evaluate(t, x.group, x.raw, x.host)
		if got := x.decisions["p"]; got != want || by != "" && resp.AuditAnnotations[auditExceptedKey] != by {
			t.Fatalf("the decision is %q %q, want %q %q; maximum %d, request %s %s, exceptions %+v",
				got, resp.AuditAnnotations[auditExceptedKey], want, by, longest, c.Operation, x.raw.Object.Raw, given)
		}
	}
	if counts[DecisionExcepted] < 50 || counts[DecisionDeny] < 50 {
		t.Errorf("the cases are too much alike: %v", counts)
	}
}
