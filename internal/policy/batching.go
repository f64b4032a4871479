package policy

import (
	"strings"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// Batching says whether the policies of a call are evaluated together with a policy, in a batch.
type Batching struct {
	// Alone is the reason why the policy is evaluated alone for every request; "" if it is not.
	Alone string
	// Sizes is the number of sizes of requests, of AllSizes, for which the batch evaluates the
	// policy. For the others, larger ones, it is evaluated alone.
	Sizes, AllSizes int
}

// Batching returns whether a batch evaluates a policy, and why not. It compiles the policy again,
// so that it is not for requests.
func (c *Compiler) Batching(p *v1alpha1.WebhookPolicy) Batching {
	switch {
	case p.Spec.Plugin != nil:
		return Batching{Alone: "a plugin decides"}
	case p.Spec.Backend != nil:
		return Batching{Alone: "the API server calls its backend"}
	}
	b := newBuilder(p, c)
	parsed, err := celsyntax.Parse(c.counted.SyntaxEnv(), &p.Spec)
	if err != nil {
		return Batching{Alone: err.Error()}
	}
	b.parsed = parsed
	if reason := b.unsuitable(readsOf(&p.Spec, parsed)); reason != "" {
		return Batching{Alone: reason}
	}
	q := b.uncounted()
	if reason := b.readsElsewhere(q); reason != "" {
		return Batching{Alone: reason}
	}
	if !b.bound(q) {
		return Batching{Alone: b.unbounded(q)}
	}
	var out Batching
	out.Sizes, out.AllSizes = q.Sizes()
	return out
}

// unbounded returns why the costs of the expressions have to be counted.
func (b *builder) unbounded(q *uncounted.Policy) string {
	for path, text := range celsyntax.Expressions(&b.policy.Spec) {
		if strings.HasPrefix(path.String(), "spec.mutations") { // which no batch evaluates
			continue
		}
		if reason := b.compiler.uncounted.Unbounded(q, b.uncountedExpression(text), b.parsed[text]); reason != "" {
			return path.String() + ": " + reason
		}
	}
	return "the costs of all expressions together can exceed half of the limit"
}
