package sources

import (
	"context"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policyvalidator"
	"github.com/ostiary/ostiary/internal/validation"
)

// Checks are the checks of policies that are being applied.
func (s *Sources) Checks() []policyvalidator.Check {
	return []policyvalidator.Check{s.Types.Warnings, s.Params.Absent}
}

// follower keeps Resources up to date while a policy depends on them. That depends on
// the resources too: a policy for a kind that is still to be installed waits for it.
type follower struct{ sources *Sources }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (follower) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (f follower) Start(ctx context.Context) error {
	changed := f.sources.Resources.Subscribe(ctx)
	for {
		f.sources.need()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-f.sources.kept:
		}
	}
}

func (s *Sources) need() {
	facts := validation.ClusterInfo{Resources: s.Resources.Served()}
	policies := s.policies.Load()
	if policies == nil {
		return
	}
	for _, p := range *policies {
		if needsResources(p) || validation.Unserved(p, facts) {
			s.Resources.Need(true)
			return
		}
	}
	s.Resources.Need(false)
}

// keep keeps the policies whose needs are to be followed. The follower compares them with
// what is served, so that this does not delay the enforcement of a change.
func (s *Sources) keep(policies []*v1alpha1.WebhookPolicy) {
	s.policies.Store(&policies)
	s.kept.Send()
}
