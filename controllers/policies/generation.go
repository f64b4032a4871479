package policies

import (
	"cmp"
	"context"
	"runtime"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/validation"
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

// awaitsBundle reports whether the backend cannot be registered yet.
func (g *Generation) awaitsBundle() bool { return g.Policy.Spec.Backend != nil && !g.hasBundle }

// isCompiledFrom reports whether compiling a version of the policy would give the same result.
func (g *Generation) isCompiledFrom(p *v1alpha1.WebhookPolicy, engine policy.Engine) bool {
	return g.Policy.Generation == p.Generation && g.Policy.HelpURL() == p.HelpURL() && g.engine == engine
}

// withVersion returns the generation with another version of its policy, so that the cache
// and the entry do not keep two. The policy of a plugin is not the one in the cache: the
// loader completes its rules.
func (g *Generation) withVersion(p *v1alpha1.WebhookPolicy) *Generation {
	if g.Policy == p || p.Spec.Plugin != nil {
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
	return &Generation{
		Policy:      verdict.Policy,
		Compiled:    verdict.Compiled,
		Errors:      verdict.Errors,
		engine:      compiler.Engine(),
		registrable: verdict.Registrable,
		prepared:    prepared,
	}
}
