package registration

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Ref is a configuration as it was observed, for the preconditions of a delete.
type Ref struct {
	// Name is the object's name.
	Name string
	// UID is the object's UID.
	UID types.UID
	// ResourceVersion is the version that was looked at.
	ResourceVersion string
}

// Changes lead from what is observed to what is planned. They are to be
// executed in their order: Apply, then Delete.
type Changes struct {
	// Apply are objects to be applied as FieldManager, forcing conflicts. An
	// object can stand here twice.
	Apply []*admissionregistrationv1.ValidatingWebhookConfiguration
	// Delete are objects that carry nothing any more.
	Delete []Ref
}

// Empty reports whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.Apply) == 0 && len(c.Delete) == 0 }

// Diff compares a plan with the configurations that carry Ostiary's label. It
// tolerates labels, annotations and owner references that others add, and
// repairs everything else. Server-side apply cannot remove a webhook or a
// matchCondition that another field manager put in; a difference that is still
// there after an apply has to be overwritten with an update.
//
// The order keeps a policy that moves between groups in force: first what
// creates or adds, then what removes, then deletes. An object that gains some
// policies and loses others that moved is applied twice, first with both.
func Diff(plan Plan, observed []*admissionregistrationv1.ValidatingWebhookConfiguration) Changes {
	byName := make(map[string]*admissionregistrationv1.ValidatingWebhookConfiguration, len(observed))
	for _, config := range observed {
		byName[config.Name] = config
	}
	planned := plan.members()
	var changes Changes
	var removals []*admissionregistrationv1.ValidatingWebhookConfiguration
	for i := range plan.Groups {
		want := plan.Groups[i].Configuration
		have, exists := byName[want.Name]
		delete(byName, want.Name)
		switch {
		case exists && inForce(want, have):
		case !exists, len(lost(plan.Groups[i], have)) == 0:
			changes.Apply = append(changes.Apply, want)
		case !gains(plan.Groups[i], have):
			removals = append(removals, want)
		case !slices.ContainsFunc(lost(plan.Groups[i], have), planned.has):
			changes.Apply = append(changes.Apply, want)
		default:
			changes.Apply = append(changes.Apply, widened(plan.Groups[i], have))
			removals = append(removals, want)
		}
	}
	changes.Apply = append(changes.Apply, removals...)
	for _, config := range byName {
		if generated(config) {
			changes.Delete = append(changes.Delete, Ref{Name: config.Name, UID: config.UID, ResourceVersion: config.ResourceVersion})
		}
	}
	slices.SortFunc(changes.Delete, func(a, b Ref) int { return cmp.Compare(a.Name, b.Name) })
	return changes
}

// generated reports whether a configuration was made by this package and is
// not being deleted already. Others may carry the label: those of Ostiary's
// own installation do.
func generated(config *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return strings.HasPrefix(config.Name, ConfigurationPrefix) &&
		config.Labels[LabelManagedBy] == ManagedBy &&
		config.Labels[LabelPhase] == PhaseValidate &&
		config.DeletionTimestamp.IsZero()
}

func inForce(want, have *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return includes(have.Labels, want.Labels) &&
		includes(have.Annotations, want.Annotations) &&
		equality.Semantic.DeepEqual(policyOwners(want), policyOwners(have)) &&
		equality.Semantic.DeepEqual(want.Webhooks, have.Webhooks)
}

func includes(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// policyOwners are the owner references to policies, sorted: the API server
// and other field managers may reorder them and add their own.
func policyOwners(config *admissionregistrationv1.ValidatingWebhookConfiguration) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, owner := range config.OwnerReferences {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == v1alpha1.GroupName {
			out = append(out, owner)
		}
	}
	slices.SortFunc(out, func(a, b metav1.OwnerReference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

func (p Plan) members() set {
	members := set{}
	for i := range p.Groups {
		for _, name := range p.Groups[i].Members {
			members[name] = struct{}{}
		}
	}
	return members
}

// lost are the observed members that the planned group does not have.
func lost(group Group, have *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	return slices.DeleteFunc(Members(have), func(name string) bool {
		_, stays := slices.BinarySearch(group.Members, name)
		return stays
	})
}

// gains reports whether the planned group has members, or requests of theirs,
// that the observed one lacks.
func gains(group Group, have *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	members := Members(have)
	if slices.ContainsFunc(group.Members, func(name string) bool { return !slices.Contains(members, name) }) {
		return true
	}
	webhook := findWebhook(have, group.webhookName())
	return webhook == nil || !covers(webhook.Rules, atomsOf(group.Configuration.Webhooks[0].Rules))
}

// widened is the planned configuration together with the members and rules of
// the observed one.
func widened(group Group, have *admissionregistrationv1.ValidatingWebhookConfiguration) *admissionregistrationv1.ValidatingWebhookConfiguration {
	out := group.Configuration.DeepCopy()
	members := append(Members(have), group.Members...)
	out.Annotations[AnnotationMembers] = strings.Join(sortedSet(members), ",")
	for _, owner := range policyOwners(have) {
		if !slices.ContainsFunc(out.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
			out.OwnerReferences = append(out.OwnerReferences, owner)
		}
	}
	if webhook := findWebhook(have, group.webhookName()); webhook != nil {
		rules := out.Webhooks[0].Rules
		for i := range webhook.Rules {
			if !covers(rules, atomsOf(webhook.Rules[i:i+1])) {
				rules = append(rules, *webhook.Rules[i].DeepCopy())
			}
		}
		out.Webhooks[0].Rules = rules
		out.Webhooks[0].MatchConditions = guardConditions(rules)
	}
	return out
}

func (g Group) webhookName() string { return g.Configuration.Webhooks[0].Name }

func findWebhook(config *admissionregistrationv1.ValidatingWebhookConfiguration, name string) *admissionregistrationv1.ValidatingWebhook {
	for i := range config.Webhooks {
		if config.Webhooks[i].Name == name {
			return &config.Webhooks[i]
		}
	}
	return nil
}

// Members reads the policies that a configuration says it carries, sorted.
// People can edit the annotation: spaces, duplicates and what cannot be a
// policy's name are skipped, and no more is read than a configuration can
// carry while policies move.
func Members(config *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
	var names []string
	for name := range strings.SplitSeq(config.Annotations[AnnotationMembers], ",") {
		name = strings.TrimSpace(name)
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue
		}
		if names = append(names, name); len(names) == 2*MaxMembers {
			break
		}
	}
	return sortedSet(names)
}
