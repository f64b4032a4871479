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
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	repeatsManager = "ostiary-repeats"
	panicsManager  = "ostiary-panics"
	// checkTime bounds one check of a request's mutations.
	checkTime = time.Second
	// panicsShown is how long the condition Panicking stands. The next panic after
	// that brings it back.
	panicsShown = 5 * time.Minute
	// again is after how long a condition is tried again that could not be
	// written yet.
	again = 2 * time.Second
)

// RuntimeReporter tells of policies whose mutations change their own result again, and
// of those whose evaluation panics. Any replica may find one in the requests
// that it answers, so each tells of its own finds: in a
// condition for each that has a field manager to itself, which the leader's
// reports leave alone, and in an event by the replica that was first.
type RuntimeReporter struct {
	Client client.Client
	Events clientevents.EventRecorder
	Clock  clock.PassiveClock
	// Replica is this replica's name.
	Replica string

	listeners events.Broadcaster
	checking  atomic.Bool

	mu    sync.Mutex
	found map[reportKey]report // not told yet
}

// reportKey is the policy's name and the condition's type.
type reportKey struct{ policy, kind string }

// report is something to tell of a generation of a policy.
type report struct {
	policy     string
	uid        types.UID
	generation int64
	condition  metav1.Condition
	manager    string // of the condition
	action     string // of the event
}

func (f report) key() reportKey { return reportKey{f.policy, f.condition.Type} }

// SetupWithManager adds the controller that tells, on every replica.
func (r *RuntimeReporter) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.New("repeats", mgr, controller.Options{Reconciler: r, NeedLeaderElection: ptr.To(false)})
	if err != nil {
		return fmt.Errorf("making the controller of repeats: %w", err)
	}
	if err := c.Watch(events.ChannelSource(r.listeners.Subscribe, r.enqueueAll)); err != nil {
		return fmt.Errorf("watching for the controller of repeats: %w", err)
	}
	return nil
}

// Later runs a check beside the requests. There is one at a time: who comes
// meanwhile is left out, so that checks never take more than one processor.
func (r *RuntimeReporter) Later(check func(ctx context.Context)) {
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

// Found takes in a policy that is not idempotent.
func (r *RuntimeReporter) Found(found policy.Repeat) {
	r.add(report{policy: found.Policy, uid: found.UID, generation: found.Generation, manager: repeatsManager, action: "Check",
		condition: metav1.Condition{
			Type: v1alpha1.ConditionIdempotent, Status: metav1.ConditionFalse, Reason: ReasonNotIdempotent, Message: repeatsMessage(found.Mutations),
		}})
}

// Panicked takes in a policy whose evaluation panicked.
func (r *RuntimeReporter) Panicked(found policy.PanicReport) {
	r.add(report{policy: found.Policy, uid: found.UID, generation: found.Generation, manager: panicsManager, action: "Evaluate",
		condition: metav1.Condition{
			Type: v1alpha1.ConditionPanicking, Status: metav1.ConditionTrue, Reason: ReasonPanicked, Message: fmt.Sprintf(
				"an evaluation panicked on replica %s, and failurePolicy was applied to its request: report the stack trace in the log of that replica", r.Replica),
		}})
}

func (r *RuntimeReporter) add(f report) {
	r.mu.Lock()
	if r.found == nil {
		r.found = map[reportKey]report{}
	}
	r.found[f.key()] = f
	r.mu.Unlock()
	r.listeners.Notify()
}

func (r *RuntimeReporter) enqueueAll(q events.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.found {
		q.Add(request(key.policy))
	}
}

// changed lists what is to be told of a policy.
func (r *RuntimeReporter) of(policy string) []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []report
	for key, f := range r.found {
		if key.policy == policy {
			out = append(out, f)
		}
	}
	return out
}

// Reconcile tells of what was found of one policy.
func (r *RuntimeReporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var result ctrl.Result
	for _, f := range r.of(req.Name) {
		told, err := r.tell(ctx, f)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !told {
			result.RequeueAfter = again
			continue
		}
		r.forget(f)
	}
	return result, nil
}

func (r *RuntimeReporter) forget(f report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.found[f.key()]; now.uid == f.uid && now.generation == f.generation {
		delete(r.found, f.key())
	}
}

// recordEvents reports whether nothing is left to tell: the condition stands, or what it
// would be about is no more. It waits for the leader to report on a generation
// first, so that all conditions are about the same one.
func (r *RuntimeReporter) tell(ctx context.Context, f report) (done bool, err error) {
	var p v1alpha1.WebhookPolicy
	err = r.Client.Get(ctx, client.ObjectKey{Name: f.policy}, &p)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("getting policy %s: %w", f.policy, err)
	case p.UID != f.uid || p.Generation != f.generation || about(meta.FindStatusCondition(p.Status.Conditions, f.condition.Type), p.Generation):
		return true, nil
	case p.Status.ObservedGeneration != p.Generation:
		return false, nil
	}
	c := f.condition
	c.ObservedGeneration, c.LastTransitionTime = p.Generation, metav1.NewTime(r.Clock.Now())
	written, err := writeReport(ctx, r.Client, &p, f.manager, c)
	if written {
		r.Events.Eventf(&p, nil, corev1.EventTypeWarning, c.Reason, f.action, "%s", short(c.Message))
	}
	return written, err
}

// writeReport writes a condition, or takes it out where there is none, unless
// the policy is no longer as it is known here.
func writeReport(ctx context.Context, c client.Client, p *v1alpha1.WebhookPolicy, manager string, conditions ...metav1.Condition) (written bool, err error) {
	_, err = apply(ctx, c, p, p.ResourceVersion, &v1alpha1.WebhookPolicyStatus{Conditions: conditions}, manager)
	if isOutdated(err) {
		return false, nil
	}
	return err == nil, err
}

// extractRuntimeConditions takes the conditions that Repeats wrote out of a status, which the
// leader's reports leave alone. outdated are the field managers of those that
// are about another generation, or whose time is over. That depends on nothing
// but the condition, so it holds after a restart of any replica. expires is how
// long the condition Panicking stands yet; 0 if it does not.
func extractRuntimeConditions(p *v1alpha1.WebhookPolicy, now time.Time) (outdated []string, expires time.Duration) {
	for _, told := range []struct {
		kind, manager string
		shown         time.Duration
	}{{v1alpha1.ConditionIdempotent, repeatsManager, 0}, {v1alpha1.ConditionPanicking, panicsManager, panicsShown}} {
		c := meta.FindStatusCondition(p.Status.Conditions, told.kind)
		if c == nil {
			continue
		}
		left := told.shown - now.Sub(c.LastTransitionTime.Time).Abs() // a replica's clock may be ahead
		if !about(c, p.Generation) || told.shown > 0 && left <= 0 {
			outdated = append(outdated, told.manager)
		} else if told.shown > 0 {
			expires = left
		}
		meta.RemoveStatusCondition(&p.Status.Conditions, told.kind)
	}
	return outdated, expires
}

func about(c *metav1.Condition, generation int64) bool {
	return c != nil && c.ObservedGeneration == generation
}

// repeatsMessage says which mutations are not idempotent, and what to do.
func repeatsMessage(mutations []int) string {
	fields := make([]string, len(mutations))
	for i, index := range mutations {
		fields[i] = fmt.Sprintf("spec.mutations[%d]", index)
	}
	return "mutations are not idempotent: " + strings.Join(fields, ", ") + " changed an object that the policy had mutated before:" +
		" add a match condition, or an expression that leaves such objects unchanged"
}
