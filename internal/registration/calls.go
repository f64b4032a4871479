package registration

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

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
	var hooks []calledWebhook
	for _, c := range configs {
		if !generated(c) {
			continue
		}
		for _, w := range Webhooks(c) {
			hooks = append(hooks, calledWebhook{w, PhaseOf(c)})
		}
	}
	var out []Calls
	for entry := range namedResources(hooks) {
		calls := Calls{Resource: entry.name()}
		version := entry.version(hooks)
		for _, op := range []operations{opConnect, opCreate, opDelete, opUpdate} {
			calls.Mutating = max(calls.Mutating, countCalls(hooks, PhaseMutate, entry, version, op))
			calls.Validating = max(calls.Validating, countCalls(hooks, PhaseValidate, entry, version, op))
		}
		out = append(out, calls)
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

// calledWebhook is a webhook with its phase.
type calledWebhook struct {
	webhook
	phase Phase
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

func countCalls(hooks []calledWebhook, phase Phase, entry resourceEntry, version string, op operations) int {
	n := 0
	for _, h := range hooks {
		if h.phase == phase && h.isCalled(entry, version, op) {
			n++
		}
	}
	return n
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
