package registration

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// FieldManager owns, by server-side apply, what this package generates.
	FieldManager = "ostiary"

	// LabelManagedBy and its value ManagedBy mark every generated object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "ostiary"

	// LabelPhase says in which phase of admission a generated configuration
	// is called.
	LabelPhase = "admission.ostiary.dev/phase"
	// PhaseValidate is the value of LabelPhase of validating configurations.
	PhaseValidate = "validate"

	// AnnotationMembers lists the policies that a configuration carries,
	// sorted and joined by commas.
	AnnotationMembers = "admission.ostiary.dev/members"

	// ConfigurationPrefix begins the name of every generated validating
	// configuration. Nothing without it is ever deleted.
	ConfigurationPrefix = "ostiary-validate-"

	// PathPrefix begins the path of every call of the validate phase. The name
	// of the call group follows.
	PathPrefix = "/validate/"

	webhookDomain = ".validate." + v1alpha1.GroupName
	policyKind    = "WebhookPolicy"
	configKind    = "ValidatingWebhookConfiguration"
)

// Input is all that a plan depends on.
type Input struct {
	// Policies are those to be registered, in any order, each name once.
	Policies []*v1alpha1.WebhookPolicy
	// Entries are further policies, already prepared. A caller that keeps the
	// entries of unchanged policies spares most of the work of Build.
	Entries []Entry
	// Endpoint is where the API server reaches Ostiary. It has passed Validate.
	Endpoint Endpoint
	// CABundle is what the API server verifies Ostiary's certificate with.
	CABundle []byte
	// ExemptNamespaces are left alone, in addition to kube-system and
	// kube-node-lease. They include Ostiary's own.
	ExemptNamespaces []string
}

// Group is a call group: the policies that one webhook carries. Nothing in it
// may be changed.
type Group struct {
	// Name is the group's name, a DNS label.
	Name string
	// Path is where the API server sends the group's requests.
	Path string
	// Members are the names of the group's policies, sorted.
	Members []string
	// Configuration is the object to be applied.
	Configuration *admissionregistrationv1.ValidatingWebhookConfiguration
}

// Plan is what has to be registered.
type Plan struct {
	// Groups are sorted by name.
	Groups []Group
}

// GroupsOf lists the names of the groups that carry a policy.
func (p Plan) GroupsOf(policy string) []string {
	var names []string
	for i := range p.Groups {
		if _, ok := slices.BinarySearch(p.Groups[i].Members, policy); ok {
			names = append(names, p.Groups[i].Name)
		}
	}
	return names
}

// Build plans the registration of all policies of the input.
func Build(in Input) Plan {
	entries := make([]*Entry, 0, len(in.Policies)+len(in.Entries))
	for _, policy := range in.Policies {
		entry := Prepare(policy)
		entries = append(entries, &entry)
	}
	for i := range in.Entries {
		entries = append(entries, &in.Entries[i])
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.name, b.name) })

	byKey := map[string][]*Entry{}
	for _, entry := range entries {
		byKey[entry.key] = append(byKey[entry.key], entry)
	}
	frame := newFrame(in)
	var plan Plan
	for _, sharing := range byKey {
		for _, b := range divide(sharing) {
			plan.Groups = append(plan.Groups, frame.group(b))
		}
	}
	slices.SortFunc(plan.Groups, func(a, b Group) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}

// frame is what all groups of a plan have in common.
type frame struct {
	endpoint Endpoint
	caBundle []byte
	exempt   []string
}

func newFrame(in Input) frame {
	return frame{endpoint: in.Endpoint, caBundle: bytes.Clone(in.CABundle), exempt: exemptNamespaces(in.ExemptNamespaces)}
}

func (f frame) group(b bucket) Group {
	g := Group{Name: b.name(), Members: make([]string, len(b.entries))}
	g.Path = PathPrefix + g.Name
	owners := make([]metav1.OwnerReference, len(b.entries))
	for i, entry := range b.entries {
		g.Members[i] = entry.name
		owners[i] = metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind, Name: entry.name, UID: entry.uid,
		}
	}
	g.Configuration = &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: configKind},
		ObjectMeta: metav1.ObjectMeta{
			Name:            ConfigurationPrefix + g.Name,
			Labels:          map[string]string{LabelManagedBy: ManagedBy, LabelPhase: PhaseValidate},
			Annotations:     map[string]string{AnnotationMembers: strings.Join(g.Members, ",")},
			OwnerReferences: owners,
		},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{f.webhook(b, g)},
	}
	return g
}

// webhook sets every field that the API server would otherwise fill with a
// default, so that what is read back equals what was written.
func (f frame) webhook(b bucket, g Group) admissionregistrationv1.ValidatingWebhook {
	s := b.entries[0].settings
	rules := b.rules()
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    g.Name + webhookDomain,
		ClientConfig:            f.endpoint.clientConfig(g.Path, f.caBundle),
		Rules:                   rules,
		FailurePolicy:           new(s.FailurePolicy),
		MatchPolicy:             new(s.MatchPolicy),
		NamespaceSelector:       guardedSelector(s.NamespaceSelector, f.exempt),
		ObjectSelector:          s.ObjectSelector.DeepCopy(),
		SideEffects:             new(s.SideEffects),
		TimeoutSeconds:          new(s.TimeoutSeconds),
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         guardConditions(rules),
	}
}
