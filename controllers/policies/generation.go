package policies

import (
	"cmp"
	"context"
	"runtime"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/validation"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// chunkSize is the number of policies that a processor takes at once.
const chunkSize = 64

// Generation is a compiled generation of a policy. It is immutable.
type Generation struct {
	// Policy is shared with the cache and must not be changed.
	Policy *v1alpha1.WebhookPolicy
	// Compiled evaluates requests. With Errors, its failurePolicy decides them.
	Compiled *policy.Compiled
	// Errors explain why the policy is not accepted.
	Errors field.ErrorList

	// engine is the engine that Compiled behaves like.
	engine policy.Engine
	// registrable is false if no webhook may be registered for the policy.
	registrable bool
	prepared    registration.Entry
	// placeholder means that this replaces an earlier generation that is not known.
	placeholder bool
	// loadedVersion is empty if Policy has the version that was loaded first.
	loadedVersion string
	// hasBundle means that the CA bundle of the backend is known.
	hasBundle bool
	bundle    []byte
}

// Accepted reports whether the policy can take effect.
func (g *Generation) Accepted() bool { return len(g.Errors) == 0 }

// LoadedVersion returns the resource version in which the generation was loaded first. A
// replica that has loaded this version has the generation, whatever changed in the status
// since.
func (g *Generation) LoadedVersion() string { return cmp.Or(g.loadedVersion, g.Policy.ResourceVersion) }

// Requirement returns what a replica needs in order to answer as this entry does.
func (e *Entry) Requirement() versionskew.Requirement {
	return versionskew.Requirement{
		Loaded: versionskew.Vector{versionskew.Policies: e.LoadedVersion()},
		Spec:   &e.effective().Policy.Spec,
	}
}

// awaitsBundle reports whether the backend cannot be registered yet.
func (g *Generation) awaitsBundle() bool { return g.Policy.Spec.Backend != nil && !g.hasBundle }

// isUnderstood reports whether this version knows all fields of the policy. Compiled does not
// contain the effect of the others.
func (g *Generation) isUnderstood() bool { return len(g.Policy.UnknownFields) == 0 }

// isCompiledFrom reports whether compiling a version of the policy would give the same result.
func (g *Generation) isCompiledFrom(p *v1alpha1.WebhookPolicy, engine policy.Engine) bool {
	return g.isEffectOf(p) && g.engine == engine &&
		g.Policy.HelpURL() == p.HelpURL() && g.Policy.SuspendedUntil().Equal(p.SuspendedUntil())
}

// isGenerationOf reports whether a version of the policy has this generation, as it was read. An
// API server can send one generation without its new fields first, because a watch is older
// than the definition, and with them later. A field that was there once does not disappear.
func (g *Generation) isGenerationOf(p *v1alpha1.WebhookPolicy) bool {
	sameFields := len(p.UnknownFields) == 0 || slices.Equal(p.UnknownFields, g.Policy.UnknownFields)
	return g.Policy.Generation == p.Generation && sameFields
}

// isEffectOf reports whether requests are decided as a version of the policy says, with the steps of its rollouts.
func (g *Generation) isEffectOf(p *v1alpha1.WebhookPolicy) bool {
	return g.isGenerationOf(p) && rollout.SameEffect(g.Policy, p)
}

// withVersion returns the generation with another version of its policy, so that the cache
// and the entry do not keep two. The policy of a plugin is not the one in the cache: the
// loader completes its rules.
func (g *Generation) withVersion(p *v1alpha1.WebhookPolicy) *Generation {
	if g.Policy == p || p.Spec.Plugin != nil || !g.isUnderstood() {
		return g
	}
	out := *g
	out.loadedVersion = g.LoadedVersion()
	out.Policy = p
	return &out
}

// generations returns the latest generation of each policy, in the same order. It compiles
// those that the previous state does not have. The first load uses all processors, since the
// replica answers no requests before.
func (l *Loader) generations(log logr.Logger, seen *observation) []*Generation {
	workers := 1
	if seen.previous == nil {
		workers = runtime.GOMAXPROCS(0)
	}
	out := make([]*Generation, len(seen.policies))
	generate := func(i int) { out[i] = l.generation(log, seen, seen.policies[i]) }
	workqueue.ParallelizeUntil(context.Background(), workers, len(out), generate, workqueue.WithChunkSize(chunkSize))
	return out
}

func (l *Loader) generation(log logr.Logger, seen *observation, p *v1alpha1.WebhookPolicy) *Generation {
	before := seen.entryBefore(p)
	if before != nil && before.isCompiledFrom(p, seen.compiler.Engine()) {
		return before.Generation.withVersion(p)
	}
	g := l.compile(log, seen.compiler, p)
	if before != nil {
		g.Compiled.InheritState(before.Compiled)
	}
	return g
}

func (l *Loader) compile(log logr.Logger, compiler *policy.Compiler, p *v1alpha1.WebhookPolicy) *Generation {
	verdict := validation.Validate(compiler, p, l.BackendRule)
	prepared := registration.Prepare(verdict.Policy)
	if verdict.Compiles {
		log.V(1).Info("compiled policy", "policy", p.Name, "generation", p.Generation)
	} else {
		l.Metrics.CompileFailed()
		log.Info("policy does not compile", "policy", p.Name, "generation", p.Generation, "errors", verdict.Errors.ToAggregate().Error())
		prepared = prepared.WithoutCondition() // the error decides every request
	}
	g := &Generation{
		Policy:      verdict.Policy,
		Compiled:    verdict.Compiled,
		Errors:      verdict.Errors,
		engine:      compiler.Engine(),
		registrable: verdict.Registrable,
		prepared:    prepared,
	}
	if !g.isUnderstood() {
		// It is never used, and the errors can be about what the unknown fields replace.
		g.Errors = nil
		g.registrable = true
	}
	return g
}
