package registration

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/ostiary/ostiary/internal/guard"
)

// Calls are the calls of webhooks that one request costs at most.
type Calls struct {
	// Resource is named as for kubectl, with its subresource: deployments.apps/scale.
	Resource   string `json:"resource"`
	Mutating   int    `json:"mutating"`
	Validating int    `json:"validating"`
}

// CallsOf returns the calls for each resource that a rule in the configurations of policies
// names without a wildcard, most first. It counts the webhooks whose rules can match the same
// request in v1, or in another version if no rule contains that. Selectors and match
// conditions of policies are assumed to match, so a request can cost fewer calls.
func CallsOf(configs []Configuration) []Calls {
	hooks := calledWebhooks(configs)
	var out []Calls
	for entry := range namedResources(hooks) {
		out = append(out, Calls{
			Resource:   entry.name(),
			Mutating:   len(entry.calls(hooks, PhaseMutate)),
			Validating: len(entry.calls(hooks, PhaseValidate)),
		})
	}
	slices.SortFunc(out, func(a, b Calls) int {
		return cmp.Or(
			cmp.Compare(b.Mutating+b.Validating, a.Mutating+a.Validating),
			cmp.Compare(b.Mutating, a.Mutating),
			cmp.Compare(a.Resource, b.Resource),
		)
	})
	return out
}

// SeveralCalls are the webhooks of a phase that one request can call.
type SeveralCalls struct {
	Resource       string
	Phase          Phase
	Configurations []string // sorted
	// Differences are the fields of webhooks in which they differ; none if they differ only in what has no field of a
	// webhook, such as the order.
	Differences []string
}

// SeveralCallsOf returns why requests cost several calls, as CallsOf counts them: by phase, and by resource.
func SeveralCallsOf(configs []Configuration) []SeveralCalls {
	hooks := calledWebhooks(configs)
	var out []SeveralCalls
	for entry := range namedResources(hooks) {
		for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
			called := entry.calls(hooks, phase)
			if len(called) < 2 {
				continue
			}
			several := SeveralCalls{Resource: entry.name(), Phase: phase, Differences: differingFields(called)}
			for _, h := range called {
				several.Configurations = append(several.Configurations, h.configuration)
			}
			slices.Sort(several.Configurations)
			out = append(out, several)
		}
	}
	slices.SortFunc(out, func(a, b SeveralCalls) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Resource, b.Resource))
	})
	return out
}

// differingFields returns the fields in which webhooks differ, except the rules, which never are the reason for a webhook.
func differingFields(hooks []calledWebhook) []string {
	fields := []struct {
		name string
		of   func(*webhook) any
	}{
		{"clientConfig", func(w *webhook) any { return backendOf(w) }},
		{"failurePolicy", func(w *webhook) any { return w.FailurePolicy }},
		{"matchConditions", func(w *webhook) any { return w.MatchConditions }},
		{"matchPolicy", func(w *webhook) any { return w.MatchPolicy }},
		{"namespaceSelector", func(w *webhook) any { return w.NamespaceSelector }},
		{"objectSelector", func(w *webhook) any { return w.ObjectSelector }},
		{"reinvocationPolicy", func(w *webhook) any { return w.ReinvocationPolicy }},
		{"sideEffects", func(w *webhook) any { return w.SideEffects }},
		{"timeoutSeconds", func(w *webhook) any { return w.TimeoutSeconds }},
	}
	var out []string
	for _, field := range fields {
		first := field.of(&hooks[0].webhook)
		if slices.ContainsFunc(hooks[1:], func(h calledWebhook) bool {
			return !equality.Semantic.DeepEqual(first, field.of(&h.webhook))
		}) {
			out = append(out, field.name)
		}
	}
	return out
}

// backendOf returns what a webhook calls, without the path, which each webhook has for itself.
func backendOf(w *webhook) string {
	switch c := &w.ClientConfig; {
	case c.Service != nil:
		return c.Service.Namespace + "/" + c.Service.Name
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			return u.Host
		}
	}
	return ""
}

// calledWebhook is a webhook with its phase and its configuration.
type calledWebhook struct {
	webhook
	phase         Phase
	configuration string
}

func calledWebhooks(configs []Configuration) []calledWebhook {
	var hooks []calledWebhook
	for _, c := range configs {
		if !generated(c) {
			continue
		}
		for _, w := range Webhooks(c) {
			hooks = append(hooks, calledWebhook{w, PhaseOf(c), c.GetName()})
		}
	}
	return hooks
}

func namedResources(hooks []calledWebhook) map[resourceEntry]struct{} {
	out := map[resourceEntry]struct{}{}
	for _, h := range hooks {
		for _, u := range unitsOf(h.Rules) {
			if u.group != wildcard && !strings.Contains(u.resource, wildcard) {
				out[resourceEntry{u.group, u.resource}] = struct{}{}
			}
		}
	}
	return out
}

func (e resourceEntry) name() string {
	resource, subresource, found := strings.Cut(e.resource, "/")
	if e.group != "" {
		resource += "." + e.group
	}
	if found {
		resource += "/" + subresource
	}
	return resource
}

// version returns the version of requests for the resource: commonVersion if a rule contains
// it, otherwise the first version in a rule.
func (e resourceEntry) version(hooks []calledWebhook) string {
	var versions []string
	for _, h := range hooks {
		for i := range h.Rules {
			if e.isIn(&h.Rules[i]) {
				versions = append(versions, h.Rules[i].APIVersions...)
			}
		}
	}
	if slices.Contains(versions, wildcard) || slices.Contains(versions, commonVersion) {
		return commonVersion
	}
	return slices.Min(versions)
}

func (e resourceEntry) isIn(rule *admissionregistrationv1.RuleWithOperations) bool {
	return (slices.Contains(rule.APIGroups, e.group) || slices.Contains(rule.APIGroups, wildcard)) &&
		slices.ContainsFunc(widerEntries(e.resource), func(w string) bool { return slices.Contains(rule.Resources, w) })
}

// calls returns the webhooks of a phase that one request calls, for the operation with most of them.
func (e resourceEntry) calls(hooks []calledWebhook, phase Phase) []calledWebhook {
	version := e.version(hooks)
	var most []calledWebhook
	for _, op := range []operations{opConnect, opCreate, opDelete, opUpdate} {
		var called []calledWebhook
		for _, h := range hooks {
			if h.phase == phase && h.isCalled(e, version, op) {
				called = append(called, h)
			}
		}
		if len(called) > len(most) {
			most = called
		}
	}
	return most
}

func (h *calledWebhook) isCalled(entry resourceEntry, version string, op operations) bool {
	except := slices.ContainsFunc(h.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return c == guard.OtherVersions(version)
	})
	if except {
		return false
	}
	equivalent := h.MatchPolicy == nil || *h.MatchPolicy == admissionregistrationv1.Equivalent
	return slices.ContainsFunc(h.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		sameVersion := equivalent || slices.Contains(rule.APIVersions, version) || slices.Contains(rule.APIVersions, wildcard)
		return sameVersion && operationsOf(rule.Operations)&op != 0 && entry.isIn(&rule)
	})
}
