package registration

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Registered reports whether what is observed in the API server carries a
// policy wholly: it is a member and an owner, its rules are covered, and
// everything else about the webhook is as planned. If not, why says what is
// missing. For many policies, make one View.
func Registered(policy *v1alpha1.WebhookPolicy, plan Plan, observed []*admissionregistrationv1.ValidatingWebhookConfiguration) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	return NewView(plan, observed).Registered(Prepare(policy))
}

// View answers, for any number of policies, whether what is observed carries
// them.
type View struct {
	carriers map[string][]*carrier
}

// carrier is a group with what is observed of it.
type carrier struct {
	group string
	ref   v1alpha1.WebhookReference
	// problem says why it carries nobody.
	problem string
	rules   []admissionregistrationv1.RuleWithOperations
	members set
	owners  map[types.UID]struct{}
}

// NewView compares a plan with what is observed. It changes neither, and
// neither may change while the view is in use.
func NewView(plan Plan, observed []*admissionregistrationv1.ValidatingWebhookConfiguration) View {
	byName := make(map[string]*admissionregistrationv1.ValidatingWebhookConfiguration, len(observed))
	for _, config := range observed {
		byName[config.Name] = config
	}
	view := View{carriers: map[string][]*carrier{}}
	for _, group := range plan.Groups {
		c := newCarrier(group, byName[group.Configuration.Name])
		for _, name := range group.Members {
			view.carriers[name] = append(view.carriers[name], c)
		}
	}
	return view
}

func newCarrier(group Group, have *admissionregistrationv1.ValidatingWebhookConfiguration) *carrier {
	want := &group.Configuration.Webhooks[0]
	c := &carrier{
		group: group.Name,
		ref:   v1alpha1.WebhookReference{Kind: configKind, Configuration: group.Configuration.Name, Webhook: want.Name},
	}
	if have == nil {
		c.problem = fmt.Sprintf("%s %s does not exist yet", configKind, c.ref.Configuration)
		return c
	}
	webhook := findWebhook(have, want.Name)
	if webhook == nil {
		c.problem = fmt.Sprintf("%s %s has no webhook %s yet", configKind, have.Name, want.Name)
		return c
	}
	if fields := differences(want, webhook); len(fields) > 0 {
		c.problem = fmt.Sprintf("webhook %s in %s %s has yet to be updated: %s", want.Name, configKind, have.Name, strings.Join(fields, ", "))
		return c
	}
	c.rules = webhook.Rules
	c.members = newSet(Members(have))
	c.owners = map[types.UID]struct{}{}
	for _, owner := range policyOwners(have) {
		c.owners[owner.UID] = struct{}{}
	}
	return c
}

// differences names the fields, other than rules, that are not as planned. A
// guard more than planned does no harm: a configuration that still carries a
// policy with wildcards has one.
func differences(want, have *admissionregistrationv1.ValidatingWebhook) []string {
	wantClient, haveClient := want.ClientConfig, have.ClientConfig
	wantClient.CABundle, haveClient.CABundle = nil, nil
	guarded := equality.Semantic.DeepEqual(have.MatchConditions, guardConditions(have.Rules))
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"clientConfig", equality.Semantic.DeepEqual(wantClient, haveClient)},
		{"clientConfig.caBundle", equality.Semantic.DeepEqual(want.ClientConfig.CABundle, have.ClientConfig.CABundle)},
		{"failurePolicy", equality.Semantic.DeepEqual(want.FailurePolicy, have.FailurePolicy)},
		{"matchPolicy", equality.Semantic.DeepEqual(want.MatchPolicy, have.MatchPolicy)},
		{"namespaceSelector", equality.Semantic.DeepEqual(want.NamespaceSelector, have.NamespaceSelector)},
		{"objectSelector", equality.Semantic.DeepEqual(want.ObjectSelector, have.ObjectSelector)},
		{"sideEffects", equality.Semantic.DeepEqual(want.SideEffects, have.SideEffects)},
		{"timeoutSeconds", equality.Semantic.DeepEqual(want.TimeoutSeconds, have.TimeoutSeconds)},
		{"admissionReviewVersions", equality.Semantic.DeepEqual(want.AdmissionReviewVersions, have.AdmissionReviewVersions)},
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
	carriers := v.carriers[policy.name]
	if len(carriers) == 0 {
		return nil, false, "no webhook is planned for it yet"
	}
	for _, c := range carriers {
		if problem := c.lacks(policy); problem != "" {
			why = problem
			continue
		}
		refs = append(refs, c.ref)
	}
	return refs, why == "", why
}

// lacks says what keeps the carrier from carrying the policy.
func (c *carrier) lacks(policy Entry) string {
	if c.group != policy.groupName && !strings.HasPrefix(c.group, policy.groupName+"-") {
		return "the webhook for its latest change has yet to be planned"
	}
	if c.problem != "" {
		return c.problem
	}
	where := configKind + " " + c.ref.Configuration
	if !c.members.has(policy.name) {
		return where + " does not list it as a member yet"
	}
	if _, ok := c.owners[policy.uid]; !ok {
		return where + " has no owner reference to it yet"
	}
	if !covers(c.rules, policy.atoms) {
		return where + " does not cover all of its resourceRules yet"
	}
	return ""
}
