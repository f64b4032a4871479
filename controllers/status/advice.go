package status

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/validation"
)

// maxAdvice is the number of warnings in a message. The rest is in other fields.
const maxAdvice = 3

// resources are those that the API server serves.
type resources interface {
	// Served returns nil while they are not known.
	Served() map[schema.GroupVersion][]metav1.APIResource
	// Version changes with what Served returns.
	Version() uint64
	subscriber
}

// Resources is the Source for rules that match no request, because the API server does
// not serve their resources.
func Resources(known resources, store *policies.Store) Source {
	rules := unmatchedRules{resources: known, isLoaded: func(uid types.UID) bool {
		state := store.State()
		return state != nil && state.Entries[uid] != nil
	}}
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		in.rules = rules.find(p)
	}}
}

// unmatched holds the rules of a policy that match no request.
type unmatched struct {
	warnings []string
	all      bool // no rule matches any request
}

// unmatchedRules finds the rules that match no request. It is called for every policy
// after each change of any, so it keeps the results until the resources change.
type unmatchedRules struct {
	resources resources
	isLoaded  func(types.UID) bool

	mu      sync.Mutex
	version uint64
	known   map[types.UID]unmatchedGeneration
	// pruneAt is the number of results at which those of deleted policies are removed.
	pruneAt int
}

// minPrune bounds the results that are kept for deleted policies, besides as many as there
// are policies.
const minPrune = 64

type unmatchedGeneration struct {
	generation int64
	unmatched
}

func (u *unmatchedRules) find(p *v1alpha1.WebhookPolicy) unmatched {
	u.mu.Lock()
	defer u.mu.Unlock()
	if version := u.resources.Version(); u.known == nil || version != u.version {
		u.version, u.known = version, map[types.UID]unmatchedGeneration{}
	}
	if known, ok := u.known[p.UID]; ok && known.generation == p.Generation {
		return known.unmatched
	}
	u.prune()
	var found unmatched
	found.warnings, found.all = validation.Unmatched(p, validation.ClusterInfo{Resources: u.resources.Served()})
	u.known[p.UID] = unmatchedGeneration{p.Generation, found}
	return found
}

// prune removes the results for deleted policies, each time that their number may have
// doubled, so that it takes constant time for each result.
func (u *unmatchedRules) prune() {
	if len(u.known) < u.pruneAt {
		return
	}
	maps.DeleteFunc(u.known, func(uid types.UID, _ unmatchedGeneration) bool { return !u.isLoaded(uid) })
	u.pruneAt = 2*len(u.known) + minPrune
}

// warningsOf lists the rules that match no request and the problems of types.
func warningsOf(rules unmatched, found *admissionregistrationv1.TypeChecking) []string {
	out := rules.warnings
	if found != nil {
		for _, w := range found.ExpressionWarnings {
			out = append(out[:len(out):len(out)], w.FieldRef+": "+w.Warning)
		}
	}
	return out
}

// acceptedMessage is followed by the first warnings.
func acceptedMessage(warnings []string) string {
	const accepted = "every expression compiles"
	if len(warnings) == 0 {
		return accepted
	}
	shown := warnings[:min(len(warnings), maxAdvice)]
	message := accepted + ", with warnings: " + strings.Join(shown, "; ")
	if more := len(warnings) - len(shown); more > 0 {
		message += fmt.Sprintf("; and %d more: see status.typeChecking", more)
	}
	return message
}
