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

// Entry is a loaded policy.
type Entry struct {
	// Policy is shared with the cache and must not be changed.
	Policy *v1alpha1.WebhookPolicy
	// Compiled evaluates requests. With Errors, its failurePolicy decides them.
	Compiled *policy.Compiled
	// Errors explain why the policy is not accepted.
	Errors field.ErrorList
	// Planned is false for a policy that is not accepted and was not effective before: it
	// is not registered.
	Planned bool
	// Refusal is the API server's reason to reject the registration of this generation,
	// or empty. An earlier generation that was registered stays effective: see
	// EffectiveGeneration.
	Refusal string
	// DelegationError is the API server's reason to reject the conditions of this policy.
	// Ostiary alone then evaluates them.
	DelegationError string

	// lastGood is that earlier generation. It is kept until this one is registered.
	lastGood *Entry
	// engine is the engine that Compiled behaves like.
	engine policy.Engine
	// registrable is false if no webhook may be registered for the policy.
	registrable bool
	prepared    registration.Entry
	// placeholder means that the entry replaces an earlier generation that is not known.
	placeholder bool
	// loadedVersion is empty if Policy has the version that was loaded first.
	loadedVersion string
	// hasBundle means that the CA bundle of the backend is known.
	hasBundle bool
	bundle    []byte
}

// Accepted reports whether the policy can take effect.
func (e *Entry) Accepted() bool { return len(e.Errors) == 0 }

// effective returns the effective entry of a policy: itself, or the previous generation
// if the API server rejects this one or its backend has no CA bundle yet.
func (e *Entry) effective() *Entry {
	if (e.Refusal != "" || e.lacksBundle()) && e.lastGood != nil {
		return e.lastGood
	}
	return e
}

// Effective returns the policy that decides requests, with its compiled form: of an earlier
// generation, if this one cannot be registered.
func (e *Entry) Effective() (*v1alpha1.WebhookPolicy, *policy.Compiled) {
	of := e.effective()
	return of.Policy, of.Compiled
}

// EffectiveGeneration returns the generation that is, or will be, registered; 0 if none
// is.
func (e *Entry) EffectiveGeneration() int64 {
	if !e.Planned {
		return 0
	}
	return e.effective().Policy.Generation
}

// State is the state of this replica at one moment. It is immutable.
type State struct {
	Entries map[types.UID]*Entry
	// Version is a resource version. The state contains every change of a policy up to
	// it.
	Version string
	// Plan holds the configurations of the loaded policies. It is empty while there is no
	// trust bundle.
	Plan registration.Plan
	// View holds the policies of the observed configurations.
	View registration.View
	// Registrable is false while there is no trust bundle.
	Registrable bool

	input registration.Input // of Plan
	// groups evaluate requests.
	groups map[registration.GroupKey]*policy.Group
	// pending holds the call groups that cannot be evaluated, each with a policy that is
	// not loaded.
	pending map[registration.GroupKey]string
	// gone holds deleted policies that configurations still name.
	gone sets.Set[types.UID]
}

// Store holds the current state and evaluates requests with it.
type Store struct {
	Host policy.Environment

	state     atomic.Pointer[State]
	waiting   atomic.Int64 // requests that wait for what is not loaded
	listeners events.Broadcaster
}

// Registered reports whether the observed configurations contain the loaded policy, in
// which webhooks, and otherwise the reason.
func (s *State) Registered(e *Entry) (refs []v1alpha1.WebhookReference, ok bool, why string) {
	return s.View.Registered(e.effective().prepared)
}

// Held reports whether the policy is registered with Ignore instead of its failurePolicy
// Fail.
func (s *State) Held(e *Entry) bool { return s.View.HeldAtIgnore(e.effective().prepared) }

// State returns the current state, nil before the first load.
func (s *Store) State() *State { return s.state.Load() }

// Loaded returns an error until every policy that existed at the start of this replica
// has been compiled.
func (s *Store) Loaded() error {
	if s.State() == nil {
		return fmt.Errorf("policies are not loaded yet")
	}
	return nil
}

// Subscribe returns a channel that receives after each new state, until ctx ends. A busy
// receiver misses only repetitions.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

// publish sets the current state.
func (s *Store) publish(state *State) {
	s.state.Store(state)
	s.listeners.Notify()
}

// Evaluate evaluates the policies of a call group on a request.
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
