package registration

import (
	"cmp"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Registered reports whether what is observed in the API server carries a
// policy wholly, in each phase that it is called in: it is a member and an
// owner, its rules are covered, and everything else about the webhook is as
// planned. If not, refs are those of the phases in which it is, and why says
// what is missing. For many policies, make one View.
func Registered(policy *v1alpha1.WebhookPolicy, plan Plan, observed []Configuration) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	return NewView(plan, observed).Registered(Prepare(policy))
}

// View answers, for any number of policies, whether what is observed carries
// them.
type View struct {
	states map[member]*webhookState
}

// member is a policy in a phase.
type member struct {
	phase  Phase
	policy string
}

// webhookState is a group with what is observed of it.
type webhookState struct {
	group string
	ref   v1alpha1.WebhookReference
	// problem says why it carries nobody.
	problem string
	// heldAtIgnore says that it does not fail closed yet, though it is to.
	heldAtIgnore bool
	rules        []admissionregistrationv1.RuleWithOperations
	members      set
	owners       map[types.UID]struct{}
}

// NewView compares a plan with what is observed. It changes neither, and
// neither may change while the view is in use.
func NewView(plan Plan, observed []Configuration) View {
	have := byKey(observed)
	view := View{states: map[member]*webhookState{}}
	for i := range plan.Groups {
		group := &plan.Groups[i]
		c := newWebhookState(group, have[keyOf(group.Configuration)])
		for _, name := range group.Members {
			view.states[member{group.Phase, name}] = c
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
		c.problem = fmt.Sprintf("webhook %s in %s has yet to be updated: %s", want.Name, c.name(), strings.Join(fields, ", "))
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

func (c *webhookState) name() string { return c.ref.Kind + " " + c.ref.Configuration }

// differences names the fields, other than rules, that are not as planned. The
// guards are to be those for the observed rules: a configuration that still
// carries a policy with wildcards has others than planned, which do no harm.
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

// Registered is the package's function of the same name.
func (v View) Registered(policy Entry) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	if len(policy.memberships) == 0 {
		return nil, false, "no webhook is planned for it: it has nothing to be called for"
	}
	for i := range policy.memberships {
		m := &policy.memberships[i]
		c := v.states[member{m.settings.Phase, m.policy}]
		if problem := c.missing(m); problem != "" {
			why = cmp.Or(why, problem)
			continue
		}
		refs = append(refs, c.ref)
	}
	return refs, why == "", why
}

// missing says what keeps the carrier, if there is one, from carrying the policy.
func (c *webhookState) missing(m *membership) string {
	switch {
	case c == nil:
		return "no " + m.settings.Phase.adjective() + " webhook is planned for it yet"
	case !m.mayBeIn(c.group):
		return "the " + m.settings.Phase.adjective() + " webhook for its latest change has yet to be planned"
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

// mayBeIn reports whether a group is one of those that the policy may be in.
func (m *membership) mayBeIn(group string) bool {
	return group == m.groupName || strings.HasPrefix(group, m.groupName+"-") || m.undelegated != nil && m.undelegated.mayBeIn(group)
}
