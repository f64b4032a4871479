package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxRestarts is the number of times that a list is begun again because its continue
	// token has expired.
	maxRestarts = 3
	// pageSize is the number of objects that one request lists: few, since other requests
	// wait while the API server encodes a page. A page that is read too slowly, and that the
	// API server therefore cuts off, halves it for the resource.
	pageSize, minPageSize = 100, 10
)

// scan is one scan of the objects of a resource.
type scan struct {
	*results.Pass
	wanted     wantedResource
	unreadable int // objects that could not be decoded
	decoded    audit.Decoded
	lookups    policy.Lookups // of the time when the scan began; nil for the present
	// evaluators are made when an object needs them, by the index of the policy: those of
	// ten thousand policies take memory.
	evaluators []*audit.Evaluator
}

func newScan(pass *results.Pass, wanted wantedResource) *scan {
	return &scan{Pass: pass, wanted: wanted, evaluators: make([]*audit.Evaluator, pass.Policies())}
}

// scan lists the objects of a resource and evaluates what has changed.
func (s *Scanner) scan(ctx context.Context, table *results.Table, planned plan, of *scan) {
	begun := func(version string) { s.watchResource(ctx, table, of.GVR(), version) }
	err := s.list(ctx, table, of, begun, planned)
	if ctx.Err() != nil {
		return
	}
	s.finish(table, of, err, time.Now())
	if err != nil {
		s.options.Log.V(1).Info("scan failed", "resource", of.GVR().String(), "error", err.Error())
		if apierrors.IsNotFound(err) {
			s.options.Resources.Refresh()
		}
	}
}

// finish ends the pass of a scan, after an error or without one.
func (s *Scanner) finish(table *results.Table, of *scan, err error, now time.Time) {
	if err == nil {
		table.Finish(of.Pass, of.unreadable, now)
		return
	}
	gvr := of.GVR()
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		s.pages[gvr] = max(s.page(gvr)/2, minPageSize)
	}
	gone := apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
	table.Fail(of.Pass, results.Failure{
		Message: explain(gvr.GroupResource(), err), RetryAt: now.Add(retryInterval),
		Denied: gone || apierrors.IsForbidden(err), Gone: gone,
	})
}

// page returns the number of objects in a page of a resource.
func (s *Scanner) page(gvr schema.GroupVersionResource) int64 {
	if n, ok := s.pages[gvr]; ok {
		return n
	}
	return pageSize
}

// list visits every object. If a continue token has expired and an API server offers no
// other, the list begins again: objects that were visited and have not changed since are not
// evaluated again.
func (s *Scanner) list(
	ctx context.Context, table *results.Table, of *scan, begun func(version string), planned plan,
) (err error) {
	if s.options.Lookups != nil {
		of.lookups = s.options.Lookups.Snapshot()
	}
	for range maxRestarts {
		began := time.Now()
		of.Restart()
		err = s.reader.List(ctx, of.GVR(), s.page(of.GVR()), begun, func(raw []byte) error {
			s.visit(ctx, table, of, raw)
			err := s.budget.spend(ctx, time.Since(began))
			if err == nil {
				err = s.rereadNext(ctx, table, planned)
			}
			began = time.Now()
			return err
		})
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			break
		}
	}
	return err
}

// visit evaluates the policies whose result for an object is not known, and returns the object;
// nil for one that cannot be decoded. The evaluator recovers panics of policies; one outside of
// it must not end admission on this replica.
func (s *Scanner) visit(ctx context.Context, table *results.Table, of *scan, raw []byte) (o *objects.Object) {
	defer func() {
		if value := recover(); value != nil {
			of.unreadable++
			s.options.Log.Error(panics.Error(value), "an object could not be audited",
				"resource", of.GVR().String(), "stack", string(debug.Stack()))
		}
	}()
	o, err := objects.New(raw, of.GVR(), of.wanted.kind)
	if err != nil {
		of.unreadable++
		return nil
	}
	known := &results.Object{
		ID: results.IDOf(o.UID), Version: results.Hash(o.ResourceVersion, s.namespaceVersion(ctx, of, o)),
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, Controller: o.Controller,
	}
	todo, hasRoom := table.Todo(of.Pass, known)
	if !hasRoom {
		return o
	}
	got := make([]audit.Result, len(todo))
	of.decoded.Next()
	o.Decoded, o.KeepsStatus = &of.decoded, of.wanted.keepsStatus
	for i, index := range todo {
		got[i] = of.evaluate(ctx, index, &o.Object)
	}
	s.metrics.evaluations.Add(float64(len(todo)))
	if ctx.Err() == nil { // otherwise they are errors
		table.Store(of.Pass, known, todo, got)
	}
	return o
}

// evaluate evaluates the policy with an index on an object.
func (c *scan) evaluate(ctx context.Context, index int, o *audit.Object) audit.Result {
	t := c.wanted.targets[c.Policy(index)]
	if c.evaluators[index] == nil {
		c.evaluators[index] = audit.NewEvaluator(t.policy, t.version.Compiled, t.exempt)
	}
	host := *t.host
	if c.lookups != nil {
		host.Lookups = c.lookups
	}
	return c.evaluators[index].Evaluate(ctx, o, host)
}

// namespaceVersion returns the version of the namespace of an object, whose labels policies
// read.
func (s *Scanner) namespaceVersion(ctx context.Context, of *scan, o *objects.Object) string {
	if !of.wanted.namespaced {
		return ""
	}
	ns, err := s.host.Namespaces.GetNamespace(ctx, o.Namespace)
	if err != nil {
		return ""
	}
	return ns.ResourceVersion
}

// explain returns what an error of a list means, and how to fix it.
func explain(gr schema.GroupResource, err error) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot impersonate"):
		return fmt.Sprintf("Ostiary may not impersonate the ServiceAccount %s, which it uses for the audit:"+
			" apply config/rbac of this version", account)
	case apierrors.IsForbidden(err):
		return forbidden(gr)
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return fmt.Sprintf("the API server no longer lists %s", gr)
	case errors.Is(err, objects.ErrTooLarge):
		return fmt.Sprintf("listing %s: %v: make it smaller or exclude the resource", gr, err)
	}
	return fmt.Sprintf("listing %s failed, and the results are of an earlier scan: %s", gr, truncate.String(err.Error(), 512))
}
