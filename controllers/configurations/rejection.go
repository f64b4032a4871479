package configurations

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
)

// isRejection reports whether the API server rejected the content of a
// configuration. A missing permission looks the same; see rejectedRegardless.
func isRejection(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err)
}

// resolveRejections finds the policies that the API server rejects, for each
// rejected configuration, so that the others are registered without them.
func (t *term) resolveRejections(ctx context.Context, state *policies.State, all []rejection) error {
	for _, rejected := range all {
		if t.excludeCondition(ctx, rejected) {
			continue // the next plan shows whether the condition was the cause
		}
		if t.rejectedRegardless(ctx, rejected) {
			return rejected.err
		}
		causes, err := t.bisectRejected(ctx, state, registration.PhaseOf(rejected.want), registration.Members(rejected.want))
		if err != nil {
			return err
		}
		if len(causes) == 0 {
			return rejected.err // only all of them together are rejected, or the cause is gone
		}
		for name, refusal := range causes {
			for _, e := range state.Named([]string{name}) {
				logr.FromContextOrDiscard(ctx).Info("the API server rejects policy", "policy", name,
					"generation", e.Policy.Generation, "error", refusal.Error())
				t.Refusals.Add(e, apiMessage(refusal))
			}
		}
	}
	return nil
}

// probeCondition sends a dry-run request with a configuration whose match
// condition the API server has not accepted before.
func (t *term) probeCondition(ctx context.Context, want registration.Configuration) error {
	condition := registration.ConditionOf(want)
	if _, known := t.probedConditions[condition]; known || condition == "" {
		return nil
	}
	if _, err := t.send(ctx, want, client.DryRunAll); err != nil {
		return err
	}
	t.probedConditions[condition] = struct{}{}
	return nil
}

// excludeCondition excludes the match condition of a rejected configuration from
// later plans, so that only Ostiary evaluates it. Older API servers lack some CEL
// functions.
func (t *term) excludeCondition(ctx context.Context, rejected rejection) bool {
	condition := registration.ConditionOf(rejected.want)
	if condition == "" {
		return false
	}
	n, added := t.Refusals.AddCondition(condition, apiMessage(rejected.err))
	if added {
		logr.FromContextOrDiscard(ctx).Info("the API server rejects a match condition", "condition", condition, "error", rejected.err.Error())
		t.Metrics.refusedConditions.Set(float64(n))
	}
	return true // if not added, a plan without it is on its way
}

// rejectedRegardless reports whether the API server rejects the configuration
// whatever its content: it then also rejects one without webhooks.
func (t *term) rejectedRegardless(ctx context.Context, rejected rejection) bool {
	if !apierrors.IsForbidden(rejected.err) {
		return false
	}
	empty := registration.NewConfiguration(registration.PhaseOf(rejected.want))
	empty.GetObjectKind().SetGroupVersionKind(rejected.want.GetObjectKind().GroupVersionKind())
	empty.SetName(rejected.want.GetName())
	_, err := t.send(ctx, empty, client.DryRunAll)
	return err != nil
}

// bisectRejected returns the policies that the API server rejects even alone,
// with its errors. It sends dry-run requests for ever smaller parts.
func (t *term) bisectRejected(
	ctx context.Context, state *policies.State, phase registration.Phase, names []string,
) (map[string]error, error) {
	refusal, err := t.dryRun(ctx, state, phase, names)
	if err != nil || refusal == nil {
		return nil, err
	}
	if len(names) == 1 {
		return map[string]error{names[0]: refusal}, nil
	}
	found := map[string]error{}
	for _, part := range [][]string{names[:len(names)/2], names[len(names)/2:]} {
		some, err := t.bisectRejected(ctx, state, phase, part)
		if err != nil {
			return nil, err
		}
		for name, refusal := range some {
			found[name] = refusal
		}
	}
	return found, nil
}

// dryRun asks the API server whether it accepts the configurations of some policies.
func (t *term) dryRun(
	ctx context.Context, state *policies.State, phase registration.Phase, names []string,
) (refusal, err error) {
	plan := state.Only(names)
	for i := range plan.Groups {
		if plan.Groups[i].Phase != phase {
			continue
		}
		_, err := t.send(ctx, plan.Groups[i].Configuration, client.DryRunAll)
		switch {
		case isRejection(err):
			return err, nil
		case err != nil:
			return nil, fmt.Errorf("sending a dry-run configuration: %w", err)
		}
	}
	return nil, nil
}

// apiMessage returns the API server's own message.
func apiMessage(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
