package params

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/truncate"
)

// AggregationLabel is the label, with the value "true", of ClusterRoles that are
// aggregated into Ostiary's role for params.
const AggregationLabel = "admission.ostiary.dev/aggregate-to-params"

const maxProblem = 1 << 10 // bytes of an error from the API server

var errUnknownKind = errors.New("unknown kind")

// step is a request to the API server.
type step int

const (
	stepFind step = iota
	stepList
	stepWatch
	stepGet
	steps
)

func (s step) String() string { return [steps]string{"finding", "listing", "watching", "getting"}[s] }

// report records and logs the result of a step. err is nil if it succeeded.
func (w *watch) report(ctx context.Context, s step, err error) {
	if err != nil && (ctx.Err() != nil || w.isTransient(err)) {
		return
	}
	if !w.record(s, err) {
		return
	}
	if problem := w.problem(); problem != "" {
		w.options.Log.Info("cannot read params", "kind", w.gvk.String(), "problem", problem)
	}
	w.changed()
}

// record reports whether the step's problem has changed.
func (w *watch) record(s step, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	problem := w.explain(s, err)
	changed := w.problems[s] != problem
	w.problems[s] = problem
	return changed
}

// isTransient reports whether to ignore an error. While the API server is
// unavailable, cached objects stay in use.
func (w *watch) isTransient(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	return w.known.Load() != nil && !needsAction(err)
}

// needsAction reports whether an error persists until an administrator fixes its
// cause.
func needsAction(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		errors.Is(err, errUnknownKind) || errors.Is(err, objects.ErrTooLarge)
}

// problem returns the problem of the first step that failed; "" if none did.
func (w *watch) problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.problems[:], func(p string) bool { return p != "" })
	if i < 0 {
		return ""
	}
	return w.problems[i]
}

// explain returns the problem and how to fix it; "" without an error.
func (w *watch) explain(s step, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errUnknownKind) || apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server has no kind %s in %s: install it, or change spec.paramKind", w.gvk.Kind, w.gvk.GroupVersion())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return fmt.Sprintf("Ostiary may not impersonate the ServiceAccount %s, which it uses to read params: apply config/rbac of this version", w.options.Account)
	case apierrors.IsForbidden(err) && w.resource != "" && !w.options.Aggregated:
		return fmt.Sprintf(`Ostiary may not read %s: bind a ClusterRole with the rule {apiGroups: [%q], resources: [%q], verbs: [get, list, watch]} to its ServiceAccount %s`,
			describe(w.gvk), w.gvk.Group, w.resource, w.options.Account)
	case apierrors.IsForbidden(err) && w.resource != "":
		return fmt.Sprintf(`Ostiary may not read %s: create a ClusterRole with the label %s: "true" and the rule {apiGroups: [%q], resources: [%q], verbs: [get, list, watch]}`,
			describe(w.gvk), AggregationLabel, w.gvk.Group, w.resource)
	default:
		return fmt.Sprintf("%s %s: %s", s, describe(w.gvk), truncate.String(err.Error(), maxProblem))
	}
}
