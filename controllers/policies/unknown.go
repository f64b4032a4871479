package policies

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// retryInterval is the time before another search for a policy that a configuration names
// and that is not loaded.
const retryInterval = 500 * time.Millisecond

// liveReadTimeout is the time limit for reads from the API server.
const liveReadTimeout = 5 * time.Second

// unknownPolicy is a policy that a configuration names and that is not loaded.
type unknownPolicy struct {
	group registration.GroupKey
	name  string
	uid   types.UID // empty if the configuration has no owner reference to it
}

// findUnknown makes the state evaluate no call group whose configuration names a policy
// that this replica has not loaded: the cache of configurations is ahead of that of
// policies. Without the policy, a request could wrongly be allowed. A policy that was
// loaded before has been deleted.
func (s *State) findUnknown(seen *observation) {
	s.deleted = sets.New[types.UID]()
	s.pending = map[registration.GroupKey]string{}
	for _, named := range unknownPolicies(s, seen.configurations) {
		if seen.previous.wasLoaded(named.uid) {
			s.deleted.Insert(named.uid)
			continue
		}
		s.pending[named.group] = named.name
		s.unknown = append(s.unknown, named)
	}
}

// resolveUnknown asks the API server which of the unknown policies exist, outside of any
// request, and returns a state that evaluates the groups of those that do not.
func (l *Loader) resolveUnknown(ctx context.Context, state *State) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, liveReadTimeout)
	defer cancel()
	existing, err := l.Existing(ctx)
	if err != nil {
		return nil, err
	}
	out := *state
	out.deleted = state.deleted.Clone()
	out.pending = map[registration.GroupKey]string{}
	for _, named := range state.unknown {
		if uid, exists := existing[named.name]; exists && (named.uid == "" || named.uid == uid) {
			out.pending[named.group] = named.name
		} else if named.uid != "" {
			out.deleted.Insert(named.uid)
		}
	}
	return &out, nil
}

// wasLoaded reports whether a policy was loaded before. It has been deleted if it is not
// loaded now.
func (s *State) wasLoaded(uid types.UID) bool {
	return s != nil && uid != "" && (s.Entries[uid] != nil || s.deleted.Has(uid))
}

func unknownPolicies(state *State, observed []registration.Configuration) []unknownPolicy {
	names := make(sets.Set[string], len(state.Entries))
	for _, e := range state.Entries {
		names.Insert(e.Policy.Name)
	}
	var out []unknownPolicy
	for _, config := range observed {
		key, ok := registration.GroupOf(config)
		if !ok {
			continue
		}
		owners := sets.New[string]()
		for _, owner := range config.GetOwnerReferences() {
			if !strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/") {
				continue
			}
			owners.Insert(owner.Name)
			if state.Entries[owner.UID] == nil {
				out = append(out, unknownPolicy{key, owner.Name, owner.UID})
			}
		}
		for _, name := range registration.Members(config) {
			if !names.Has(name) && !owners.Has(name) {
				out = append(out, unknownPolicy{group: key, name: name})
			}
		}
	}
	return out
}

// existingPolicies reads the names and UIDs of all policies from the API server.
func existingPolicies(ctx context.Context, live client.Reader) (map[string]types.UID, error) {
	list, err := liveVersions(ctx, live)
	if err != nil {
		return nil, err
	}
	out := make(map[string]types.UID, len(list.Items))
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].UID
	}
	return out, nil
}
