package registration

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Ref is a configuration as it was observed, for the preconditions of a delete.
type Ref struct {
	// Phase says of which kind the object is.
	Phase Phase
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
	Apply []Configuration
	// Delete are objects that carry nothing any more.
	Delete []Ref
}

// Empty reports whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.Apply) == 0 && len(c.Delete) == 0 }

// Diff compares a plan with the configurations that carry Ostiary's label. It
// tolerates labels, annotations and owner references that others add, and what
// tolerated lists, and repairs everything else. Server-side apply cannot remove a webhook or a
// matchCondition that another field manager put in; a difference that is still
// there after an apply has to be overwritten with an update.
//
// The order keeps a policy that moves between groups in force: first what
// creates or adds, then what removes, then deletes. An object that gains some
// policies and loses others that moved is applied twice, first with both. In
// between the policy is called in both groups: its mutations may be applied
// twice, as with a reinvocation, rather than not at all.
//
// Mutations come before validations, so a policy that has both never refuses,
// while it comes into force, what its mutations are there to mend; and what adds
// comes before anything that removes, so it is half in force for no longer than
// the additions take. For a policy that goes the order does not matter: it is
// not evaluated any more, whatever still names it.
func Diff(plan Plan, observed []Configuration) Changes {
	unplanned := byKey(observed)
	planned := plan.members()
	var changes Changes
	var removals []Configuration
	for i := range plan.Groups { // mutating ones first
		group := &plan.Groups[i]
		want := group.Configuration
		have, exists := unplanned[keyOf(want)]
		delete(unplanned, keyOf(want))
		switch {
		case exists && isApplied(want, have):
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
	for key, config := range unplanned {
		if generated(config) {
			changes.Delete = append(changes.Delete, Ref{
				Phase: key.phase, Name: key.name, UID: config.GetUID(), ResourceVersion: config.GetResourceVersion(),
			})
		}
	}
	slices.SortFunc(changes.Delete, func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
	return changes
}

// generated reports whether a configuration was made by this package and is
// not being deleted already. Others may carry the label: those of Ostiary's
// own installation do.
func generated(config Configuration) bool {
	group, named := GroupOf(config)
	labels := config.GetLabels()
	return named &&
		labels[LabelManagedBy] == ManagedBy &&
		labels[LabelPhase] == string(group.Phase) &&
		config.GetDeletionTimestamp().IsZero()
}

func isApplied(want, have Configuration) bool {
	return includes(have.GetLabels(), want.GetLabels()) &&
		includes(have.GetAnnotations(), want.GetAnnotations()) &&
		equality.Semantic.DeepEqual(policyOwners(want), policyOwners(have)) &&
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

// policyOwners are the owner references to policies, sorted: the API server
// and other field managers may reorder them and add their own.
func policyOwners(config metav1.Object) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, owner := range config.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == v1alpha1.GroupName {
			out = append(out, owner)
		}
	}
	slices.SortFunc(out, func(a, b metav1.OwnerReference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// members are the names of all policies that are planned, by phase.
func (p Plan) members() map[Phase]set {
	members := map[Phase]set{PhaseMutate: {}, PhaseValidate: {}}
	for i := range p.Groups {
		for _, name := range p.Groups[i].Members {
			members[p.Groups[i].Phase][name] = struct{}{}
		}
	}
	return members
}

// lostMembers are the observed members that the planned group does not have.
func lostMembers(group *Group, have Configuration) []string {
	return slices.DeleteFunc(Members(have), func(name string) bool {
		_, stays := slices.BinarySearch(group.Members, name)
		return stays
	})
}

// gainsMembers reports whether the planned group has members, or requests of theirs,
// that the observed one lacks.
func gainsMembers(group *Group, have Configuration) bool {
	members := Members(have)
	if slices.ContainsFunc(group.Members, func(name string) bool { return !slices.Contains(members, name) }) {
		return true
	}
	found := findWebhook(have, group.webhook.Name)
	return found == nil || !covers(found.Rules, unitsOf(group.webhook.Rules))
}

// widened is the planned configuration together with the members and rules of
// the observed one.
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

// Members reads the policies that a configuration says it carries, sorted.
// People can edit the annotation: spaces, duplicates and what cannot be a
// policy's name are skipped, and no more is read than a configuration can
// carry while policies move.
func Members(config metav1.Object) []string {
	var names []string
	for name := range strings.SplitSeq(config.GetAnnotations()[AnnotationMembers], ",") {
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
