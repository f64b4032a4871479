package registration

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

const (
	// FieldManager is the field manager of generated objects in server-side apply.
	FieldManager = "ostiary"

	// LabelManagedBy is a label of every generated object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "ostiary"

	// LabelPhase is the label with the phase of a generated configuration.
	LabelPhase = "admission.ostiary.dev/phase"

	// AnnotationMembers lists the policies in a configuration, sorted and separated
	// by commas.
	AnnotationMembers = "admission.ostiary.dev/members"

	policyKind = "WebhookPolicy"
)

// Input is the input of Build.
type Input struct {
	// Policies are the policies to be registered, in any order. Names are unique.
	Policies []*v1alpha1.WebhookPolicy
	// Entries are further policies that are already prepared. Build is fast if a
	// caller keeps the entries of unchanged policies.
	Entries []Entry
	// RefusedConditions are the conditions that the API server rejects. They are
	// not delegated.
	RefusedConditions []string
	// Endpoint is the address of Ostiary. It must be valid according to Validate.
	Endpoint Endpoint
	// CABundle is the bundle with which API servers verify Ostiary's certificate.
	CABundle []byte
	// Capability is the secret first segment of the paths of Ostiary's webhooks.
	Capability string
	// Epoch is the epoch of the CA bundle, 0 if it has none.
	Epoch int64
	// ExemptNamespaces are excluded from all webhooks, like kube-system and
	// kube-node-lease. They include Ostiary's own.
	ExemptNamespaces []string
}

// Group is a call group: the policies of one webhook. It is immutable.
type Group struct {
	// Phase is the phase of admission in which the group is called.
	Phase Phase
	// Name is the group's name: a DNS label, or a DNS subdomain if it contains the
	// name of a policy. It is unique within the phase.
	Name string
	// Path is the path of the webhook without the capability, empty for a backend.
	Path string
	// Members are the names of the group's policies, sorted.
	Members []string
	// Configuration is the object to be applied, of the phase's kind.
	Configuration Configuration

	// webhook is the only webhook of the configuration. They share their contents.
	webhook webhook
	guards  guards
}

// Key returns the group's phase and name.
func (g *Group) Key() GroupKey { return GroupKey{Phase: g.Phase, Name: g.Name} }

// Plan is the set of configurations to be registered.
type Plan struct {
	// Groups are sorted by phase and name, mutating ones first. API servers call
	// mutating webhooks in this order.
	Groups []Group

	parts groupParts
}

// GroupsOf returns the names of the groups of a policy in a phase.
func (p Plan) GroupsOf(phase Phase, policy string) []string {
	var names []string
	for i := range p.Groups {
		if p.Groups[i].Phase != phase {
			continue
		}
		if _, ok := slices.BinarySearch(p.Groups[i].Members, policy); ok {
			names = append(names, p.Groups[i].Name)
		}
	}
	return names
}

// Build plans the registration of all policies of the input.
func Build(in Input) Plan {
	entries := slices.Clone(in.Entries)
	for _, policy := range in.Policies {
		entries = append(entries, Prepare(policy))
	}
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.name, b.name) })

	separated := newSeparation(variantsOf(entries, in.RefusedConditions))
	plan := newPlan(in, separated.memberships())
	plan.parts = separated.parts
	return plan
}

// newPlan returns the plan of memberships, which are sorted by policy.
func newPlan(in Input, memberships iter.Seq[*membership]) Plan {
	bySettings := map[groupHandle][]*membership{}
	for m := range memberships {
		bySettings[m.group] = append(bySettings[m.group], m)
	}
	builder := newGroupBuilder(in)
	var plan Plan
	for _, sharing := range bySettings {
		for _, b := range divide(sharing) {
			plan.Groups = append(plan.Groups, builder.group(b))
		}
	}
	slices.SortFunc(plan.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
	return plan
}

// groupBuilder makes the groups of a plan. Its fields are equal for all of them.
type groupBuilder struct {
	endpoint   Endpoint
	caBundle   []byte
	capability string
	epoch      int64
	exempt     []string
}

func newGroupBuilder(in Input) groupBuilder {
	return groupBuilder{endpoint: in.Endpoint, caBundle: bytes.Clone(in.CABundle), capability: in.Capability, epoch: in.Epoch, exempt: guard.ExemptNamespaces(in.ExemptNamespaces)}
}

func (f groupBuilder) group(b memberSet) Group {
	s := b.members[0].settings()
	g := Group{Phase: s.Phase, Name: b.name(), Members: make([]string, len(b.members)),
		guards: guards{critical: s.Critical, exempt: f.exempt, selector: s.NamespaceSelector}}
	if b.members[0].external == nil {
		g.Path = g.Phase.PathPrefix() + g.Name
	}
	owners := make([]metav1.OwnerReference, len(b.members))
	for i, m := range b.members {
		g.Members[i] = m.policy
		owners[i] = metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind, Name: m.policy, UID: m.uid,
		}
	}
	g.webhook = f.webhook(b, &g, &s)
	g.Configuration = NewConfiguration(g.Phase)
	g.Configuration.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(g.Phase.kind()))
	g.Configuration.SetName(g.Phase.ConfigurationPrefix() + g.Name)
	g.Configuration.SetLabels(map[string]string{LabelManagedBy: ManagedBy, LabelPhase: string(g.Phase)})
	g.Configuration.SetAnnotations(map[string]string{AnnotationMembers: strings.Join(g.Members, ",")})
	setEpoch(g.Configuration, f.epoch)
	g.Configuration.SetOwnerReferences(owners)
	setWebhooks(g.Configuration, []webhook{g.webhook})
	return g
}

// webhook returns the webhook of a group. It sets every field that the API server
// would set to a default, so that the stored object equals the applied one.
func (f groupBuilder) webhook(b memberSet, g *Group, s *settings) webhook {
	rules := b.rules()
	w := webhook{
		Name:                    b.members[0].webhookName(g.Name),
		ClientConfig:            f.endpoint.clientConfig(withCapability(f.capability, g.Path), f.caBundle),
		Rules:                   rules,
		FailurePolicy:           new(s.FailurePolicy),
		MatchPolicy:             new(s.MatchPolicy),
		NamespaceSelector:       g.guards.namespaceSelector(rules),
		ObjectSelector:          s.ObjectSelector.DeepCopy(),
		SideEffects:             new(s.SideEffects),
		TimeoutSeconds:          new(s.TimeoutSeconds),
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         matchConditions(rules, &g.guards, s),
	}
	if g.Phase == PhaseMutate {
		w.ReinvocationPolicy = new(s.ReinvocationPolicy)
	}
	if external := b.members[0].external; external != nil {
		external.applyTo(&w, &g.guards)
	}
	return w
}
