// Package uncounted evaluates the expressions of several policies together, without counting their costs. That
// takes a third of the time, and policies with equal expressions share the value.
//
// An expression may be evaluated so only if an upper bound of its cost, for requests of the same extent, is far
// below the limit. Only the values true and false, and an error that IsExact, may decide. Any other error of an
// expression, and a policy with any other value, must be evaluated again, alone and with costs.
package uncounted

import (
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// Batch has the expressions of several policies. It is safe for concurrent use.
type Batch struct {
	plans    []plan        // of each policy; without slots for one that the batch cannot evaluate
	shared   []*Expression // by slot
	patterns patterns      // of the policies that compute one
	ofParams []int         // slots of expressions that read params, also by variables
	released sync.Pool     // of *[]ref.Val without values, as long as shared
}

// plan has the slots of a policy's expressions among the shared ones of the batch.
type plan struct {
	names                             []string // of variables
	variables                         []int    // by the index in names
	conditions, validations, messages []int    // noSlot for no message, and for one that asks the authorizer
	annotations                       []int
	checkedVariables                  []int // that messages and annotations read, and that can be large
}

const noSlot = -1

// NewBatch returns a batch of policies, which share equal expressions. A policy that is nil cannot be evaluated.
func NewBatch(policies []*Policy) *Batch {
	b := &Batch{plans: make([]plan, len(policies))}
	slotOf := map[string]int{}
	for i, policy := range policies {
		if policy != nil {
			b.plans[i] = b.newPlan(policy, slotOf)
			b.addPatterns(policy)
		}
	}
	return b
}

func (b *Batch) newPlan(policy *Policy, slotOf map[string]int) plan {
	var p plan
	slot := func(prefix string, e *Expression) int {
		before := len(b.shared)
		slot := b.slot(prefix+p.key(e), e, slotOf)
		if slot == before && policy.Reads(e, Params) {
			b.ofParams = append(b.ofParams, slot)
		}
		return slot
	}
	for _, v := range policy.Variables {
		added := slot(variableKey, v.Expression)
		p.names = append(p.names, v.Name)
		p.variables = append(p.variables, added)
	}
	slots := func(all []*Expression) []int {
		out := make([]int, len(all))
		for i, e := range all {
			out[i] = noSlot
			if e != nil && !policy.Reads(e, Authorizer) {
				out[i] = slot("", e)
			}
		}
		return out
	}
	p.conditions = slots(policy.Conditions)
	p.validations = slots(policy.Validations)
	p.messages = slots(policy.Messages)
	p.annotations = slots(policy.Annotations)
	p.checkedVariables = p.largeVariables(policy)
	return p
}

// largeVariables returns the slots of the variables that messages and annotations read, unless their values, and those
// of the variables that they read, are small. Kubernetes evaluates the messages of validations that are true as well,
// so that a large variable can exceed the limit of costs.
func (p *plan) largeVariables(policy *Policy) []int {
	large := make([]bool, len(policy.Variables)) // a variable reads those before it
	for i, v := range policy.Variables {
		large[i] = !v.small || slices.ContainsFunc(v.reads, func(name string) bool {
			at := slices.Index(p.names[:i], name)
			return at >= 0 && large[at]
		})
	}
	var slots []int
	for _, text := range slices.Concat(policy.Messages, policy.Annotations) {
		if text == nil {
			continue
		}
		for _, name := range text.reads {
			if at := slices.Index(p.names, name); at >= 0 && large[at] && !slices.Contains(slots, p.variables[at]) {
				slots = append(slots, p.variables[at])
			}
		}
	}
	return slots
}

// variableKey begins the keys of variables: their values are limited, those of other expressions are not.
const variableKey = "variable "

// key returns equal keys for equal expressions. Two are equal if their texts are, and if the variables that they
// read are equal and have equal names.
func (p *plan) key(e *Expression) string {
	key := fmt.Sprintf("%p", e) // of the cache: it is equal for equal texts
	for _, name := range e.reads {
		if at := slices.Index(p.names, name); at >= 0 {
			key += fmt.Sprintf(" %s:%d", name, p.variables[at])
		}
	}
	return key
}

// slot returns the slot of an expression, a new one if no expression has its key.
func (b *Batch) slot(key string, e *Expression, slotOf map[string]int) int {
	slot, ok := slotOf[key]
	if !ok {
		slot = len(b.shared)
		slotOf[key] = slot
		b.shared = append(b.shared, e)
	}
	return slot
}

// Inputs are what the expressions of a batch can read of a request.
type Inputs struct {
	Object, OldObject any // see Object
	Request           Request
	Size              Size // of all of them
}

// Request is an admission request.
type Request interface {
	// RequestValue returns the value of the CEL variable request. It is called once, if an expression reads it.
	RequestValue() ref.Val
}

// Evaluate returns the evaluation of a request, without a result yet. Its policies read nothing else until Read says so.
func (b *Batch) Evaluate(inputs Inputs) *Evaluation {
	slots, ok := b.released.Get().(*[]ref.Val)
	if !ok {
		made := make([]ref.Val, len(b.shared))
		slots = &made
	}
	e := &Evaluation{inputs: inputs, batch: b, class: noClass, values: *slots, slots: slots}
	e.variables.evaluation = e
	e.frame = interpreter.AsFrame(e)
	_, _ = e.Read(nil, nil)
	return e
}
