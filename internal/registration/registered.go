package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Registered reports whether a policy is registered in all of its phases: it is a
// member and an owner of an observed configuration, the webhook's rules cover those
// of the policy, and its other fields are as planned. refs are the webhooks of the
// phases in which the policy is registered, and why is the reason if ok is false.
// For many policies, use NewView.
func Registered(policy *v1alpha1.WebhookPolicy, plan Plan, observed []Configuration) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	return NewView(plan, observed).Registered(Prepare(policy))
}

// View reports which policies are registered.
type View struct {
	states map[member][]*webhookState
	parts  groupParts
}

// member is a policy in a phase, for objects or for pod templates.
type member struct {
	phase     Phase
	policy    string
	templates bool
}

func (m *membership) member() member {
	return member{m.phase, m.policy, m.templates}
}

// webhookState is the observed state of a planned group.
type webhookState struct {
	group string
	ref   v1alpha1.WebhookReference
	// problem is the reason why no member is registered, empty if there is none.
	problem string
	// heldAtIgnore reports that failurePolicy is Ignore, although Fail is planned.
	heldAtIgnore bool
	rules        []admissionregistrationv1.RuleWithOperations
	members      set
	owners       map[types.UID]struct{}
}

// NewView compares a plan with the observed configurations. They must not change
// while the View is in use.
func NewView(plan Plan, observed []Configuration) View {
	have := ByKey(observed)
	view := View{states: map[member][]*webhookState{}, parts: plan.parts}
	for i := range plan.Groups {
		group := &plan.Groups[i]
		c := newWebhookState(group, have[KeyOf(group.Configuration)])
		templates := group.Key().OfTemplates()
		for _, name := range group.Members {
			key := member{group.Phase, name, templates}
			view.states[key] = append(view.states[key], c)
		}
	}
	return view
}

func newWebhookState(group *Group, have Configuration) *webhookState {
	want := &group.webhook
	c := &webhookState{
		group: group.Name,
		ref:   v1alpha1.WebhookReference{Kind: group.Phase.kind(), Configuration: group.Configuration.GetName(), Webhook: want.Name},
	}
	if have == nil {
		c.problem = c.name() + " does not exist yet"
		return c
	}
	found := findWebhook(have, want.Name)
	if found == nil {
		c.problem = fmt.Sprintf("%s has no webhook %s yet", c.name(), want.Name)
		return c
	}
	c.heldAtIgnore = !group.isExternal() && isHeldAtIgnore(want, found)
	if fields := differences(group, found, c.heldAtIgnore); len(fields) > 0 {
		c.problem = fmt.Sprintf("webhook %s in %s is not updated yet: %s", want.Name, c.name(), strings.Join(fields, ", "))
		return c
	}
	c.rules = found.Rules
	c.members = newSet(Members(have))
	c.owners = map[types.UID]struct{}{}
	for _, owner := range policyOwners(have) {
		c.owners[owner.UID] = struct{}{}
	}
	return c
}

// isHeldAtIgnore reports whether a webhook with planned failurePolicy Fail still has
// Ignore.
func isHeldAtIgnore(want, have *webhook) bool {
	return *want.FailurePolicy == admissionregistrationv1.Fail &&
		have.FailurePolicy != nil && *have.FailurePolicy == admissionregistrationv1.Ignore
}

func (c *webhookState) name() string { return c.ref.Kind + " " + c.ref.Configuration }

// differences returns the names of the fields, except rules, that are not as
// planned. The expected guards are those for the observed rules: if the
// configuration still contains a policy with wildcards, they differ from the planned
// ones, with the same effect.
func differences(group *Group, have *webhook, held bool) []string {
	want := &group.webhook
	wantClient, haveClient := want.ClientConfig, have.ClientConfig
	wantClient.CABundle, haveClient.CABundle = nil, nil
	guarded := equality.Semantic.DeepEqual(have.MatchConditions, append(group.guards.conditions(have.Rules), ownConditions(want)...))
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"clientConfig", equality.Semantic.DeepEqual(wantClient, haveClient)},
		{"clientConfig.caBundle", equality.Semantic.DeepEqual(want.ClientConfig.CABundle, have.ClientConfig.CABundle)},
		{"failurePolicy", equality.Semantic.DeepEqual(want.FailurePolicy, have.FailurePolicy) || held},
		{"matchPolicy", equality.Semantic.DeepEqual(want.MatchPolicy, have.MatchPolicy)},
		{"namespaceSelector", sameNamespaces(group.guards.namespaceSelector(have.Rules), have.NamespaceSelector)},
		{"objectSelector", equality.Semantic.DeepEqual(want.ObjectSelector, have.ObjectSelector)},
		{"sideEffects", equality.Semantic.DeepEqual(want.SideEffects, have.SideEffects)},
		{"timeoutSeconds", equality.Semantic.DeepEqual(want.TimeoutSeconds, have.TimeoutSeconds)},
		{"admissionReviewVersions", equality.Semantic.DeepEqual(want.AdmissionReviewVersions, have.AdmissionReviewVersions)},
		{"reinvocationPolicy", equality.Semantic.DeepEqual(want.ReinvocationPolicy, have.ReinvocationPolicy)},
		{"matchConditions", guarded},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// Registered is like the function Registered.
func (v View) Registered(policy Entry) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	if len(policy.memberships) == 0 {
		return nil, false, "no webhook is planned for it: it has no mutations or validations"
	}
	for i := range policy.memberships {
		found, problem := v.registered(&policy.memberships[i])
		refs = append(refs, found...)
		why = cmp.Or(why, problem)
	}
	return refs, why == "", why
}

// registered returns the webhooks in which a policy is registered for a phase, and the first
// reason why it is not registered for all requests.
func (v View) registered(m *membership) (refs []v1alpha1.WebhookReference, problem string) {
	states := v.states[m.member()]
	if len(states) == 0 {
		return nil, "no " + m.phase.adjective() + " webhook is planned for it yet"
	}
	var planned requests
	for _, c := range states {
		part, of := v.parts.membership(m, c.group)
		planned |= of
		if part == nil {
			continue
		}
		if missing := c.missing(part); missing != "" {
			problem = cmp.Or(problem, missing)
			continue
		}
		refs = append(refs, c.ref)
	}
	if planned != everyRequest {
		problem = "the " + m.phase.adjective() + " webhook for its latest change is not planned yet"
	}
	return refs, problem
}

// missing returns the reason why a membership is not registered, empty if it is.
func (c *webhookState) missing(m *membership) string {
	switch {
	case c.problem != "":
		return c.problem
	case !c.members.has(m.policy):
		return c.name() + " does not list it as a member yet"
	}
	if _, ok := c.owners[m.uid]; !ok {
		return c.name() + " has no owner reference to it yet"
	}
	if !covers(c.rules, m.units) {
		return c.name() + " does not cover all of its resourceRules yet"
	}
	return ""
}

// requests are those for which a policy is in a group; see separation.
type requests uint8

const (
	commonRequests requests = 1 << iota
	otherRequests

	everyRequest = commonRequests | otherRequests
)

// membership returns the membership of a policy in a group, with or without the condition, and
// the requests for which it is. It returns nil if the group does not have the settings of
// the policy.
func (p groupParts) membership(m *membership, group string) (*membership, requests) {
	if isPartOf(m.group, group) {
		return m, everyRequest
	}
	if parts, separable := p[m.group]; separable {
		switch {
		case isPartOf(parts.common, group):
			return m.inCommonVersion(), commonRequests
		case isPartOf(parts.others, group):
			return m, otherRequests
		}
	}
	if m.undelegated != nil {
		return p.membership(m.undelegated, group)
	}
	return nil, 0
}

// isPartOf reports whether a name is that of a group or of a part of it.
func isPartOf(h groupHandle, name string) bool {
	rest, ok := strings.CutPrefix(name, h.Value().name)
	return ok && (rest == "" || rest[0] == '-')
}

// HeldAtIgnore reports whether a policy with failurePolicy Fail is in a webhook with
// failurePolicy Ignore.
func (v View) HeldAtIgnore(policy Entry) bool {
	return slices.ContainsFunc(policy.memberships, func(m membership) bool {
		return slices.ContainsFunc(v.states[m.member()], func(c *webhookState) bool { return c.heldAtIgnore })
	})
}
