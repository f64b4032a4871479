package offline

import (
	"context"

	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/guard"
)

// AuditedPolicy is a policy that is evaluated on stored objects, as the audit of Ostiary does.
type AuditedPolicy struct {
	Name string
	// Resources are those whose objects the policy can match.
	Resources []audit.Resource

	evaluator *audit.Evaluator
}

// Audited returns those of some policies that can be evaluated on stored objects, and by name
// why the others cannot, or not on all.
func (e *Engine) Audited(names []string, served audit.Served) (out []AuditedPolicy, problems map[string]string) {
	problems = map[string]string{}
	exempt := guard.ExemptNamespaces(e.exempt)
	for _, name := range names {
		p, compiled := e.policies[name], e.compiled[name]
		if why := audit.Unaudited(&p.Spec, compiled); why != "" {
			problems[name] = why
			continue
		}
		resources, more := audit.Resources(&p.Spec, served)
		if more {
			problems[name] = audit.TooManyResources()
		}
		out = append(out, AuditedPolicy{Name: name, Resources: resources, evaluator: audit.NewEvaluator(p, compiled, exempt)})
	}
	return out, problems
}

// Evaluate evaluates the policy on a stored object. Messages hold no values of objects.
func (p *AuditedPolicy) Evaluate(ctx context.Context, o *audit.Object, w *World) audit.Result {
	return p.evaluator.Evaluate(ctx, o, w.environment())
}
