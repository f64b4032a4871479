package conformance

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// agree makes our answer the native one.
func (c *comparison) agree() bool {
	same := *c.native
	c.ours = &same
	return true
}

// concede makes the native answer ours.
func (c *comparison) concede() bool {
	same := *c.ours
	c.native = &same
	return true
}

// anyPolicy reports whether a policy of the case is so.
func (p *placed) anyPolicy(is func(*v1alpha1.WebhookPolicy) bool) bool {
	return slices.ContainsFunc(p.policies, is)
}

// brokenOff: a JSONPatch of this form makes the API server panic.
func brokenOff(form string) func(*comparison) bool {
	expression := regexp.MustCompile(form)
	return func(c *comparison) bool {
		if c.native.Code != 0 || c.native.Message != brokenAnswer || c.ours.Code == 0 {
			return false
		}
		return c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
			return slices.ContainsFunc(p.Spec.Mutations, func(m admissionregistrationv1.Mutation) bool {
				return m.JSONPatch != nil && expression.MatchString(m.JSONPatch.Expression)
			})
		}) && c.concede()
	}
}

// duplicates: the native engine before 1.35 cannot apply to an object with duplicates in a
// list, which the API server stores.
func duplicates(c *comparison) bool {
	return c.ours.Code < http.StatusBadRequest && strings.Contains(c.native.Message, ": duplicate entries for key ") && c.concede()
}

// invalidResults: the native engine answers 500 without the policy's name and
// whatever failurePolicy says; Ostiary takes it for an error of the mutation.
func invalidResults(c *comparison) bool {
	if c.native.Code != http.StatusInternalServerError || c.native.Reason != "InternalError" ||
		!strings.HasPrefix(c.native.Message, "Internal error occurred: ") {
		return false
	}
	refused := c.ours.Code == http.StatusForbidden && c.ours.Reason == "Invalid" && strings.Contains(c.ours.Message,
		": the result is no valid ")
	ignored := c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
		return p.Spec.Mutates() && ignores(p)
	})
	return (refused || ignored) && c.agree()
}

// otherVersions: the native engine does not convert a built-in object back that
// a mutation was given in another version.
func otherVersions(c *comparison) bool {
	return slices.ContainsFunc(c.native.Causes, func(s string) bool {
		return strings.Contains(s, " denied request: converting (") && strings.HasSuffix(s, ": unknown conversion")
	}) && c.agree()
}

var noType = regexp.MustCompile(`failed to convert patch object to typed object: no corresponding type for \S+, Kind=(Scale|Eviction)$`)

// subresourceKinds: the native engine looks for the schema of Scale and Eviction
// in the group of the kind, and it is published with the resource. With
// failurePolicy Ignore it is not reported, and the object stays as it came.
func subresourceKinds(c *comparison) bool {
	if slices.ContainsFunc(c.native.Causes, noType.MatchString) {
		return c.agree()
	}
	if !c.request.of("/scale") && !c.request.of("/eviction") || c.native.YAML() == c.ours.YAML() {
		return false
	}
	return c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
		return ignores(p) && applies(p) && (p.Spec.Validates() || c.native.Code == c.ours.Code)
	}) && c.agree()
}

var typedErrors = regexp.MustCompile(`( object to typed object: )(?:errors:(?:\n +\.[^\n]*)+|\.[^\n]*)`)

// undeclaredFields: structured-merge-diff looks at the fields of an object in
// the order of a Go map, and at no more of them after one that is not declared.
// Which errors an engine tells beside that is chance.
func undeclaredFields(c *comparison) bool {
	found := false
	shorten := func(s string) string {
		return typedErrors.ReplaceAllStringFunc(s, func(errs string) string {
			if !strings.Contains(errs, ": field not declared in schema") {
				return errs
			}
			found = true
			return typedErrors.ReplaceAllString(errs, "${1}a field that is not declared")
		})
	}
	c.native.texts(shorten)
	c.ours.texts(shorten)
	return found
}

// customScales: the native engine cannot convert the mutated Scale of a custom
// resource. With failurePolicy Ignore it is not reported.
func customScales(c *comparison) bool {
	if slices.ContainsFunc(c.native.Causes, func(s string) bool {
		return strings.HasSuffix(s, "request to convert CR to an invalid group/version: autoscaling/v1")
	}) {
		return c.agree()
	}
	return c.request.of("/scale") && strings.Contains(c.request.Path, "/conformance.test/") && c.native.YAML() != c.ours.YAML() &&
		c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
			return p.Spec.Mutates() && ignores(p) && (p.Spec.Validates() || c.native.Code == c.ours.Code)
		}) && c.agree()
}

// of reports whether a request is of a path that ends so.
func (r Request) of(end string) bool {
	path, _, _ := strings.Cut(r.Path, "?")
	return strings.HasSuffix(path, end)
}

func applies(p *v1alpha1.WebhookPolicy) bool {
	return slices.ContainsFunc(p.Spec.Mutations, func(m admissionregistrationv1.Mutation) bool {
		return m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration
	})
}

var kindOfParams = regexp.MustCompile(`params\.(kind|apiVersion)\b`)

// kindsOfParams: to mutations, params of a built-in kind have neither
// apiVersion nor kind. With failurePolicy Ignore it is not reported.
func kindsOfParams(c *comparison) bool {
	said := slices.ContainsFunc(c.native.Causes, func(s string) bool {
		return strings.HasSuffix(s, "no such key: kind") || strings.HasSuffix(s, "no such key: apiVersion")
	})
	return c.native.YAML() != c.ours.YAML() && c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
		return p.Spec.Mutates() && p.Spec.ParamKind != nil && kindOfParams.MatchString(toYAML(p.Spec)) && (said || ignores(p))
	}) && c.agree()
}

func ignores(p *v1alpha1.WebhookPolicy) bool {
	return p.Spec.EffectiveFailurePolicy() == admissionregistrationv1.Ignore
}

// defaultsBetween: the native engine fills in defaults after each mutation, the
// API server once, after those of one call. Only a case that is made to show it
// may: what a mutation makes of the defaults is unknown.
func defaultsBetween(c *comparison) bool {
	return slices.Contains(c.of.Differs, "defaults-between") && c.native.YAML() != c.ours.YAML() && c.agree()
}

// unknownParamKinds: Ostiary's message contains a fix.
func unknownParamKinds(c *comparison) bool {
	const native, ours = " denied request: failed to configure policy: failed to find resource referenced by paramKind: ", " denied request: failed to configure policy: the API server has no kind "
	if !strings.Contains(c.native.Message, native) || !strings.Contains(c.ours.Message, ours) || c.native.Code != c.ours.Code {
		return false
	}
	c.ours.Message, c.ours.Causes = c.native.Message, slices.Clone(c.native.Causes)
	return true
}

// reinvocations: the native engine invokes a policy once more although nothing
// but itself has changed the object. Only a case that is made to show it may:
// what else a second run does is unknown.
func reinvocations(c *comparison) bool {
	return slices.Contains(c.of.Differs, "reinvocation") && c.native.Code == c.ours.Code && c.native.YAML() != c.ours.YAML() &&
		c.of.anyPolicy(func(p *v1alpha1.WebhookPolicy) bool {
			return p.Spec.EffectiveReinvocationPolicy() == admissionregistrationv1.IfNeededReinvocationPolicy
		}) && c.agree()
}

var mutationError = regexp.MustCompile(`(?:^|\n)spec\.mutations\[\d+\]: `)

// mutationErrors: Ostiary says which mutation failed, and says all in the
// message. The causes are the same.
func mutationErrors(c *comparison) bool {
	found := false
	var causes []string
	for _, cause := range c.ours.Causes {
		before, message, ok := strings.Cut(cause, " denied request: ")
		parts := mutationError.Split(message, -1)
		if !ok || len(parts) < 2 || parts[0] != "" {
			causes = append(causes, cause)
			continue
		}
		found = true
		for _, part := range parts[1:] {
			causes = append(causes, before+" denied request: "+part)
		}
	}
	slices.Sort(causes)
	if !found && len(c.native.Causes) < 2 || !sets.New(causes...).Has(c.native.Message) {
		return false
	}
	c.ours.Causes, c.ours.Message = causes, c.native.Message
	return true
}
