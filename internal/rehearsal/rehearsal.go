// Package rehearsal evaluates a policy before requests do: on small objects of the kinds that its
// rules match, which leave out what is optional. It finds requests that fail with an error,
// selectors that match nothing, requests that go around a validation, and validations that keep
// namespaces from being deleted.
//
// The package is pure. Expressions are evaluated by internal/policy, with the semantics and the
// cost limits of admission, and the sum of the costs of a rehearsal is limited too.
package rehearsal

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/typecheck"
)

// Cluster is what a rehearsal needs to know of an API server.
type Cluster struct {
	Served apiresources.Lists
	// Documents returns the schema of a custom kind; nil means that it is not known, and that
	// the kind is not rehearsed.
	Documents func(apiresources.Kind) *typecheck.Document
	// TypeConverters and Objects apply mutations; without them mutations are not rehearsed.
	TypeConverters policy.TypeConverters
	Objects        admission.ObjectInterfaces
}

// Rehearser rehearses policies. It is safe for concurrent use.
type Rehearser struct {
	compiler *policy.Compiler
	objects  *objects
}

// New returns a Rehearser whose expressions behave as in API servers of a version.
func New(e policy.Engine) (*Rehearser, error) {
	objects, err := readObjects()
	if err != nil {
		return nil, err
	}
	return &Rehearser{compiler: policy.NewTracingCompiler(e), objects: objects}, nil
}

// Rehearse returns warnings about a valid policy. If ctx ends, it returns what it has found until
// then. If the costs reach their limit, a warning says so.
func (r *Rehearser) Rehearse(ctx context.Context, p *v1alpha1.WebhookPolicy, c Cluster) []typecheck.Warning {
	resolved := plugins.Resolve(p)
	if resolved.Policy.Spec.MatchConstraints == nil {
		return nil
	}
	targets := targetsOf(&resolved.Policy.Spec, c.Served)
	out := unmatchedTargets(&p.Spec, targets)
	if p.Spec.Backend != nil || p.Spec.Plugin != nil {
		return out // what decides is not an expression
	}
	read := newReadings(r.compiler, &p.Spec)
	out = append(out, detours(&p.Spec, targets, c.Served, read)...)
	out = append(out, read.warnings()...)
	out = append(out, clusterScopedParams(&p.Spec, targets, c.Served)...)
	compiled, errs := r.compiler.Compile(p)
	if len(errs) > 0 {
		return out // the policy is rejected
	}
	return append(out, newStage(r, p, compiled, read, c).run(ctx, targets)...)
}
