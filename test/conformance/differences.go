package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// difference is one that is intended.
type difference struct {
	// name is what a case says that has to show it.
	name string
	// row is the first column of its row in docs/migration/differences.md.
	row string
	// versions are those of Kubernetes in which it occurs.
	versions versions
	// refusal reports whether it lies in what an engine, "native" or "ours",
	// refuses to install and the other does not.
	refusal func(p *placed, engine, message string) bool
	// normalise takes exactly this difference out of two answers, and reports
	// whether it was there. It is nil where no request of this suite can show
	// the difference: then test is the one that pins it.
	normalise func(*comparison) bool
	test      string
}

// comparison is two answers to one request, as far as they have been normalised.
type comparison struct {
	of           *placed
	request      Request
	native, ours *Answer
}

// versions are minor versions of Kubernetes; the zero value is all of them.
type versions struct{ from, before int }

func (v versions) has(minor int) bool { return minor >= v.from && (v.before == 0 || minor < v.before) }

// String is the column of docs/migration/differences.md.
func (v versions) String() string {
	switch {
	case v.before > 0:
		return fmt.Sprintf("before 1.%d", v.before)
	case v.from > 0:
		return fmt.Sprintf("from 1.%d", v.from)
	}
	return "all"
}

// differencesOf are the known differences of a minor version.
func differencesOf(minor int) []difference {
	return slices.DeleteFunc(knownDifferences(), func(d difference) bool { return !d.versions.has(minor) })
}

// knownDifferences are all that are intended, in the order in which they are
// taken out.
func knownDifferences() []difference {
	before35, before37, from37 := versions{before: 35}, versions{before: 37}, versions{from: 37}
	return []difference{
		{name: "frame", row: "prefix of an error", normalise: frames},
		{name: "object-of-warnings", row: "the object of a warning", normalise: objectsOfWarnings},
		{name: "audit-keys", row: "audit annotation", normalise: auditKeys},
		{name: "webhook-annotations", row: "audit annotations of webhooks", normalise: webhookAnnotations},
		{name: "unnamed-binding", row: "a policy without bindings", normalise: unnamedBinding},
		{name: "broken-off", row: "a JSONPatch whose value is a list of objects", versions: before37, normalise: brokenOff(`value: \[Object\.`)},
		{name: "broken-off-null", row: "a JSONPatch that tests a list with null", normalise: brokenOff(`op: "test", .*value: \[.*dyn\(null\)`)},
		{name: "duplicates", row: "`ApplyConfiguration` for an object with duplicates in a list", versions: before35, normalise: duplicates},
		{name: "invalid-result", row: "a mutation whose result does not fit the kind", normalise: invalidResults},
		{name: "other-version", row: "mutating a built-in kind in another version", normalise: otherVersions},
		{name: "reinvocation", row: "reinvocation with `IfNeeded`", normalise: reinvocations},
		{name: "subresource-kinds", row: "`ApplyConfiguration` for a `Scale` or `Eviction`", normalise: subresourceKinds},
		{name: "custom-scale", row: "mutating the `Scale` of a custom resource", normalise: customScales},
		{name: "kind-of-params", row: "`apiVersion` and `kind` of params, in mutations", normalise: kindsOfParams},
		{name: "defaults-between", row: "defaults between mutations", normalise: defaultsBetween},
		{name: "exempt-namespaces", row: "exempt namespaces", normalise: exemptNamespaces},
		{name: "critical-resources", row: "critical resources", normalise: criticalResources},
		{name: "unknown-param-kind", row: "a `paramKind` that does not exist", normalise: unknownParamKinds},
		{name: "undeclared-fields", row: "errors next to an undeclared field", normalise: undeclaredFields},
		{name: "mutation-errors", row: "errors of mutations", normalise: mutationErrors},
		{name: "several-denials", row: "several denials", normalise: severalDenials},
		{name: "many-audited", row: "more than 50 failures in the audit log", normalise: manyAudited},
		{name: "several-audited", row: "failures of several bindings in the audit log", versions: before37, normalise: severalAudited},
		{name: "variables-in-match-conditions", row: "variables in `matchConditions`", refusal: variablesInConditions},
		{name: "list-functions", row: "`lists.range`, `first`, `sort` and other functions of lists", versions: before35, refusal: listFunctions},
		{name: "reason-unauthorized", row: "reason `Unauthorized`", refusal: reasonUnauthorized},
		{name: "identity", row: "a mutation of the name or the namespace", test: "TestMutationsKeepTheIdentity"},
		{name: "long-annotations", row: "audit annotations over 64 KiB", test: "TestLongAnswersDiffer"},
		{name: "long-warnings", row: "warnings over 4 KiB", test: "TestLongAnswersDiffer"},
		{name: "unknown-schema", row: "a mutation of a kind without a known schema", test: "TestSchemaOfANewKindDiffers"},
		{name: "stale-params", row: "params of a built-in kind that no policy has used for a while", test: "TestStaleParamsDiffer"},
		{name: "long-messages", row: "messages over 6 KiB", test: "TestLongMessagesDiffer"},
		{name: "object-and-scalar", row: "comparing an object with a scalar", versions: from37, test: "TestComparingAnObjectWithAScalarDiffers"},
		{name: "order", row: "order of policies", test: "TestAllDenialsAreReturnedInStableOrder"},
		{name: "no-namespace", row: "a namespace that cannot be read", test: "TestMissingNamespaceDiffers"},
	}
}

// subject begins what is said of a policy, once the engine's name is gone.
const subject = "Policy '"

var (
	nativeFrame = regexp.MustCompile(`^\S+(?: "[^"]*")? is forbidden: (ValidatingAdmissionPolicy '|policy ')`)
	ourFrame    = regexp.MustCompile(`^(?:object )?(?:admission webhook "[^"]*" denied the request: )?`)
)

// frames takes out the engines' names, what the API server puts before them, and the
// field of Ostiary's causes.
func frames(c *comparison) bool {
	before := c.ours.String()
	c.native.texts(func(s string) string {
		s = nativeFrame.ReplaceAllString(s, "$1")
		if rest, ok := strings.CutPrefix(s, "policy '"); ok {
			s = subject + rest
		}
		return strings.ReplaceAll(s, kindValidatingPolicy+" '", subject)
	})
	c.ours.texts(func(s string) string {
		return strings.ReplaceAll(ourFrame.ReplaceAllString(s, ""), "WebhookPolicy '", subject)
	})
	return before != c.ours.String()
}

// aboutObject is the end of Ostiary's warnings: "(Pod shop/web)", "(Namespace shop)", "(a Pod in shop)" or "(a Node)".
var aboutObject = regexp.MustCompile(` \((a )?\S+( in)?( \S+)?\)$`)

// withoutObject takes the object out of a warning of Ostiary, and marks a warning that names none.
func withoutObject(warning string) string {
	if out := aboutObject.ReplaceAllString(warning, ""); out != warning {
		return out
	}
	return warning + " (without its object)"
}

// objectsOfWarnings takes out the object that each warning of Ostiary ends with.
func objectsOfWarnings(c *comparison) bool {
	found := false
	for i, w := range c.ours.Warnings {
		if !strings.Contains(w, subject) {
			continue // of the API server itself
		}
		found = true
		c.ours.Warnings[i] = withoutObject(w)
	}
	slices.Sort(c.ours.Warnings)
	slices.Sort(c.native.Warnings)
	return found
}

const (
	nativeFailures = "validation.policy.admission.k8s.io/validation_failure"
	ourFailures    = "validation_failure"
	ourDomain      = ".ostiary.dev"
)

// auditKeys gives the annotations of both engines the keys that Ostiary's have
// without the webhook's name, and decodes the lists of failures.
func auditKeys(c *comparison) bool {
	found := false
	native, ours := map[string]string{}, map[string]string{}
	for key, value := range c.native.Annotations {
		before, after, _ := strings.Cut(key, "/")
		switch {
		case key == nativeFailures:
			c.native.Failures, found = append(c.native.Failures, failures(value)...), true
		case c.of.hasPolicy(before):
			native[before+"."+after], found = c.of.joined(value), true
		default:
			native[key] = value
		}
	}
	for key, value := range c.ours.Annotations {
		before, after, _ := strings.Cut(key, "/")
		switch {
		case !strings.HasSuffix(before, ourDomain):
			ours[key] = value
		case after == ourFailures:
			c.ours.Failures, found = append(c.ours.Failures, failures(value)...), true
		default:
			ours[after], found = c.of.joined(value), true
		}
	}
	c.native.Annotations, c.ours.Annotations = native, ours
	return found
}

// joined is the value of an audit annotation, with what several bindings gave
// for it in an order of its own where the native engine has none.
func (p *placed) joined(value string) string {
	if !p.undecided() {
		return value
	}
	values := strings.Split(value, ", ")
	slices.Sort(values)
	return strings.Join(values, ", ")
}

func (p *placed) hasPolicy(name string) bool {
	for _, policy := range p.policies {
		if policy.Name == name {
			return true
		}
	}
	return false
}

// failures gives a value that is not a list back as one failure, to be compared.
func failures(value string) []Failure {
	var out []Failure
	if err := json.Unmarshal([]byte(value), &out); err != nil {
		return []Failure{{Message: value}}
	}
	return out
}

// webhookAnnotations takes out what the API server itself notes of a call of
// the mutating phase.
func webhookAnnotations(c *comparison) bool {
	found := false
	for key := range c.ours.Annotations {
		if strings.HasPrefix(key, "mutation.webhook.admission.k8s.io/") || strings.HasPrefix(key, "patch.webhook.admission.k8s.io/") {
			delete(c.ours.Annotations, key)
			found = true
		}
	}
	return found
}

// unnamedBinding takes out the name of the binding that only the native engine
// has to have.
func unnamedBinding(c *comparison) bool {
	found := false
	for _, p := range c.of.policies {
		if len(p.Spec.Bindings) > 0 {
			continue
		}
		name := p.Name + "-" + defaultBinding
		c.native.texts(func(s string) string {
			out := strings.ReplaceAll(s, " with binding '"+name+"'", "")
			if out == name {
				out = ""
			}
			found = found || out != s
			return out
		})
	}
	return found
}

// severalDenials leaves of ours the one that the native engine chose. Where
// only one binding with at most one param denies, that is the first one.
func severalDenials(c *comparison) bool {
	if len(c.ours.Causes) < 2 || len(c.native.Causes) > 1 || !strings.HasPrefix(c.ours.Message, subject) {
		return false
	}
	// The message has them in their order, the causes are sorted.
	first := strings.HasPrefix(c.ours.Message, c.native.Message+"\n")
	if !slices.Contains(c.ours.Causes, c.native.Message) || !first && !c.of.undecided() {
		return false
	}
	c.ours.Message, c.ours.Causes = c.native.Message, slices.Clone(c.native.Causes)
	if !first { // the code is that of the first of ours
		c.ours.Code, c.ours.Reason = c.native.Code, c.native.Reason
	}
	return true
}

// undecided: in which order the native engine evaluates is not known.
func (p *placed) undecided() bool {
	if len(p.policies) > 1 {
		return true
	}
	for _, policy := range p.policies {
		if len(policy.Spec.Bindings) > 1 {
			return true
		}
		for _, b := range policy.Spec.Bindings {
			if b.ParamRef != nil && b.ParamRef.Selector != nil {
				return true
			}
		}
	}
	return false
}

// severalAudited: the API server before 1.37 notes only the first of several
// failures, as no annotation is written twice.
func severalAudited(c *comparison) bool {
	if len(c.native.Failures) != 1 || len(c.ours.Failures) < 2 || !c.notedByBoth(true) {
		return false
	}
	c.ours.Failures = slices.Clone(c.native.Failures)
	return true
}

// notedByBoth: the failures that the native engine noted are among ours, of the same
// bindings or of any.
func (c *comparison) notedByBoth(sameBindings bool) bool {
	return !slices.ContainsFunc(c.native.Failures, func(f Failure) bool {
		return !slices.ContainsFunc(c.ours.Failures, func(o Failure) bool {
			return o.Message == f.Message && o.Policy == f.Policy && o.ExpressionIndex == f.ExpressionIndex &&
				(o.Binding == f.Binding || !sameBindings)
		})
	})
}

var leftOut = regexp.MustCompile(`^\d+ validation failures and 0 values of audit annotations$`)

// manyAudited: neither engine notes more than 50 failures, and Ostiary says how many
// there were. Which are the first depends on the order of bindings.
func manyAudited(c *comparison) bool {
	if len(c.ours.Failures) != 50 || !leftOut.MatchString(c.ours.Annotations["left_out"]) || !c.notedByBoth(false) {
		return false
	}
	delete(c.ours.Annotations, "left_out")
	if len(c.native.Failures) == len(c.ours.Failures) {
		c.ours.Failures = slices.Clone(c.native.Failures)
	}
	return true
}

// variablesInConditions: the API server refuses matchConditions that use
// variables, although its engine could evaluate them.
func variablesInConditions(p *placed, engine, message string) bool {
	return engine == "native" && strings.Contains(message, "].expression") && strings.Contains(message,
		"undeclared reference to 'variables'") &&
		slices.ContainsFunc(p.policies, func(w *v1alpha1.WebhookPolicy) bool {
			return slices.ContainsFunc(w.Spec.MatchConditions, func(m admissionregistrationv1.MatchCondition) bool {
				return strings.Contains(m.Expression, "variables.")
			})
		})
}

var newInLists = regexp.MustCompile(`undeclared reference to '(range|first|last|flatten|distinct|reverse|slice|sort|sortBy)'`)

// listFunctions: the API server allows functions in new policies from the version after
// the one that introduced them.
func listFunctions(_ *placed, engine, message string) bool {
	return engine == "native" && newInLists.MatchString(message)
}

// reasonUnauthorized: the API server documents the reason, has a code for it,
// and refuses policies that give it.
func reasonUnauthorized(_ *placed, engine, message string) bool {
	return engine == "native" && strings.Contains(message, `.reason: Unsupported value: "Unauthorized"`)
}

// exemptNamespaces: the native engine guards those that the cluster lives in
// as any other.
func exemptNamespaces(c *comparison) bool {
	return strings.Contains(c.request.Path, "/namespaces/kube-system/") && c.passes()
}

var critical = regexp.MustCompile(`/(leases|events|validatingwebhookconfigurations|mutatingwebhookconfigurations)\b`)

// criticalResources: no webhook is called for them, whatever a policy matches.
func criticalResources(c *comparison) bool { return critical.MatchString(c.request.Path) && c.passes() }

// passes holds where the native engine denied what Ostiary is not asked about.
func (c *comparison) passes() bool {
	return c.ours.Code < http.StatusBadRequest && strings.HasPrefix(c.native.Message, subject) && c.agree()
}
