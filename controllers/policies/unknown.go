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
func (l *Loader) findUnknown(state *State, observed []registration.Configuration) (doubtful []unknownPolicy) {
	before := l.Store.State()
	state.gone, state.pending = sets.New[types.UID](), map[registration.GroupKey]string{}
	for _, s := range unknownPolicies(state, observed) {
		if before.wasLoaded(s.uid) {
			state.gone.Insert(s.uid)
			continue
		}
		state.pending[s.group] = s.name
		doubtful = append(doubtful, s)
	}
	return doubtful
}

// resolveUnknown asks the API server which of the unknown policies exist, outside of any
// request, and returns a state that evaluates the groups of those that do not.
func (l *Loader) resolveUnknown(ctx context.Context, state *State, doubtful []unknownPolicy) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, liveReadTimeout)
	defer cancel()
	existing, err := l.Existing(ctx)
	if err != nil {
		return nil, err
	}
	out := *state
	out.gone, out.pending = state.gone.Clone(), map[registration.GroupKey]string{}
	for _, s := range doubtful {
		if uid, exists := existing[s.name]; exists && (s.uid == "" || s.uid == uid) {
			out.pending[s.group] = s.name
		} else if s.uid != "" {
			out.gone.Insert(s.uid)
		}
	}
	return &out, nil
}

// wasLoaded reports whether a policy was loaded before. It has been deleted if it is not
// loaded now.
func (s *State) wasLoaded(uid types.UID) bool {
	return s != nil && uid != "" && (s.Entries[uid] != nil || s.gone.Has(uid))
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
		group, owners := key, sets.New[string]()
		for _, owner := range config.GetOwnerReferences() {
			if !strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/") {
				continue
			}
			owners.Insert(owner.Name)
			if state.Entries[owner.UID] == nil {
				out = append(out, unknownPolicy{group, owner.Name, owner.UID})
			}
		}
		for _, name := range registration.Members(config) {
			if !names.Has(name) && !owners.Has(name) {
				out = append(out, unknownPolicy{group: group, name: name})
			}
		}
	}
	return out
}

// existing reads the names and UIDs of all policies from the API server.
func existing(ctx context.Context, live client.Reader) (map[string]types.UID, error) {
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
