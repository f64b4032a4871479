package status

import (
	"context"
	"fmt"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
)

// maxAdvice is the number of warnings in a message. The rest is in other fields.
const maxAdvice = 3

// Resources holds the resources that the API server serves.
type Resources interface {
	// Served returns nil while they are not known.
	Served() map[schema.GroupVersion][]metav1.APIResource
	// Version changes with what Served returns.
	Version() uint64
	Subscribe(ctx context.Context) <-chan struct{}
}

// unmatched holds the rules of a policy that match no request.
type unmatched struct {
	warnings []string
	all      bool // no rule matches any request
}

// unmatchedRules returns the rules that match no request. It is called for every policy
// after each change of any, and keeps the results until the resources change.
type unmatchedRules struct {
	mu      sync.Mutex
	version uint64
	known   map[types.UID]unmatchedGeneration
}

type unmatchedGeneration struct {
	generation int64
	unmatched
}

func (u *unmatchedRules) of(p *v1alpha1.WebhookPolicy, resources Resources) unmatched {
	if resources == nil {
		return unmatched{}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if version := resources.Version(); u.known == nil || version != u.version {
		u.version, u.known = version, map[types.UID]unmatchedGeneration{}
	}
	if known, ok := u.known[p.UID]; ok && known.generation == p.Generation {
		return known.unmatched
	}
	var found unmatched
	found.warnings, found.all = validation.Unmatched(p, validation.ClusterInfo{Resources: resources.Served()})
	u.known[p.UID] = unmatchedGeneration{p.Generation, found}
	return found
}

// forget removes the results for policies that are gone.
func (u *unmatchedRules) forget(exists func(types.UID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid := range u.known {
		if !exists(uid) {
			delete(u.known, uid)
		}
	}
}

// advice lists the rules that match no request and the problems of types.
func advice(rules unmatched, found *admissionregistrationv1.TypeChecking) []string {
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
