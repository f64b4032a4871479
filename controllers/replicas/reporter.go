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

// Pod is the Pod that a replica runs in. The zero value is none.
type Pod struct {
	Name string
	UID  types.UID
}

// Options say which Lease a Reporter keeps.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Lease is what the Reporter renews.
	Lease *Lease
	// Identity tells the replica from others. A process that comes after
	// another one with the same identity takes over its Lease.
	Identity string
	// Pod owns the Lease, so that it goes with the Pod.
	Pod Pod
	// Report is asked for what the Lease shall say.
	Report func(context.Context) Report
	// Loaded is an error while there is nothing to report: no Lease is made
	// before, since nobody has to wait for a replica that is not called.
	Loaded func() error
	// Current is an error while the replica has not loaded what the API server holds
	// now. It is asked where others may not have waited for this replica.
	Current func(context.Context) error
	// Changes tell that a report may have changed.
	Changes []func(context.Context) <-chan struct{}
	Log     logr.Logger
}

// Reporter keeps the Lease of this replica, from the time when it can serve
// until it has drained: a replica that is being stopped still serves.
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

// LeaseName is the name of the Lease of the replica with an identity.
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

// NeedLeaderElection says that every replica reports.
func (r *Reporter) NeedLeaderElection() bool { return false }

// Start keeps the Lease until ctx ends, and then deletes it.
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

// renew writes the Lease and returns when to do so next.
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
		r.options.Log.Error(err, "cannot renew the replica's Lease, trying again")
	}
	switch {
	case full:
		return r.timing.renew // reading all policies each second would be more load than help
	case r.Expired():
		return r.timing.gap // every request fails until then
	}
	return r.timing.retry
}

// noSpace is what etcd says when its quota is used up. It then takes no write from
// anyone, so that no policy changes and no status becomes Ready: a replica that has
// loaded what can be read still answers right, and deletions, which make room, need
// answers.
const noSpace = "etcdserver: mvcc: database space exceeded"

// catchUp is an error where others may have stopped waiting for this replica
// before the present write, and it has not loaded what changed meanwhile. The
// limit leaves time for watches of others that are late.
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
		r.options.Log.Info("keeping the replica's Lease", "lease", LeaseName(r.options.Identity))
	case r.now()-*before >= r.timing.expired:
		r.options.Log.Info("renewed the replica's Lease, which had expired: answering again", "lease", LeaseName(r.options.Identity))
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
		// The Lease runs out by itself; the others wait for it until then.
		r.options.Log.Error(err, "cannot delete the replica's Lease", "lease", name)
	}
	return nil
}
