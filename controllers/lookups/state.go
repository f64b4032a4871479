package lookups

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/truncate"
)

// AggregationLabel is the label, with the value "true", of ClusterRoles that are aggregated into Ostiary's role
// for lookups.
const AggregationLabel = "admission.ostiary.dev/aggregate-to-lookups"

const maxProblem = 1 << 10 // bytes of an error from the API server

// State is the state of a lookup on this replica. It is comparable.
type State struct {
	// Loading means that the first list is in progress.
	Loading bool
	// Problem says why requests that read the lookup are errors, or some of them, and what to do; "" if none are.
	Problem string
	// Objects have keys; the number is rounded to two digits. LeftOut have none, because of errors.
	Objects, LeftOut int64
	// Example is one that is left out, with its error.
	Example string
}

// Name identifies a lookup in the Lease of a replica.
func Name(d lookups.Definition) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", d)))[:12]
}

// describe names a resource in messages.
func describe(r schema.GroupVersionResource) string { return r.GroupResource().String() }

// State returns the state of a lookup.
func (s *Store) State(d lookups.Definition) State {
	x := (*s.indexes.Load())[d]
	if x == nil {
		return State{Loading: true}
	}
	out := State{}
	out.Problem = x.unusable()
	if out.Loading = !x.complete.Load() && x.feed.problem() == ""; out.Loading {
		out.Problem = ""
	}
	stats := x.data.Stats()
	out.Objects, out.LeftOut, out.Example = round(stats.Objects), stats.LeftOut, stats.Example
	if out.Loading || out.Problem != "" {
		return out
	}
	if out.Problem = x.feed.problem(); out.Problem != "" {
		out.Problem += "; until --lookup-max-age, requests use what was read before"
		return out
	}
	out.Problem = x.excess(stats)
	return out
}

// unusable says why no request can use the lookup; "" if requests can.
func (x *index) unusable() string {
	if !x.complete.Load() {
		if problem := x.feed.problem(); problem != "" {
			return problem
		}
		return describe(x.feed.resource) + " are being listed"
	}
	if limit := x.feed.store.options.MaxAge; x.age() > limit {
		return fmt.Sprintf("the API server has not confirmed the %s for more than %s, the limit of --lookup-max-age%s",
			describe(x.feed.resource), limit, x.feed.lastError())
	}
	if !x.feed.isNamespaced.Load() && x.program.Scope != v1alpha1.LookupScopeCluster {
		return fmt.Sprintf("%s belong to no namespace: set scope: Cluster and keyErrors: Skip", describe(x.feed.resource))
	}
	return ""
}

// excess says what is left out and what to do; "" if nothing is.
func (x *index) excess(s lookups.Stats) string {
	const fix = ": delete some of them, let storedKeys return fewer keys, or raise --lookup-entries or --lookup-memory"
	isCluster := x.program.Scope == v1alpha1.LookupScopeCluster
	switch {
	case s.Incomplete != "":
		return "failurePolicy decides requests that read this lookup, because " + s.Incomplete + fix
	case s.Over != "" && isCluster:
		return "failurePolicy decides requests that read this lookup, because " + s.Over + fix
	case s.Over != "":
		return fmt.Sprintf("failurePolicy decides requests in namespace %q that read this lookup, and perhaps in others, because %s%s",
			s.OverNamespace, s.Over, fix)
	case s.LeftOut > 0 && x.program.KeyErrors == v1alpha1.LookupKeyErrorsFail:
		return fmt.Sprintf("failurePolicy decides requests in the namespaces of %d objects for which storedKeys or value fail, such as %s: "+
			"change the expression or the objects, or set keyErrors: Skip", s.LeftOut, s.Example)
	}
	return ""
}

// round keeps two digits of a number.
func round(n int64) int64 {
	if n < 100 {
		return n
	}
	unit := int64(math.Pow10(int(math.Log10(float64(n))) - 1))
	return (n + unit/2) / unit * unit
}

// problem returns why nothing can be listed; "" if nothing prevents it.
func (f *feed) problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text
}

// lastError returns the error of the last list or watch, as a part of a message.
func (f *feed) lastError() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return ": the watch is silent or slow"
	}
	return ": " + truncate.String(f.last.Error(), maxProblem)
}

// report notes and logs the result of a list or a watch.
func (f *feed) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errUnknownResource) || apierrors.IsNotFound(err) {
		f.reset()
	}
	text := f.explain(err)
	f.mu.Lock()
	f.last = err
	changed := f.text != text
	f.text = text
	f.mu.Unlock()
	if changed {
		f.store.options.Log.Info("the objects of lookups", "resource", f.resource.String(), "problem", text)
		f.store.listeners.Notify()
	}
}

// reset empties the indexes, because the resource does not exist.
func (f *feed) reset() {
	f.store.computing.Lock()
	defer f.store.computing.Unlock()
	for _, x := range *f.indexes.Load() {
		x.reset()
	}
	f.active = nil // the next list fills all indexes
}

// explain describes an error and its fix; "" without an error, and after a temporary one, whose duration the age of the
// data shows.
func (f *feed) explain(err error) string {
	switch {
	case err == nil && f.incomparable:
		return describe(f.resource) + " have resource versions that are no numbers, " +
			"so that lookups cannot know the age of what they read: change spec.lookups"
	case err == nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsTooManyRequests(err):
		return ""
	case errors.Is(err, errUnknownResource) || apierrors.IsNotFound(err):
		return fmt.Sprintf("the API server has no resource %s in %s: install it, or change spec.lookups",
			f.resource.Resource, f.resource.GroupVersion())
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return fmt.Sprintf("Ostiary may not impersonate the ServiceAccount %s, which it uses for lookups: apply config/rbac of this version",
			f.store.options.Account)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf(`Ostiary may not read %s: create a ClusterRole with the label %s: "true" and the rule `+
			`{apiGroups: [%q], resources: [%q], verbs: [list, watch]}`,
			describe(f.resource), AggregationLabel, f.resource.Group, f.resource.Resource)
	case f.isComplete() && !apierrors.IsUnauthorized(err) && !errors.Is(err, objects.ErrTooLarge):
		return ""
	}
	return "reading " + describe(f.resource) + ": " + truncate.String(err.Error(), maxProblem)
}

func (f *feed) isComplete() bool {
	for _, x := range *f.indexes.Load() {
		if !x.complete.Load() {
			return false
		}
	}
	return true
}
