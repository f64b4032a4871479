// Package leadership elects the replica that writes. A replica that loses the
// lease stops writing, but its process keeps answering admission requests and
// competes for the lease again. (controller-runtime's election ends the process.)
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

// LeaseName is the name of the Lease for which the replicas compete.
const LeaseName = "ostiary-leader"

// Timing of the election: a leader that cannot renew its lease stops writing after
// renewDeadline. Another replica can lead after leaseDuration.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lead is the work of a leader. It runs until ctx ends, and again for each later
// term.
type Lead func(ctx context.Context) error

// Elector runs Lead while this replica holds the lease.
type Elector struct {
	Client    kubernetes.Interface
	Namespace string
	Identity  string
	Disabled  bool // run Lead at once, without a lease
	Lead      Lead
	Log       logr.Logger
	// Until ends the election when it is closed. It may be nil.
	Until <-chan struct{}
}

// NeedLeaderElection returns false: every replica competes.
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
			e.Log.Error(err, "term of leadership ended with an error")
			wait(ctx, retryPeriod)
		}
	}
	return nil
}

// term competes for the lease and runs Lead until the lease is lost. It returns
// after Lead has returned.
func (e *Elector) term(ctx context.Context) error {
	if e.Disabled {
		return e.runLead(ctx)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the term when Lead returns
	defer cancel()
	lease := &lock{LeaseLock: resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: LeaseName},
		Client:     e.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}}
	result := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lease,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Name:            LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel()
				result <- e.runLead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing leader election: %w", err)
	}
	elector.Run(ctx)
	if !lease.acquired {
		return nil
	}
	return <-result
}

// lock is a LeaseLock that records whether it was ever acquired: the elector runs
// OnStartedLeading in a goroutine, and does not report whether it has done so.
type lock struct {
	resourcelock.LeaseLock
	acquired bool
}

// RecordEvent is called first when the lease is acquired.
func (l *lock) RecordEvent(string) { l.acquired = true }

func (e *Elector) runLead(ctx context.Context) error {
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
