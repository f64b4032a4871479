// Package policies loads every WebhookPolicy on every replica: it compiles
// them, groups them into calls, and answers admission requests with the result.
package policies

import (
	"context"
	"fmt"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

// Entry is one policy as this replica has loaded it.
type Entry struct {
	// Policy is shared with the cache and must not be changed.
	Policy *v1alpha1.WebhookPolicy
	// Compiled answers requests; where Errors is not empty, with these errors.
	Compiled *policy.Compiled
	// Errors say why the policy is not accepted.
	Errors field.ErrorList
	// Planned is false for a policy that is not accepted and was not in force
	// before: it is not registered.
	Planned bool
	// Refusal is what the API server said when it refused to register this
	// generation, empty where it did not. Where an earlier generation is at
	// hand that it carried, that one stays in force: see InForce.
	Refusal string
	// DelegationError is what the API server said when it refused to evaluate this
	// policy's conditions, which Ostiary evaluates alone then.
	DelegationError string

	// lastGood is that earlier generation. It is kept until this one is carried.
	lastGood *Entry
	// engine is the one that Compiled behaves like.
	engine policy.Engine
	// registrable is false where no webhook may ever be registered for it.
	registrable bool
	prepared    registration.Entry
	// placeholder is set for what stands in for an earlier generation that is not known.
	placeholder bool
	// hasBundle is set where the CA bundle of a backend is known.
	hasBundle bool
	bundle    []byte
}

// Accepted reports whether the policy may be in force.
func (e *Entry) Accepted() bool { return len(e.Errors) == 0 }

// effective is the entry that is in force for a policy: itself, or the generation
// before if the API server refuses this one, or this one has no CA bundle yet.
func (e *Entry) effective() *Entry {
	if (e.Refusal != "" || e.lacksBundle()) && e.lastGood != nil {
		return e.lastGood
	}
	return e
}

// InForce is the generation that is, or is to be, registered; 0 where none is.
func (e *Entry) InForce() int64 {
	if !e.Planned {
		return 0
	}
	return e.effective().Policy.Generation
}

// State is everything that this replica has loaded at one moment. It is immutable.
type State struct {
	Entries map[types.UID]*Entry
	// Version is a resource version up to which every change of a policy is
	// in this state.
	Version string
	// Plan is the configurations that the loaded policies ask for; it has none
	// while there is no trust bundle to register with.
	Plan registration.Plan
	// View tells which policies the observed configurations carry.
	View registration.View
	// Registrable is false while there is no trust bundle.
	Registrable bool

	input registration.Input // of Plan
	// groups answer requests.
	groups map[registration.GroupKey]*policy.Group
	// pending are the call groups that are not answered for, each with a policy
	// that is missing.
	pending map[registration.GroupKey]string
	// gone are deleted policies that configurations still name.
	gone sets.Set[types.UID]
}

// Store holds the current state and answers with it.
type Store struct {
	Host policy.Environment

	state     atomic.Pointer[State]
	waiting   atomic.Int64 // requests, for what is not loaded
	listeners events.Broadcaster
}

// Registered reports whether the configurations in the API server carry the
// policy as it is loaded, in which webhooks, and if not, why.
func (s *State) Registered(e *Entry) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	return s.View.Registered(e.effective().prepared)
}

// Held reports whether the policy is registered, and not yet with the
// failurePolicy Fail that it asks for.
func (s *State) Held(e *Entry) bool { return s.View.HeldAtIgnore(e.effective().prepared) }

// State is what is loaded, nil before the first load.
func (s *Store) State() *State { return s.state.Load() }

// Loaded is an error until every policy that existed when this replica
// started has been compiled or found broken.
func (s *Store) Loaded() error {
	if s.State() == nil {
		return fmt.Errorf("policies are not loaded yet")
	}
	return nil
}

// Subscribe gives a channel that receives after each new state, until ctx
// ends. A receiver that is busy misses nothing but repetitions.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// publish makes a state the current one.
func (s *Store) publish(state *State) {
	s.state.Store(state)
	s.listeners.Notify()
}

// Evaluate answers a request with the policies of a call group.
func (s *Store) Evaluate(ctx context.Context, key registration.GroupKey, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	g, err := s.group(ctx, key)
	if err != nil {
		return nil, err
	}
	if key.Phase == registration.PhaseMutate {
		return g.Mutate(ctx, request, s.Host)
	}
	return g.Validate(ctx, request, s.Host)
}
