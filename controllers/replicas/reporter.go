package replicas

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	leasePrefix    = "ostiary-replica-"
	labelComponent = "app.kubernetes.io/component"
	component      = "replica"
	fieldManager   = "ostiary-replica"
	maxLeaseName   = 253
)

// Pod is the Pod of a replica. The zero value means none.
type Pod struct {
	Name string
	UID  types.UID
}

// Options configures a Reporter.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Lease is the Lease to renew.
	Lease *Lease
	// Identity identifies the replica. A process with the identity of an earlier process
	// takes over its Lease.
	Identity string
	// Pod owns the Lease, so that the garbage collector deletes the Lease with it.
	Pod Pod
	// Report returns the content of the Lease.
	Report func(context.Context) Report
	// Violations returns further content, which each renewal writes; nil is allowed.
	Violations func() string
	// ExceptionUses returns further content, too; nil is allowed.
	ExceptionUses func() string
	// RolloutCounts returns further content, too; nil is allowed.
	RolloutCounts func() string
	// Loaded returns an error until the policies have been loaded. The Reporter creates
	// no Lease before that, because API servers do not call the replica yet.
	Loaded func() error
	// Current returns an error until the replica has loaded the policies that the API
	// server has now. The Reporter calls it after a late renewal, before which other
	// replicas may not have waited for this one.
	Current func(context.Context) error
	// Changes receive when the report may have changed.
	Changes []func(context.Context) <-chan struct{}
	Log     logr.Logger
}

// Reporter maintains the Lease of this replica from its first load of policies until
// it has drained.
type Reporter struct {
	*Lease

	options Options
	written Report
	uid     types.UID
}

// NewReporter returns a Reporter that has not started.
func NewReporter(o Options) *Reporter {
	return &Reporter{Lease: o.Lease, options: o}
}

// LeaseName returns the name of the Lease for an identity.
func LeaseName(identity string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, identity)
	name = leasePrefix + name
	return strings.TrimRight(name[:min(len(name), maxLeaseName)], "-")
}

// NeedLeaderElection returns false: every replica reports.
func (r *Reporter) NeedLeaderElection() bool { return false }

// Start maintains the Lease until ctx ends, and then deletes it.
func (r *Reporter) Start(ctx context.Context) error {
	changes := events.Merge(ctx, r.options.Changes...)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			return r.deleteLease(ctx)
		case <-changes:
			if tried.IsZero() || r.options.Report(ctx) != r.written {
				timer.Reset(max(0, r.timing.gap-time.Since(tried)))
			}
		case <-timer.C:
			if r.options.Loaded() != nil {
				timer.Reset(r.timing.retry)
				continue
			}
			tried = time.Now()
			timer.Reset(r.renew(ctx))
		}
	}
}

// renew writes the Lease and returns the time until the next renewal.
func (r *Reporter) renew(ctx context.Context) time.Duration {
	began, start := r.now(), time.Now()
	report := r.options.Report(ctx)
	err := r.write(ctx, report, start)
	full := err != nil && strings.Contains(err.Error(), noSpace)
	if err == nil || full {
		if outdated := r.catchUp(ctx, full); outdated != nil {
			err = outdated
		} else {
			r.renewedAt(began)
		}
	}
	switch {
	case err == nil:
		r.written = report
		return r.timing.renew
	case ctx.Err() == nil:
		r.options.Log.Error(err, "renewing the replica's Lease failed, retrying")
	}
	switch {
	case full:
		return r.timing.renew // reading all policies every second would increase the load
	case r.Expired():
		return r.timing.gap // every request fails until then
	}
	return r.timing.retry
}

// noSpace is the error of etcd when its quota is exhausted. No client can write then,
// so no policy changes and none becomes Ready. A replica that has loaded all policies
// therefore stays correct, and deletions, which free space, need its responses.
const noSpace = "etcdserver: mvcc: database space exceeded"

// catchUp returns an error if other replicas may have stopped waiting for this one
// before this write and it has not loaded all changes since. The limit allows for
// delayed watches.
func (r *Reporter) catchUp(ctx context.Context, always bool) error {
	renewed := r.renewed.Load()
	if !always && renewed != nil && r.now()-*renewed <= r.timing.unready {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timing.attempt)
	defer cancel()
	return r.options.Current(ctx)
}

func (r *Reporter) renewedAt(began time.Duration) {
	before := r.renewed.Swap(&began)
	switch {
	case before == nil:
		r.options.Log.Info("created the replica's Lease", "lease", LeaseName(r.options.Identity))
	case r.now()-*before >= r.timing.expired:
		r.options.Log.Info("renewed the replica's expired Lease, answering requests again", "lease", LeaseName(r.options.Identity))
	}
}

func (r *Reporter) write(ctx context.Context, report Report, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, r.timing.attempt)
	defer cancel()
	lease, err := r.options.Client.CoordinationV1().Leases(r.options.Namespace).
		Apply(ctx, r.lease(report, now), metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("applying Lease %s/%s: %w", r.options.Namespace, LeaseName(r.options.Identity), err)
	}
	r.uid = lease.UID
	return nil
}

func (r *Reporter) lease(report Report, now time.Time) *coordinationv1.LeaseApplyConfiguration {
	lease := coordinationv1.Lease(LeaseName(r.options.Identity), r.options.Namespace).
		WithLabels(leaseLabels()).
		WithAnnotations(report.annotations()).
		WithAnnotations(r.counts()).
		WithSpec(coordinationv1.LeaseSpec().
			WithHolderIdentity(r.options.Identity).
			WithLeaseDurationSeconds(int32(r.timing.duration.Seconds())).
			WithRenewTime(metav1.NewMicroTime(now)))
	if pod := r.options.Pod; pod.Name != "" && pod.UID != "" {
		lease.WithOwnerReferences(metav1apply.OwnerReference().
			WithAPIVersion("v1").WithKind("Pod").WithName(pod.Name).WithUID(pod.UID))
	}
	return lease
}

// counts returns the annotations with the counts of violations, of uses of exceptions and of violations in
// steps of rollouts, if there are any.
func (r *Reporter) counts() map[string]string {
	out := map[string]string{}
	for annotation, encode := range map[string]func() string{
		annotationViolations: r.options.Violations, annotationExceptionUses: r.options.ExceptionUses,
		annotationRolloutCounts: r.options.RolloutCounts,
	} {
		if encode == nil {
			continue
		}
		if counts := encode(); counts != "" {
			out[annotation] = counts
		}
	}
	return out
}

func leaseLabels() map[string]string {
	return map[string]string{registration.LabelManagedBy: registration.ManagedBy, labelComponent: component}
}

// deleteLease deletes the Lease, if it is still the one that this process wrote.
func (r *Reporter) deleteLease(ctx context.Context) error {
	if r.uid == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timing.attempt)
	defer cancel()
	name := LeaseName(r.options.Identity)
	err := r.options.Client.CoordinationV1().Leases(r.options.Namespace).
		Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.uid}})
	if err != nil {
		// The Lease expires. Until then the leader waits for this replica.
		r.options.Log.Error(err, "deleting the replica's Lease failed", "lease", name)
	}
	return nil
}
