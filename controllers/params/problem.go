package params

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ostiary/ostiary/internal/truncate"
)

// AggregationLabel is the label, with the value "true", of ClusterRoles whose
// rules Ostiary's role for params takes up.
const AggregationLabel = "admission.ostiary.dev/aggregate-to-params"

const maxProblem = 1 << 10 // bytes of an error of the API server

var errUnknownKind = errors.New("unknown kind")

// step is something that can fail.
type step int

const (
	stepFind step = iota
	stepList
	stepWatch
	stepGet
	steps
)

func (s step) String() string { return [steps]string{"finding", "listing", "watching", "getting"}[s] }

// report notes how a step went.
func (w *watch) report(ctx context.Context, s step, err error) {
	if err != nil && (ctx.Err() != nil || w.passing(err)) {
		return
	}
	if !w.note(s, err) {
		return
	}
	if problem := w.problem(); problem != "" {
		w.options.Log.Info("params are not available", "kind", w.gvk.String(), "problem", problem)
	}
	w.changed()
}

// note reports whether the step's problem is another than before.
func (w *watch) note(s step, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	problem := w.explain(s, err)
	changed := w.problems[s] != problem
	w.problems[s] = problem
	return changed
}

// passing reports whether an error says nothing about the kind. What is known
// stays in use while the API server is away; a kind that is forbidden or gone
// is another matter.
func (w *watch) passing(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	return w.known.Load() != nil && !lasting(err)
}

// lasting reports whether somebody has to do something about an error.
func lasting(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || errors.Is(err, errUnknownKind)
}

// problem is the first step's that failed.
func (w *watch) problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.problems[:], func(p string) bool { return p != "" })
	if i < 0 {
		return ""
	}
	return w.problems[i]
}

// explain says what is wrong and how it is mended.
func (w *watch) explain(s step, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errUnknownKind) || apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server has no kind %s in %s: install it, or change spec.paramKind", w.gvk.Kind, w.gvk.GroupVersion())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return fmt.Sprintf("Ostiary may not impersonate the ServiceAccount %s, with whose permissions it reads params: apply the roles of this version, config/rbac", w.options.Account)
	case apierrors.IsForbidden(err) && w.resource != "" && !w.options.Aggregated:
		return fmt.Sprintf(`Ostiary may not read %s: grant its ServiceAccount %s by a ClusterRole and a ClusterRoleBinding the rule {apiGroups: [%q], resources: [%q], verbs: [get, list, watch]}`,
			describe(w.gvk), w.options.Account, w.gvk.Group, w.resource)
	case apierrors.IsForbidden(err) && w.resource != "":
		return fmt.Sprintf(`Ostiary may not read %s: create a ClusterRole with the label %s: "true" and the rule {apiGroups: [%q], resources: [%q], verbs: [get, list, watch]}`,
			describe(w.gvk), AggregationLabel, w.gvk.Group, w.resource)
	default:
		return fmt.Sprintf("%s %s: %s", s, describe(w.gvk), truncate.String(err.Error(), maxProblem))
	}
}
