package status

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/single"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	repeatsManager = "ostiary-repeats"
	// checkTime bounds one check of a request's mutations.
	checkTime = time.Second
	// again is after how long a condition is tried again that could not be
	// written yet.
	again = 2 * time.Second
)

// Repeats tells of policies whose mutations change their own result again. Any
// replica may find one in the requests that it answers, so each tells of its own
// finds: in a condition that has a field manager to itself, which the leader's
// reports leave alone, and in an event by the replica that was first.
type Repeats struct {
	Client client.Client
	Events events.EventRecorder
	Clock  clock.PassiveClock

	listeners single.Listeners
	checking  atomic.Bool

	mu    sync.Mutex
	found map[string]policy.Repeat // by policy; not told yet
}

// SetupWithManager adds the controller that tells, on every replica.
func (r *Repeats) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.New("repeats", mgr, controller.Options{Reconciler: r, NeedLeaderElection: ptr.To(false)})
	if err != nil {
		return fmt.Errorf("making the controller of repeats: %w", err)
	}
	if err := c.Watch(single.Signals(r.listeners.Subscribe, r.enqueueAll)); err != nil {
		return fmt.Errorf("watching for the controller of repeats: %w", err)
	}
	return nil
}

// Later runs a check beside the requests. There is one at a time: who comes
// meanwhile is left out, so that checks never take more than one processor.
func (r *Repeats) Later(check func(ctx context.Context)) {
	if !r.checking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer r.checking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		check(ctx)
	}()
}

// Found takes in a find.
func (r *Repeats) Found(found policy.Repeat) {
	r.mu.Lock()
	if r.found == nil {
		r.found = map[string]policy.Repeat{}
	}
	r.found[found.Policy] = found
	r.mu.Unlock()
	r.listeners.Tell()
}

func (r *Repeats) enqueueAll(q single.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.found {
		q.Add(request(name))
	}
}

// Reconcile tells of what was found of one policy.
func (r *Repeats) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	found, ok := r.found[req.Name]
	r.mu.Unlock()
	if !ok {
		return ctrl.Result{}, nil
	}
	told, err := r.tell(ctx, found)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !told {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.found[req.Name]; now.UID == found.UID && now.Generation == found.Generation {
		delete(r.found, req.Name)
	}
	return ctrl.Result{}, nil
}

// tell reports whether nothing is left to tell: the condition stands, or what it
// would be about is no more. It waits for the leader to report on a generation
// first, so that all conditions are about the same one.
func (r *Repeats) tell(ctx context.Context, found policy.Repeat) (done bool, err error) {
	var p v1alpha1.WebhookPolicy
	err = r.Client.Get(ctx, client.ObjectKey{Name: found.Policy}, &p)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("getting policy %s: %w", found.Policy, err)
	case p.UID != found.UID || p.Generation != found.Generation || about(repeatOf(&p.Status), p.Generation):
		return true, nil
	case p.Status.ObservedGeneration != p.Generation:
		return false, nil
	}
	c := metav1.Condition{
		Type: v1alpha1.ConditionIdempotent, Status: metav1.ConditionFalse, Reason: ReasonNotIdempotent, Message: repeats(found.Mutations),
		ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	written, err := writeRepeat(ctx, r.Client, &p, c)
	if written {
		r.Events.Eventf(&p, nil, corev1.EventTypeWarning, c.Reason, "Check", "%s", short(c.Message))
	}
	return written, err
}

// writeRepeat writes the condition, or takes it out where there is none, unless
// the policy is no longer as it is known here.
func writeRepeat(ctx context.Context, c client.Client, p *v1alpha1.WebhookPolicy, conditions ...metav1.Condition) (written bool, err error) {
	_, err = apply(ctx, c, p, p.ResourceVersion, &v1alpha1.WebhookPolicyStatus{Conditions: conditions}, repeatsManager)
	if passed(err) {
		return false, nil
	}
	return err == nil, err
}

// repeatOf is the condition that Repeats wrote, nil if there is none.
func repeatOf(s *v1alpha1.WebhookPolicyStatus) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionIdempotent)
}

func about(c *metav1.Condition, generation int64) bool {
	return c != nil && c.ObservedGeneration == generation
}

// repeats says which mutations are not idempotent, and what to do.
func repeats(mutations []int) string {
	fields := make([]string, len(mutations))
	for i, index := range mutations {
		fields[i] = fmt.Sprintf("spec.mutations[%d]", index)
	}
	return "applied to its own result, the policy changed the object again, by " + strings.Join(fields, ", ") +
		", as it may on every update: let a mutation change nothing where its work is done, by its expression or a match condition"
}
