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
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rollout"
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

// Result is what a rehearsal finds.
type Result struct {
	Warnings []advice.Warning
	// Stopped is the limit that ended the rehearsal before its last request; empty if none did.
	Stopped string
	// Omitted says which requests were not part of the rehearsal, and why.
	Omitted []string
	// Resources is the number of resources that the rules match and that are known; 0 means that no
	// request was rehearsed.
	Resources int
}

// Rehearse rehearses a valid policy, as it decides at the end of its rollouts. If ctx ends, or if the costs reach their limit, it returns
// what it has found until then.
func (r *Rehearser) Rehearse(ctx context.Context, p *v1alpha1.WebhookPolicy, c Cluster) (out Result) {
	p = rollout.AtEnd(p)
	resolved := plugins.Resolve(p)
	if resolved.Policy.Spec.MatchConstraints == nil {
		return out
	}
	targets, matched := targetsOf(&resolved.Policy.Spec, c.Served)
	out.Resources = len(targets)
	out.Warnings = unmatchedTargets(&p.Spec, targets)
	if p.Spec.Backend != nil || p.Spec.Plugin != nil {
		out.Omitted = []string{"a backend or a plugin decides, not expressions"}
		return out
	}
	if len(targets) == 0 {
		out.Omitted = append(out.Omitted, "none of the resources that the rules name is served")
	}
	if matched > len(targets) {
		out.Omitted = append(out.Omitted, fmt.Sprintf("of %d resources that the rules match, only these were rehearsed: %s",
			matched, strings.Join(namesOf(targets), ", ")))
	}
	read := newReadings(r.compiler, &p.Spec)
	out.Warnings = append(out.Warnings, detours(&p.Spec, targets, c.Served, read)...)
	out.Warnings = append(out.Warnings, read.warnings()...)
	out.Warnings = append(out.Warnings, clusterScopedParams(&p.Spec, targets, c.Served)...)
	compiled, errs := r.compiler.Compile(p)
	if len(errs) > 0 {
		return out // the policy is rejected
	}
	newStage(r, p, compiled, read, c).run(ctx, targets, &out)
	return out
}
