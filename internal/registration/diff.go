package registration

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Ref identifies an observed configuration, for the preconditions of a delete.
type Ref struct {
	Key
	// UID is the object's UID.
	UID types.UID
	// ResourceVersion is the observed version.
	ResourceVersion string
}

// RefOf returns the reference to an observed configuration.
func RefOf(c Configuration) Ref {
	return Ref{Key: KeyOf(c), UID: c.GetUID(), ResourceVersion: c.GetResourceVersion()}
}

// Changes are the writes that turn the observed configurations into the planned
// ones, in this order: Apply, then Delete.
type Changes struct {
	// Apply are objects to be applied as FieldManager, forcing conflicts. It can
	// contain an object twice.
	Apply []Configuration
	// Delete are objects that are no longer planned.
	Delete []Ref
}

// Empty reports whether there are no changes.
func (c Changes) Empty() bool { return len(c.Apply) == 0 && len(c.Delete) == 0 }

// Diff compares a plan with the configurations with Ostiary's label. It ignores
// labels, annotations and owner references of other clients, and the requirements
// of isTolerated. It reverts all other changes. Server-side apply cannot remove a
// webhook or a matchCondition that another field manager has added: a difference
// that remains after an apply has to be overwritten with an update.
//
// The order of the changes ensures that a policy that moves between groups stays
// registered: first creations and additions, then removals, then deletions. An
// object that gains some policies and loses others that move is applied twice,
// first with both. Meanwhile the policy is called in both groups: its mutations may
// be applied twice, as with a reinvocation.
//
// Mutations come before validations, so that the validations of a new policy do not
// deny requests that its mutations would correct. Additions come before removals,
// so that only additions delay the registration of a policy in both phases. The
// order does not matter for deleted policies, which are no longer evaluated.
func Diff(plan Plan, observed []Configuration) Changes {
	unplanned := ByKey(observed)
	planned := plan.members()
	var changes Changes
	var removals []Configuration
	for i := range plan.Groups { // sorted: mutate comes before validate
		group := &plan.Groups[i]
		want := group.Configuration
		have, exists := unplanned[KeyOf(want)]
		delete(unplanned, KeyOf(want))
		switch {
		case exists && Matches(have, want):
		case !exists, len(lostMembers(group, have)) == 0:
			changes.Apply = append(changes.Apply, want)
		case !gainsMembers(group, have):
			removals = append(removals, want)
		case !slices.ContainsFunc(lostMembers(group, have), planned[group.Phase].has):
			changes.Apply = append(changes.Apply, want)
		default:
			changes.Apply = append(changes.Apply, widened(group, have))
			removals = append(removals, want)
		}
	}
	changes.Apply = append(changes.Apply, removals...)
	for _, config := range unplanned {
		if generated(config) {
			changes.Delete = append(changes.Delete, RefOf(config))
		}
	}
	slices.SortFunc(changes.Delete, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
	return changes
}

// generated reports whether a configuration is one of a call group and is not
// being deleted. Configurations of Ostiary's installation have the label
// LabelManagedBy too.
func generated(config Configuration) bool {
	group, named := GroupOf(config)
	labels := config.GetLabels()
	return named &&
		labels[LabelManagedBy] == ManagedBy &&
		labels[LabelPhase] == string(group.Phase) &&
		config.GetDeletionTimestamp().IsZero()
}

// Matches reports whether an observed configuration is as planned: it has the
// planned labels, annotations, owner references to policies, and webhooks, and no
// other webhooks.
func Matches(have, want Configuration) bool {
	return includes(have.GetLabels(), want.GetLabels()) &&
		includes(have.GetAnnotations(), want.GetAnnotations()) &&
		slices.EqualFunc(policyOwners(want), policyOwners(have), sameOwner) &&
		sameWebhooks(Webhooks(want), Webhooks(have))
}

func includes(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// policyOwners returns the owner references to policies, sorted. The API server
// and other field managers may reorder them and add others.
func policyOwners(config metav1.Object) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, owner := range config.GetOwnerReferences() {
		if version, ok := strings.CutPrefix(owner.APIVersion, v1alpha1.GroupName+"/"); ok && !strings.Contains(version, "/") {
			out = append(out, owner)
		}
	}
	slices.SortFunc(out, func(a, b metav1.OwnerReference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

func sameOwner(a, b metav1.OwnerReference) bool {
	same := func(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		same(a.Controller, b.Controller) && same(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// members returns the names of all planned policies by phase.
func (p Plan) members() map[Phase]set {
	members := map[Phase]set{PhaseMutate: {}, PhaseValidate: {}}
	for i := range p.Groups {
		for _, name := range p.Groups[i].Members {
			members[p.Groups[i].Phase][name] = struct{}{}
		}
	}
	return members
}

// lostMembers returns the observed members that the planned group does not have.
func lostMembers(group *Group, have Configuration) []string {
	return slices.DeleteFunc(Members(have), func(name string) bool {
		_, stays := slices.BinarySearch(group.Members, name)
		return stays
	})
}

// gainsMembers reports whether the planned group has members or rules that the
// observed configuration does not have.
func gainsMembers(group *Group, have Configuration) bool {
	members := Members(have)
	if slices.ContainsFunc(group.Members, func(name string) bool { return !slices.Contains(members, name) }) {
		return true
	}
	found := findWebhook(have, group.webhook.Name)
	return found == nil || !covers(found.Rules, unitsOf(group.webhook.Rules))
}

// widened returns the planned configuration with the members and rules of both the
// planned and the observed one.
func widened(group *Group, have Configuration) Configuration {
	out := clone(group.Configuration)
	members := append(Members(have), group.Members...)
	out.GetAnnotations()[AnnotationMembers] = strings.Join(sortedSet(members), ",")
	owners := out.GetOwnerReferences()
	for _, owner := range policyOwners(have) {
		if !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == owner.UID }) {
			owners = append(owners, owner)
		}
	}
	out.SetOwnerReferences(owners)
	if found := findWebhook(have, group.webhook.Name); found != nil {
		wide := Webhooks(out)
		for i := range found.Rules {
			if !covers(wide[0].Rules, unitsOf(found.Rules[i:i+1])) {
				wide[0].Rules = append(wide[0].Rules, *found.Rules[i].DeepCopy())
			}
		}
		wide[0].MatchConditions = append(group.guards.conditions(wide[0].Rules), ownConditions(&wide[0])...)
		wide[0].NamespaceSelector = group.guards.namespaceSelector(wide[0].Rules)
		setWebhooks(out, wide)
	}
	return out
}

func findWebhook(config Configuration, name string) *webhook {
	webhooks := Webhooks(config)
	for i := range webhooks {
		if webhooks[i].Name == name {
			return &webhooks[i]
		}
	}
	return nil
}

// Members returns the policies in the annotation of a configuration, sorted. Other
// clients can edit the annotation: Members ignores spaces, duplicates and invalid
// names, and reads at most twice MaxMembers, the maximum while policies move.
func Members(config metav1.Object) []string {
	var names []string
	for name := range strings.SplitSeq(config.GetAnnotations()[AnnotationMembers], ",") {
		name = strings.TrimSpace(name)
		if !isLabel(name) && len(validation.IsDNS1123Subdomain(name)) > 0 {
			continue
		}
		if names = append(names, name); len(names) == 2*MaxMembers {
			break
		}
	}
	return sortedSet(names)
}

// isLabel reports whether a name is a DNS label. A regular expression takes ten times the
// time, and every load checks every name.
func isLabel(name string) bool {
	if name == "" || len(name) > validation.DNS1123LabelMaxLength || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
