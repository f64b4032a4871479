package policies

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

// plan returns the state that follows from the entries: their webhook configurations, and the
// call groups that answer for the planned and for the observed ones.
func (l *Loader) plan(seen *observation, entries map[types.UID]*Entry) *State {
	state := &State{
		Entries:     entries,
		Versions:    seen.versions(),
		Registrable: len(seen.bundle) > 0,
		input: registration.Input{
			Entries:           plannedEntries(entries),
			Endpoint:          l.Endpoint,
			CABundle:          seen.bundle,
			Epoch:             seen.epoch,
			ExemptNamespaces:  l.ExemptNamespaces,
			RefusedConditions: seen.refusals.conditions,
			Capability:        seen.capability,
		},
	}
	state.Plan = registration.Build(state.input)
	state.View = registration.NewView(state.Plan, seen.configurations)
	state.confirmRegistered()
	state.groups = groups(state, seen)
	state.findUnknown(seen)
	state.withheld = seen.withheldFields(entries)
	return state
}

func plannedEntries(entries map[types.UID]*Entry) []registration.Entry {
	var out []registration.Entry
	for _, e := range entries {
		if e.Planned() {
			out = append(out, e.effective().prepared)
		}
	}
	return out
}

// confirmRegistered confirms the policies whose latest generation the API server has.
func (s *State) confirmRegistered() {
	for uid, e := range s.Entries {
		if e.previous == nil || e.Choice != ChooseLatest {
			continue
		}
		if _, ok, _ := s.Registered(e); ok {
			s.Entries[uid] = &Entry{Generation: e.Generation, Standing: e.confirmed()}
		}
	}
}

// groups returns the planned members, and those that the observed configurations still
// name: while a policy moves to another group, both contain it.
func groups(state *State, seen *observation) map[registration.GroupKey]*policy.Group {
	members := make(map[registration.GroupKey][]string, len(state.Plan.Groups))
	maps.Copy(members, seen.members)
	for i := range state.Plan.Groups {
		group := state.Plan.Groups[i].Key()
		members[group] = union(state.Plan.Groups[i].Members, seen.members[group])
	}
	byName := make(map[string]*Entry, len(state.Entries))
	for _, e := range state.Entries {
		byName[e.Policy.Name] = e
	}
	out := make(map[registration.GroupKey]*policy.Group, len(members))
	for group, names := range members {
		compiled := make([]*policy.Compiled, 0, len(names))
		for _, name := range names {
			if e := byName[name]; e != nil {
				compiled = append(compiled, e.effective().Compiled)
			}
		}
		out[group] = newGroup(group, compiled, seen.previous)
	}
	return out
}

// newGroup returns the group of the previous state if its policies have not changed.
func newGroup(key registration.GroupKey, compiled []*policy.Compiled, previous *State) *policy.Group {
	if previous != nil && previous.groups[key].MadeOf(compiled) {
		return previous.groups[key]
	}
	if key.OfTemplates() {
		return policy.NewTemplateGroup(compiled)
	}
	return policy.NewGroup(compiled)
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// Only returns a plan of some policies, to find out which of them the API server rejects.
// It equals the plan of all, except for the members, and for groups that only the others
// separate by versions.
func (s *State) Only(names []string) registration.Plan {
	in := s.input
	in.Entries = nil
	for _, e := range s.Entries {
		if e.Planned() && slices.Contains(names, e.Policy.Name) {
			in.Entries = append(in.Entries, e.effective().prepared)
		}
	}
	return registration.Build(in)
}

// prepare gets what the planned policies depend on.
func (l *Loader) prepare(state *State) {
	if l.Prepare == nil {
		return
	}
	var planned []*v1alpha1.WebhookPolicy
	var needs Needs
	for _, e := range state.Entries {
		if e.Planned() {
			p, compiled := e.Effective()
			planned = append(planned, p)
			needs.Params = append(needs.Params, compiled.ParamNeeds()...)
			needs.Lookups = append(needs.Lookups, compiled.LookupNeeds()...)
		}
	}
	l.Prepare(planned, needs)
}

// count sets the metrics of the policies in a state.
func (l *Loader) count(state *State) {
	names := make([]string, 0, len(state.Entries))
	validations := map[string][]string{}
	refused := 0
	for _, e := range state.Entries {
		name := e.Policy.Name
		names = append(names, name)
		if named := e.effective().Policy.Spec.ValidationNames(); len(named) > 0 {
			validations[name] = named
		}
		if !e.Accepted() || e.Refusal != "" {
			refused++
		}
	}
	slices.Sort(names)
	l.Metrics.Keep(names, refused)
	l.Metrics.KeepValidations(validations)
}
