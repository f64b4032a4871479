// Package status reports, in each policy's status and in events, what has been
// observed of the policy. Only the leader runs the Reconciler, and every replica
// Repeats.
package status

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
)

const (
	fieldManager = "ostiary-status"
	// workers write statuses at the same time: after a thousand policies have
	// been applied there are a thousand to write.
	workers = 8
	// repairGrace is how long what carried a policy may lack something before its status
	// says so. What somebody edits is put right sooner; to tell of each edit and each
	// repair would be two writes for every policy, which repairs would have to wait for.
	repairGrace = 2 * time.Second
)

// Reconciler keeps each policy's status equal to what is observed.
type Reconciler struct {
	Client client.Client
	Store  *policies.Store
	Events clientevents.EventRecorder
	Clock  clock.PassiveClock
	// Params, Images, Schemas and Types know what policies need besides being registered.
	// Nil is allowed: then nothing is lacking.
	Params  Params
	Listed  Params // of plugins
	Images  Images
	Schemas Schemas
	Types   Types
	// Backends may be nil: then nothing is known of any.
	Backends Backends
	// Conflicts may be nil: then there are none.
	Conflicts Conflicts
	// Warnings say what is risky about a policy. Nil is allowed.
	Warnings func(*v1alpha1.WebhookPolicy) []string
	// Certificate may be nil: then nothing is told of why there is none.
	Certificate Certificate
	// Proof may be nil: then policies have no condition Effective.
	Proof Proof
	// Gate may be nil: then nothing waits for replicas.
	Gate Gate

	written sync.Map // by UID: the status that was written last, which the cache may not show yet
	missed  sync.Map // by name: since when a policy that was registered is found not to be
}

// written is a status with the version of the policy that holds it.
type written struct {
	resourceVersion string
	status          v1alpha1.WebhookPolicyStatus
}

// Controller makes a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("status", controller.Options{
		Reconciler:              r,
		Logger:                  log,
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      ptr.To(true), // the name is taken again in each term
	})
	if err != nil {
		return nil, fmt.Errorf("making the status controller: %w", err)
	}
	for _, s := range []source.Source{
		events.InformerSource(cache, &v1alpha1.WebhookPolicy{}, func(q events.Queue, obj client.Object) { q.Add(request(obj.GetName())) }),
		events.ChannelSource(r.changes, r.enqueueChanged()),
	} {
		if err := c.Watch(s); err != nil {
			return nil, fmt.Errorf("watching for the status controller: %w", err)
		}
	}
	return c, nil
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// Reconcile writes a policy's status if it differs from what is observed, and
// tells of the change in an event.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	var p v1alpha1.WebhookPolicy
	if err := r.Client.Get(ctx, req.NamespacedName, &p); err != nil {
		r.missed.Delete(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	outdated, expires := extractRuntimeConditions(&p, r.Clock.Now())
	defer func() {
		if expires > 0 && err == nil && (result.RequeueAfter == 0 || expires < result.RequeueAfter) {
			result.RequeueAfter = expires
		}
	}()
	for _, manager := range outdated {
		if done, err := writeReport(ctx, r.Client, &p, manager); err != nil || !done {
			return ctrl.Result{RequeueAfter: again}, err
		}
	}
	p.Status = r.latest(&p)
	state := r.Store.State()
	beside := r.inputs(ctx, &p)
	if !shouldReport(&p, state, beside) {
		return ctrl.Result{}, nil // each new state asks again
	}
	want := observe(&p, state, beside, metav1.NewTime(r.Clock.Now()))
	if wait := r.repairWait(&p, want); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if equality.Semantic.DeepEqual(p.Status, want) {
		return requeueAfter(want), nil
	}
	if done, err := r.write(ctx, &p, want); err != nil || !done {
		return ctrl.Result{}, err
	}
	r.recordEvents(&p, p.Status, want, beside.missing, beside.conflict(p.Name, state.Plan))
	r.recordWarnings(&p, want)
	return requeueAfter(want), nil
}

// repairWait is how long to wait for what is registered to be put right before it is
// told that it is not as it should be.
func (r *Reconciler) repairWait(p *v1alpha1.WebhookPolicy, want v1alpha1.WebhookPolicyStatus) time.Duration {
	registered := find(want, v1alpha1.ConditionRegistered)
	if !wasRegistered(p) || registered.Status == metav1.ConditionTrue || registered.Reason != ReasonPending {
		r.missed.Delete(p.Name)
		return 0
	}
	now := r.Clock.Now()
	since, _ := r.missed.LoadOrStore(p.Name, now)
	return since.(time.Time).Add(repairGrace).Sub(now)
}

// requeueAfter is when nothing may tell of the next change: that a replica has gone
// without a word turns out with time.
func requeueAfter(s v1alpha1.WebhookPolicyStatus) ctrl.Result {
	if find(s, v1alpha1.ConditionRegistered).Reason == ReasonWaitingForReplicas {
		return ctrl.Result{RequeueAfter: again}
	}
	return ctrl.Result{}
}

// shouldReport reports whether this replica knows more about a policy than the
// status that stands. A replica that has just started has yet to load the
// policies, the bundle and what they need: to report that would call every policy out of force,
// and in force again a moment later. That it has been registered is told even
// where something is still being read, which may take as long as it likes.
func shouldReport(p *v1alpha1.WebhookPolicy, state *policies.State, beside inputs) bool {
	f, _ := lookUp(p, state)
	blocked := f.waiting && beside.blocked != "" // and will be, until somebody acts
	passing := !blocked && (f.waiting || beside.missing.temporary || beside.proof != nil && beside.proof.Reason == canary.ReasonNotProven)
	registered := f.registered && find(p.Status, v1alpha1.ConditionRegistered).Status != metav1.ConditionTrue
	return f.loaded && (!passing || registered || p.Status.ObservedGeneration != p.Generation)
}

// write reports whether the policy was still as it is known here. If not, the
// cache will say so.
func (r *Reconciler) write(ctx context.Context, p *v1alpha1.WebhookPolicy, want v1alpha1.WebhookPolicyStatus) (done bool, err error) {
	version := p.ResourceVersion
	if value, ok := r.written.Load(p.UID); ok {
		version = value.(written).resourceVersion
	}
	version, err = apply(ctx, r.Client, p, version, &want, fieldManager)
	if isOutdated(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.written.Store(p.UID, written{resourceVersion: version, status: want})
	return true, nil
}

// apply writes what a field manager says of a policy's status, if the policy
// still has that version, and returns the new one. The API server does not look
// at the UID in a status: without the version, the status of a policy that was
// deleted would be that of another of its name which was created since.
func apply(ctx context.Context, c client.Client, p *v1alpha1.WebhookPolicy, version string, status *v1alpha1.WebhookPolicyStatus, manager string) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return "", fmt.Errorf("converting the status of policy %s: %w", p.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicy"))
	u.SetName(p.Name)
	u.SetResourceVersion(version)
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return "", fmt.Errorf("writing the status of policy %s: %w", p.Name, err)
	}
	return u.GetResourceVersion(), nil
}

// isOutdated reports whether a write failed since the policy is gone, or another by now.
func isOutdated(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// latest is the policy's status: as the cache shows it, or as it was written,
// where that is later.
func (r *Reconciler) latest(p *v1alpha1.WebhookPolicy) v1alpha1.WebhookPolicyStatus {
	value, ok := r.written.Load(p.UID)
	if !ok {
		return p.Status
	}
	w := value.(written)
	if order, err := resourceversion.CompareResourceVersion(w.resourceVersion, p.ResourceVersion); err == nil && order > 0 {
		return w.status
	}
	r.written.Delete(p.UID)
	return p.Status
}

// recordEvents emits an event when a policy becomes Ready or stops to be, when it
// lacks a dependency, when a generation of it is rejected, and when another client
// keeps changing its configurations.
func (r *Reconciler) recordEvents(p *v1alpha1.WebhookPolicy, before, after v1alpha1.WebhookPolicyStatus, lack missingDependency, conflict string) {
	was, is := ready(before), ready(after)
	if conflict != "" && !strings.HasPrefix(was.Message, conflict) {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, ReasonOverwritten, "Repair", "%s", short(conflict))
	}
	lacking := is.Reason == lack.reason && lack.message != ""
	switch {
	case newlyRejected(before, after, v1alpha1.ConditionAccepted, ReasonInvalid):
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, is.Reason, "Refuse", "%s", short(is.Message))
	case newlyRejected(before, after, v1alpha1.ConditionRegistered, ReasonRefused):
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, is.Reason, "Register", "%s", short(is.Message))
	case lacking && lack.temporary:
		// As for any new policy.
	case lacking && was.Message != is.Message:
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, is.Reason, "Prepare", "%s", short(is.Message))
	case is.Reason == ReasonWaitingForReplicas, is.Reason == ReasonTakingEffect, conflict != "" && before.ObservedGeneration == after.ObservedGeneration:
		// As after any change, and during each repair.
	case is.Status == metav1.ConditionTrue && was.Status != metav1.ConditionTrue:
		r.Events.Eventf(p, nil, corev1.EventTypeNormal, is.Reason, "Register", "%s", short(is.Message))
	case is.Status != metav1.ConditionTrue && is.Reason == find(after, v1alpha1.ConditionEffective).Reason:
		// The canary emits one event for all policies.
	case is.Status != metav1.ConditionTrue && was.Status == metav1.ConditionTrue:
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, is.Reason, "Register", "%s", short(is.Message))
	}
}

// newlyRejected reports whether a condition is false for a reason, and was not
// for this generation.
func newlyRejected(before, after v1alpha1.WebhookPolicyStatus, kind, reason string) bool {
	was, is := find(before, kind), find(after, kind)
	return is.Status == metav1.ConditionFalse && is.Reason == reason &&
		(was.Status != metav1.ConditionFalse || was.Reason != reason || was.ObservedGeneration != is.ObservedGeneration)
}

// recordWarnings tells once, of each generation that is accepted, what is risky about it:
// who applied it has heard so only if the webhook for policies was called. It
// is no condition, since the policy works as it was written.
func (r *Reconciler) recordWarnings(p *v1alpha1.WebhookPolicy, after v1alpha1.WebhookPolicyStatus) {
	was, is := find(p.Status, v1alpha1.ConditionAccepted), find(after, v1alpha1.ConditionAccepted)
	told := was.Status == metav1.ConditionTrue && was.ObservedGeneration == is.ObservedGeneration
	if r.Warnings == nil || told || is.Status != metav1.ConditionTrue {
		return
	}
	if warnings := r.Warnings(p); len(warnings) > 0 {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, ReasonRisky, "Review", "%s", short(strings.Join(warnings, "\n")))
	}
}
