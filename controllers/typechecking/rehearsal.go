package typechecking

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rehearsal"
	"github.com/ostiary/ostiary/internal/typecheck"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// rehearseWithin bounds the rehearsal of a policy that is being applied. rehearsalMargin is for
	// the evaluation that the end of this time interrupts.
	rehearseWithin  = time.Second
	rehearsalMargin = 200 * time.Millisecond
	// maxApplied is the number of findings of a rehearsal in the answer to a client. The
	// condition has the others.
	maxApplied = 5
	// seeFindings says where all findings are.
	seeFindings = "see the condition " + v1alpha1.ConditionRehearsed + ", or run kubectl ostiary lint"
)

// rehearsals rehearse policies one at a time, because an evaluation takes a processor from
// admission requests.
type rehearsals struct {
	converters policy.TypeConverters
	objects    admission.ObjectInterfaces

	slot      chan struct{} // holds a value while another goroutine uses the fields below
	rehearser *rehearsal.Rehearser
	engine    policy.Engine
	expiry    *time.Timer
}

// rehearse waits until no other policy is rehearsed, at most until ctx ends.
func (r *rehearsals) rehearse(ctx context.Context, p *v1alpha1.WebhookPolicy, e policy.Engine, served Served,
	documents func(apiresources.Kind) *typecheck.Document) rehearsal.Result {
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
	case <-ctx.Done():
		return rehearsal.Result{Stopped: "other policies were rehearsed until the time for it ended"}
	}
	if r.rehearser == nil || r.engine != e {
		made, err := rehearsal.New(e)
		if err != nil {
			panic(err) // it depends on this program alone
		}
		r.rehearser, r.engine = made, e
	}
	if r.expiry == nil {
		r.expiry = time.AfterFunc(keepFor, r.expire)
	}
	return r.rehearser.Rehearse(ctx, p, rehearsal.Cluster{
		Served: served, Documents: documents, TypeConverters: r.converters, Objects: r.objects,
	})
}

// expire forgets the compiler for rehearsals, which takes some megabytes. A later rehearsal makes
// another one.
func (r *rehearsals) expire() {
	r.slot <- struct{}{}
	defer func() { <-r.slot }()
	r.rehearser, r.expiry = nil, nil
}

// rehearse rehearses a policy, of which the check of types has some warnings. It never fails: the
// result says what was not rehearsed.
func (c *Checker) rehearse(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served,
	found []advice.Warning) (out rehearsal.Result) {
	defer func() {
		if value := recover(); value != nil {
			c.log.Error(panics.Error(value), "a rehearsal panicked", "policy", p.Name)
			out = rehearsal.Result{Stopped: "it panicked, which the log of Ostiary contains"}
		}
	}()
	out = c.rehearsals.rehearse(ctx, p, c.engines.Engine(), served, c.customDocuments(ctx))
	out.Warnings = rehearsal.Beside(found, out.Warnings)
	return out
}

// customDocuments returns the schemas of custom resources, at most of as many group versions as
// are kept. The objects of built-in kinds do not come from a schema.
func (c *Checker) customDocuments(ctx context.Context) func(apiresources.Kind) *typecheck.Document {
	read := map[string]bool{}
	return func(kind apiresources.Kind) *typecheck.Document {
		if scheme.Scheme.Recognizes(kind.GroupVersionKind) {
			return nil
		}
		if read[kind.Served.String()] = true; len(read) > maxDocuments {
			return nil
		}
		known, _ := c.known(ctx, kind)
		return known[0].Document
	}
}

// Rehearse returns the findings about a policy that is being applied, besides those that Warnings has
// found. The answer to the client does not wait for an evaluation that takes longer.
func (c *Checker) Rehearse(
	ctx context.Context, p *v1alpha1.WebhookPolicy, served Served, found []advice.Warning,
) (out []advice.Warning) {
	limit := time.Now().Add(rehearseWithin)
	if end, ok := ctx.Deadline(); ok && end.Add(-2*rehearsalMargin).Before(limit) {
		limit = end.Add(-2 * rehearsalMargin)
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	// The rehearsal runs beside the evaluation of stored objects, and can outlive the request, so
	// it must not use the account of its memory. Its own objects are small.
	ctx = unstructuredjson.WithAccount(ctx, nil)
	done := make(chan rehearsal.Result, 1)
	go func() { done <- c.rehearse(ctx, p, served, found) }()
	var result rehearsal.Result
	select {
	case result = <-done:
	case <-time.After(time.Until(limit.Add(rehearsalMargin))):
		result.Stopped = "the time for it ended"
	}
	out = slices.Clone(result.Warnings[:min(len(result.Warnings), maxApplied)])
	if more := len(result.Warnings) - maxApplied; more > 0 {
		out = append(out, advice.Warning{Text: fmt.Sprintf("%d more findings: "+seeFindings, more)})
	}
	if result.Stopped != "" {
		out = append(out, advice.Warning{Text: fmt.Sprintf("not rehearsed: %s; "+seeFindings, result.Stopped)})
	}
	return out
}

// Rehearsed returns the result of the rehearsal of the generation of a policy by this checker. It
// is nil while there is none, also if the status of the policy has the condition already.
func (c *Checker) Rehearsed(p *v1alpha1.WebhookPolicy) *rehearsal.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.result(p); ok {
		return r.rehearsed
	}
	return nil
}

// isRehearsed reports whether the status of a policy has the condition for its generation.
func isRehearsed(p *v1alpha1.WebhookPolicy) bool {
	i := slices.IndexFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionRehearsed
	})
	return i >= 0 && p.Status.Conditions[i].ObservedGeneration == p.Generation
}
