package policy

import (
	"context"
	"runtime"
	"sync"
	"weak"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// program is a compiled expression that several policies may share.
type program struct {
	result celplugin.CompilationResult
}

type programKey struct {
	expression string
	kind       string // of the accessor: it determines the types that the expression may return
	decls      celplugin.OptionalVariableDeclarations
}

// programCache finds programs by their expression. It holds them weakly: a
// program lives as long as a policy uses it, so the cache needs no bound of
// its own and no eviction.
type programCache struct {
	mu      sync.Mutex
	entries map[programKey]weak.Pointer[program]
}

func newProgramCache() *programCache {
	return &programCache{entries: map[programKey]weak.Pointer[program]{}}
}

func (c *programCache) get(key programKey, compile func() *program) *program {
	if p := c.lookup(key); p != nil {
		return p
	}
	p := compile() // outside the lock: two callers may compile the same, which costs time but nothing else
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[key] = weak.Make(p)
	runtime.AddCleanup(p, c.forget, key)
	return p
}

func (c *programCache) lookup(key programKey) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key].Value()
}

// forget removes a key whose program is gone, unless it has been compiled anew.
func (c *programCache) forget(key programKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.entries[key]; ok && p.Value() == nil {
		delete(c.entries, key)
	}
}

// composedMutation evaluates a mutation that may read variables. Only condition
// evaluators are given a context for variables upstream, so the mutation runs
// inside of one.
type composedMutation struct {
	celplugin.MutatingEvaluator
	composed *celplugin.CompositedConditionEvaluator
}

// ForInput implements celplugin.MutatingEvaluator.
func (m composedMutation) ForInput(ctx context.Context, attr *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) (celplugin.EvaluationResult, int64, error) {
	composed := *m.composed
	composed.ConditionEvaluator = asCondition{MutatingEvaluator: m.MutatingEvaluator}
	results, budget, err := composed.ForInput(ctx, attr, request, vars, namespace, budget)
	if len(results) == 0 {
		return celplugin.EvaluationResult{}, budget, err
	}
	return results[0], budget, err
}

// asCondition gives a mutation the form of a list of one condition.
type asCondition struct{ celplugin.MutatingEvaluator }

// ForInput implements celplugin.ConditionEvaluator.
func (c asCondition) ForInput(ctx context.Context, attr *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, vars celplugin.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) ([]celplugin.EvaluationResult, int64, error) {
	result, budget, err := c.MutatingEvaluator.ForInput(ctx, attr, request, vars, namespace, budget)
	return []celplugin.EvaluationResult{result}, budget, err
}
