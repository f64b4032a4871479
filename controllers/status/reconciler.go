// Package status writes the observed state of each policy to its status, and to
// events. Only the leader runs the Reconciler; every replica runs a RuntimeReporter.
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
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
)

const (
	fieldManager = "ostiary-status"
	// workers is the number of statuses that are written concurrently.
	workers = 8
	// repairGrace is how long a registered policy may be found not registered before
	// its status says so. Edits are usually repaired sooner; reporting each edit and
	// repair would be two writes for every policy, which would delay the repairs.
	repairGrace = 2 * time.Second
	// retryInterval is the time until a status is observed again that depends on
	// replicas whose end no event reports.
	retryInterval = 2 * time.Second
)

// Reconciler keeps the status of each policy equal to its observed state.
type Reconciler struct {
	Client client.Client
	Store  *policies.Store
	Events clientevents.EventRecorder
	Clock  clock.PassiveClock
	// Sources observe everything else that statuses depend on. If a policy lacks several
	// things, its status reports what the first of these sources finds missing.
	Sources []Source
	// Warnings returns the risks of a policy.
	Warnings func(*v1alpha1.WebhookPolicy) []string

	written      sync.Map // by UID: the last written status, which the cache may not show yet
	unregistered sync.Map // by name: since when a registered policy is found not registered
	stages       sync.Map // by name: remembered
}

// written is a status with the resource version of its policy.
type written struct {
	resourceVersion string
	status          v1alpha1.WebhookPolicyStatus
}

// Controller returns a controller for one term of leadership.
func (r *Reconciler) Controller(cache ctrlcache.Cache, log logr.Logger) (controller.Controller, error) {
	c, err := controller.NewUnmanaged("status", controller.Options{
		Reconciler:              r,
		Logger:                  log,
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      ptr.To(true), // each term uses the name again
	})
	if err != nil {
		return nil, fmt.Errorf("making the status controller: %w", err)
	}
	var detector changeDetector
	anyPolicy := func(*v1alpha1.WebhookPolicy) bool { return true }
	watched := []source.Source{
		events.InformerSource(cache, &v1alpha1.WebhookPolicy{}, func(q events.Queue, obj client.Object) { q.Add(request(obj.GetName())) }),
		events.ChannelSource(r.changes, r.enqueueChanged(&detector, anyPolicy)),
	}
	for _, s := range r.Sources {
		if s.concerns != nil {
			watched = append(watched, events.ChannelSource(s.subscribe, r.enqueueChanged(&detector, s.concerns)))
		}
	}
	for _, s := range watched {
		if err := c.Watch(s); err != nil {
			return nil, fmt.Errorf("watching for the status controller: %w", err)
		}
	}
	return c, nil
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// Reconcile writes the status of a policy if it differs from the observed state, and
// records an event of the change.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	state := r.Store.State()
	if state == nil {
		return ctrl.Result{}, nil // the first state enqueues every policy
	}
	var p v1alpha1.WebhookPolicy // shares everything but its own fields with the cache
	if err := r.Client.Get(ctx, req.NamespacedName, &p, client.UnsafeDisableDeepCopy); err != nil {
		r.unregistered.Delete(req.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p.Status = r.latest(&p)
	in := r.inputs(ctx, &p)
	if !shouldReport(&p, state, in) {
		return ctrl.Result{}, nil // each new state enqueues the policy again
	}
	next := r.nextStages(ctx, &p, &in)
	want := observe(&p, state, in, &next, metav1.NewTime(r.Clock.Now()))
	if wait := r.repairWait(&p, want); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if equality.Semantic.DeepEqual(p.Status, want) {
		r.remember(&p, &next)
		return r.requeue(&p, want, next.requeue), nil
	}
	if done, err := r.write(ctx, &p, want); err != nil || !done {
		return ctrl.Result{}, err
	}
	r.remember(&p, &next)
	r.recordEvents(&p, p.Status, want, in.missing)
	r.recordStages(&p, next.events)
	r.recordWarnings(&p, want)
	return r.requeue(&p, want, next.requeue), nil
}

// repairWait returns how long to wait for a repair before the status says that the
// policy is not registered.
func (r *Reconciler) repairWait(p *v1alpha1.WebhookPolicy, want v1alpha1.WebhookPolicyStatus) time.Duration {
	registered := find(want, v1alpha1.ConditionRegistered)
	if !wasRegistered(p) || registered.Status == metav1.ConditionTrue || registered.Reason != ReasonPending {
		r.unregistered.Delete(p.Name)
		return 0
	}
	now := r.Clock.Now()
	since, _ := r.unregistered.LoadOrStore(p.Name, now)
	return since.(time.Time).Add(repairGrace).Sub(now)
}

// requeue asks for another reconcile while the status waits for replicas, because no event
// reports that a replica has ended without releasing its Lease, at the end of a suspension, and when a step of a rollout can end.
func (r *Reconciler) requeue(p *v1alpha1.WebhookPolicy, s v1alpha1.WebhookPolicyStatus, step time.Duration) ctrl.Result {
	if find(s, v1alpha1.ConditionRegistered).Reason == ReasonWaitingForReplicas ||
		find(s, v1alpha1.ConditionLookupsReady).Reason == ReasonWaitingForReplicas {
		return ctrl.Result{RequeueAfter: retryInterval}
	}
	end := max(0, p.SuspendedUntil().Sub(r.Clock.Now()))
	if end > v1alpha1.MaxSuspension {
		end -= v1alpha1.MaxSuspension // when it begins
	}
	if end == 0 || step > 0 && step < end {
		end = step
	}
	return ctrl.Result{RequeueAfter: end}
}

// shouldReport reports whether this replica knows more about a policy than its
// status. A replica that has just started has not loaded policies, the trust bundle
// and dependencies yet; reporting that would make every policy not Ready for a
// moment. A successful registration is reported also while something is being read.
func shouldReport(p *v1alpha1.WebhookPolicy, state *policies.State, in inputs) bool {
	o, _ := observeLoaded(p, state)
	blocked := o.noCertificate && in.certificateProblem != "" // lasts until a user acts
	reading := in.missing.transient || o.planned && o.accepted && in.lookups.loading != ""
	transient := !blocked && (o.noCertificate || reading || in.caReady == nil && in.reachable != nil && in.reachable.Reason == ReasonPending)
	registered := o.registered && find(p.Status, v1alpha1.ConditionRegistered).Status != metav1.ConditionTrue
	return o.loaded && (!transient || registered || p.Status.ObservedGeneration != p.Generation)
}

// write applies a status. done is false if the policy has changed or is gone; the
// cache will then enqueue it. The API server ignores the UID in a status: without
// the resource version, a policy that was deleted and created again would get the
// status of its predecessor.
func (r *Reconciler) write(ctx context.Context, p *v1alpha1.WebhookPolicy, want v1alpha1.WebhookPolicyStatus) (done bool, err error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want)
	if err != nil {
		return false, fmt.Errorf("converting the status of policy %s: %w", p.Name, err)
	}
	if t := want.TypeChecking; t != nil && len(t.ExpressionWarnings) == 0 {
		// Server-side apply replaces an object by null when its last field is removed.
		fields["typeChecking"] = map[string]any{"expressionWarnings": []any{}}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicy"))
	u.SetName(p.Name)
	u.SetResourceVersion(p.ResourceVersion)
	if value, ok := r.written.Load(p.UID); ok {
		u.SetResourceVersion(value.(written).resourceVersion)
	}
	err = r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("writing the status of policy %s: %w", p.Name, err)
	}
	r.written.Store(p.UID, written{resourceVersion: u.GetResourceVersion(), status: want})
	return true, nil
}

// latest returns the newer one of the cached and the last written status.
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

// recordEvents records an event when a policy becomes Ready or stops being Ready,
// when a dependency is missing or params do not exist, when a generation is rejected, and
// when a conflict begins.
func (r *Reconciler) recordEvents(p *v1alpha1.WebhookPolicy, before, after v1alpha1.WebhookPolicyStatus, missing missingDependency) {
	if kind, action := eventOf(before, after, missing); action != "" {
		is := ready(after)
		r.Events.Eventf(p, nil, kind, is.Reason, action, "%s", eventMessage(is.Message))
	}
}

// eventOf returns the type and the action of the event for a change of status. The
// action is empty if there is none.
func eventOf(before, after v1alpha1.WebhookPolicyStatus, missing missingDependency) (kind, action string) {
	was, is := ready(before), ready(after)
	isMissing := is.Reason == missing.reason && missing.message != ""
	switch {
	case is.Reason == ReasonConflict && was.Reason != ReasonConflict:
		return corev1.EventTypeWarning, "Repair"
	case is.Reason == ReasonParamsNotFound && was.Reason != ReasonParamsNotFound:
		return corev1.EventTypeWarning, "Prepare"
	case isNewlyRejected(before, after, v1alpha1.ConditionAccepted, ReasonInvalid):
		return corev1.EventTypeWarning, "Refuse"
	case isNewlyRejected(before, after, v1alpha1.ConditionRegistered, ReasonRefused):
		return corev1.EventTypeWarning, "Register"
	case isMissing && missing.transient:
		return "", "" // as for every new policy
	case isMissing && was.Message != is.Message:
		return corev1.EventTypeWarning, "Prepare"
	case changesOften(before, after):
		return "", "" // the status shows whether it lasts
	}
	return readinessEvent(was, after)
}

// readinessEvent is eventOf for a policy that becomes Ready, is Ready with another
// effect, or stops being Ready.
func readinessEvent(was metav1.Condition, after v1alpha1.WebhookPolicyStatus) (kind, action string) {
	is := ready(after)
	wasReady := was.Status == metav1.ConditionTrue
	switch isReady := is.Status == metav1.ConditionTrue; {
	case isReady && wasReady && (was.Reason != is.Reason || was.Message == is.Message), !isReady && !wasReady:
		return "", ""
	case isReady:
		return corev1.EventTypeNormal, "Register"
	case is.Reason == find(after, v1alpha1.ConditionReachable).Reason:
		return "", "" // package canary records one event for all policies
	}
	return corev1.EventTypeWarning, "Register"
}

// changesOften reports whether the status may change repeatedly: a new generation
// waits for replicas and API servers, and a conflict changes it with each repair.
func changesOften(before, after v1alpha1.WebhookPolicyStatus) bool {
	switch isNew := before.ObservedGeneration != after.ObservedGeneration; ready(after).Reason {
	case ReasonWaitingForReplicas:
		return true
	case ReasonPending:
		return isNew
	case ReasonConflict:
		return !isNew
	}
	return false
}

// isNewlyRejected reports whether a condition is false for a reason, and was not so
// for this generation before.
func isNewlyRejected(before, after v1alpha1.WebhookPolicyStatus, kind, reason string) bool {
	was, is := find(before, kind), find(after, kind)
	return is.Status == metav1.ConditionFalse && is.Reason == reason &&
		(was.Status != metav1.ConditionFalse || was.Reason != reason || was.ObservedGeneration != is.ObservedGeneration)
}

// recordWarnings records the risks of a generation in one event when it is accepted:
// its author got warnings only if the webhook for policies was called. They are no
// condition, because the policy works.
func (r *Reconciler) recordWarnings(p *v1alpha1.WebhookPolicy, after v1alpha1.WebhookPolicyStatus) {
	was, is := find(p.Status, v1alpha1.ConditionAccepted), find(after, v1alpha1.ConditionAccepted)
	recorded := was.Status == metav1.ConditionTrue && was.ObservedGeneration == is.ObservedGeneration
	if recorded || is.Status != metav1.ConditionTrue {
		return
	}
	if warnings := r.Warnings(p); len(warnings) > 0 {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, ReasonRisky, "Review", "%s", eventMessage(strings.Join(warnings, "\n")))
	}
}
