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

// isRefusal reports whether the API server has looked at a configuration and
// does not want it. A permission that is missing looks the same as one; see
// foreign.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err)
}

// judge finds out, for each configuration that was refused, which of its
// policies the API server does not take, so that the others come into force
// without them.
func (r *Reconciler) judge(ctx context.Context, state *policies.State, all []refused) error {
	for _, refused := range all {
		if r.withoutCondition(ctx, refused) {
			continue // it is seen then whether that was it
		}
		if r.foreign(ctx, refused) {
			return refused.err
		}
		guilty, err := r.guilty(ctx, state, registration.PhaseOf(refused.want), registration.Members(refused.want))
		if err != nil {
			return err
		}
		if len(guilty) == 0 {
			return refused.err // all of them together, or for a reason that has passed
		}
		for name, refusal := range guilty {
			for _, e := range state.Named([]string{name}) {
				logr.FromContextOrDiscard(ctx).Info("the API server refuses to register policy", "policy", name, "generation", e.Policy.Generation, "error", refusal.Error())
				r.Refusals.Add(e, message(refusal))
			}
		}
	}
	return nil
}

// ask has the API server say whether it takes a condition, before anything is
// written with it.
func (r *Reconciler) ask(ctx context.Context, want registration.Configuration) error {
	condition := registration.ConditionOf(want)
	if _, known := r.asked[condition]; known || condition == "" {
		return nil
	}
	if _, err := r.send(ctx, want, client.DryRunAll); err != nil {
		return err
	}
	r.asked[condition] = struct{}{}
	return nil
}

// withoutCondition has the condition of a refused configuration evaluated by
// Ostiary alone, if it has one: an older API server may not know all that CEL
// has by now.
func (r *Reconciler) withoutCondition(ctx context.Context, refused refused) bool {
	condition := registration.ConditionOf(refused.want)
	if condition == "" {
		return false
	}
	n, added := r.Refusals.AddCondition(condition, message(refused.err))
	if added {
		logr.FromContextOrDiscard(ctx).Info("the API server refuses a condition", "condition", condition, "error", refused.err.Error())
		r.RefusedConditions.Set(float64(n))
	}
	return true // or a plan without it is on its way
}

// foreign reports whether a refusal has nothing to do with what is in the
// configuration: then one without any webhook is refused too.
func (r *Reconciler) foreign(ctx context.Context, refused refused) bool {
	if !apierrors.IsForbidden(refused.err) {
		return false
	}
	empty := registration.NewConfiguration(registration.PhaseOf(refused.want))
	empty.GetObjectKind().SetGroupVersionKind(refused.want.GetObjectKind().GroupVersionKind())
	empty.SetName(refused.want.GetName())
	_, err := r.send(ctx, empty, client.DryRunAll)
	return err != nil
}

// guilty are the policies that the API server refuses to register even by
// themselves, with what it says. It is asked without effect, for ever smaller
// parts of the whole.
func (r *Reconciler) guilty(ctx context.Context, state *policies.State, phase registration.Phase, names []string) (map[string]error, error) {
	refusal, err := r.try(ctx, state, phase, names)
	if err != nil || refusal == nil {
		return nil, err
	}
	if len(names) == 1 {
		return map[string]error{names[0]: refusal}, nil
	}
	found := map[string]error{}
	for _, half := range [][]string{names[:len(names)/2], names[len(names)/2:]} {
		some, err := r.guilty(ctx, state, phase, half)
		if err != nil {
			return nil, err
		}
		for name, refusal := range some {
			found[name] = refusal
		}
	}
	return found, nil
}

// try asks whether the API server would register some policies.
func (r *Reconciler) try(ctx context.Context, state *policies.State, phase registration.Phase, names []string) (refusal, err error) {
	plan := state.Only(names)
	for i := range plan.Groups {
		if plan.Groups[i].Phase != phase {
			continue
		}
		_, err := r.send(ctx, plan.Groups[i].Configuration, client.DryRunAll)
		switch {
		case isRefusal(err):
			return err, nil
		case err != nil:
			return nil, fmt.Errorf("asking the API server what it refuses: %w", err)
		}
	}
	return nil, nil
}

// message is the API server's own text.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
