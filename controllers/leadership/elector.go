// Package leadership decides which replica writes. Losing the lease ends the
// work of a leader and nothing else: the process lives on, keeps answering
// admission calls, and contends again. (controller-runtime's own election ends
// the process instead.)
package leadership

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the name of the Lease that the replicas contend for.
const LeaseName = "ostiary-leader"

// Timing of the election: a leader that cannot renew stops writing after
// renewDeadline, before another may begin at leaseDuration.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lead is the work of a leader. It runs until ctx ends and may be called again
// for a later term.
type Lead func(ctx context.Context) error

// Elector runs Lead while this replica holds the lease.
type Elector struct {
	Client    kubernetes.Interface
	Namespace string
	Identity  string
	Disabled  bool // lead at once, without a lease
	Lead      Lead
	Log       logr.Logger
	// Until ends the contending for good; nil never does.
	Until <-chan struct{}
	// Leading is told when a term begins and ends; nil is allowed.
	Leading func(bool)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica contends.
func (e *Elector) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns when ctx or Until ends.
func (e *Elector) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.Until:
			cancel()
		case <-ctx.Done():
		}
	}()
	for ctx.Err() == nil {
		if err := e.term(ctx); err != nil && ctx.Err() == nil {
			e.Log.Error(err, "ended a term of leadership")
			wait(ctx, retryPeriod)
		}
	}
	return nil
}

// term contends for the lease and leads until it is lost. It returns when the
// work of the term has ended too.
func (e *Elector) term(ctx context.Context) error {
	if e.Disabled {
		return e.lead(ctx)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the term when Lead gives up
	defer cancel()
	held := &lock{LeaseLock: resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: LeaseName},
		Client:     e.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}}
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            held,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel()
				result <- e.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	elector.Run(ctx)
	if !held.acquired {
		return nil
	}
	return <-result
}

// lock is a LeaseLock that remembers whether the lease was ever held: the
// elector starts the work of a term in a goroutine of its own and does not say
// whether there is any to wait for.
type lock struct {
	resourcelock.LeaseLock
	acquired bool
}

// RecordEvent is called, first of all, when the lease has been acquired.
func (l *lock) RecordEvent(string) { l.acquired = true }

func (e *Elector) lead(ctx context.Context) error {
	if e.Leading != nil {
		e.Leading(true)
		defer e.Leading(false)
	}
	e.Log.Info("leading", "identity", e.Identity)
	defer e.Log.Info("no longer leading", "identity", e.Identity)
	return e.Lead(ctx)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
