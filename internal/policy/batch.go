package policy

import (
	"context"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// batch is the policies of one call that have equal rules, so that they match
// the same requests. Those that consist of validations alone are evaluated
// together first, which spares each of them what evaluating costs besides its
// expressions. Only "all true" is taken from that: whatever else comes of it,
// the policy is evaluated again by itself, which then decides.
type batch struct {
	policies  []*Compiled // sorted by name
	reads     inputs
	evaluator celplugin.ConditionEvaluator // the validations of all plain policies, in their order; nil without any
}

// newBatches divides policies, sorted by name, by their rules.
func newBatches(policies []*Compiled) []*batch {
	var out []*batch
	byRules := map[string]*batch{}
	for _, p := range policies {
		b := byRules[p.rules]
		if b == nil {
			b = &batch{}
			byRules[p.rules] = b
			out = append(out, b)
		}
		b.policies = append(b.policies, p)
		b.reads = b.reads.with(p.reads)
	}
	for _, b := range out {
		b.prepare()
	}
	return out
}

func (b *batch) prepare() {
	var all []celplugin.CompilationResult
	for _, p := range b.policies {
		all = append(all, p.plain...)
	}
	if len(all) > 0 {
		b.evaluator = celplugin.NewCondition(all)
	}
}

// matches reports whether the policies are for a request.
func (b *batch) matches(r *request, host Environment) bool { return b.policies[0].matches(r, host) }

// evaluation is one policy's turn in the answer to a request.
type evaluation struct {
	policy    *Compiled
	satisfied bool // every validation is known to be true
	elapsed   time.Duration
}

// evaluations lists the policies, by name, with what is known of the plain ones.
//
// All of them share the cost budget of one: within it each of them was within
// its own. Beyond it, and after a panic, nothing is known.
func (b *batch) evaluations(ctx context.Context, r *request) []evaluation {
	turns := make([]evaluation, len(b.policies))
	for i, p := range b.policies {
		turns[i].policy = p
	}
	results := b.evaluate(ctx, r)
	if results == nil {
		return turns
	}
	for i, p := range b.policies {
		own := results[:len(p.plain)]
		results = results[len(p.plain):]
		if len(own) > 0 {
			turns[i].elapsed, turns[i].satisfied = allTrue(own)
		}
	}
	return turns
}

func (b *batch) evaluate(ctx context.Context, r *request) (results []celplugin.EvaluationResult) {
	if b.evaluator == nil || ctx.Err() != nil || r.unreadable != nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			results = nil // the policy that panics does so again by itself, where it is reported
		}
	}()
	request := celplugin.CreateAdmissionRequest(r.versioned.Attributes, r.raw.Resource, metav1.GroupVersionKind(r.versioned.VersionedKind))
	results, _, err := b.evaluator.ForInput(ctx, r.versioned, request, celplugin.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil
	}
	return results
}

func allTrue(results []celplugin.EvaluationResult) (elapsed time.Duration, ok bool) {
	for i := range results {
		if results[i].Error != nil || results[i].EvalResult != celtypes.True {
			return 0, false
		}
		elapsed += results[i].Elapsed
	}
	return elapsed, true
}
