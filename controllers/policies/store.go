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

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// State is the state of this replica at one moment. It is immutable.
type State struct {
	Entries map[types.UID]*Entry
	// Versions has the resource versions up to which the state contains every change.
	Versions versionskew.Vector
	// Plan holds the configurations of the loaded policies. It is empty while there is no
	// trust bundle.
	Plan registration.Plan
	// View holds the policies of the observed configurations.
	View registration.View
	// Registrable is false while there is no trust bundle.
	Registrable bool

	input registration.Input // of Plan
	// withheld are the fields for which this replica uses a previous generation of policies,
	// because another replica does not know them; see versionskew.Report.
	withheld string
	// groups evaluate requests.
	groups map[registration.GroupKey]*policy.Group
	// unknown are the policies that configurations name and that may exist unloaded.
	unknown []unknownPolicy
	// pending holds the call groups that cannot be evaluated, each with a policy that is
	// not loaded.
	pending map[registration.GroupKey]string
	// deleted holds deleted policies that configurations still name.
	deleted sets.Set[types.UID]
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

// Evaluate evaluates the policies of a call group on a request. Warnings name its object.
func (s *Store) Evaluate(
	ctx context.Context, key registration.GroupKey, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	g, err := s.group(ctx, key)
	if err != nil {
		return nil, err
	}
	evaluate := g.Validate
	if key.Phase == registration.PhaseMutate {
		evaluate = g.Mutate
	}
	response, err := evaluate(ctx, request, s.Host)
	if err == nil {
		response.Warnings = policy.NameObject(response.Warnings, request)
	}
	return response, err
}
