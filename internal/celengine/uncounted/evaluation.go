package uncounted

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// Outcome is the result of a policy in a batch.
type Outcome int

// Outcomes.
const (
	Undecided  Outcome = iota // evaluate the policy alone, with costs
	Satisfied                 // every match condition and every validation is true
	NotMatched                // a match condition is false
	Violated                  // every match condition is true, and a validation is false or an error
)

// Evaluation holds the inputs of the expressions of a batch during one request, and their values. It implements
// cel.Activation. It is not safe for concurrent use.
type Evaluation struct {
	batch        *Batch
	inputs       Inputs
	requestValue ref.Val // set by the first expression that reads it
	variables    variableValues
	limit        extent    // of variables
	plan         *plan     // of the current policy
	values       []ref.Val // by slot, nil before the evaluation
	frame        *interpreter.ExecutionFrame
}

// ResolveName implements cel.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case celplugin.ObjectVarName:
		return e.inputs.Object, true
	case celplugin.OldObjectVarName:
		return e.inputs.OldObject, true
	case celplugin.RequestVarName:
		if e.requestValue == nil {
			e.requestValue = e.inputs.Request.RequestValue()
		}
		return e.requestValue, true
	case celplugin.VariableVarName:
		return &e.variables, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (e *Evaluation) Parent() cel.Activation { return nil }

// Policy evaluates the policy with an index in the batch.
func (e *Evaluation) Policy(index int) Outcome {
	e.plan = &e.batch.plans[index]
	if outcome := e.matched(); outcome != Satisfied {
		return outcome
	}
	outcome := Satisfied
	for _, slot := range e.plan.validations {
		value := e.value(slot)
		switch {
		case value == types.True:
		case value == types.False, types.IsError(value) && !isUnfinished(value):
			outcome = Violated
		default:
			return Undecided
		}
	}
	for _, slot := range e.plan.messageVariables {
		if isUnfinished(e.variable(slot)) {
			return Undecided
		}
	}
	return outcome
}

// matched evaluates the match conditions. A false one decides, even if another one is an error. Those that follow it
// are evaluated too if they read variables, because a large variable can exceed the limit of their costs.
func (e *Evaluation) matched() Outcome {
	outcome := Satisfied
	for _, slot := range e.plan.conditions {
		if outcome == NotMatched && len(e.batch.shared[slot].reads) == 0 {
			continue
		}
		value := e.value(slot)
		switch {
		case isUnfinished(value):
			return Undecided
		case value == types.False:
			outcome = NotMatched
		case value != types.True && outcome == Satisfied:
			outcome = Undecided
		}
	}
	return outcome
}

// value returns the value of an expression, which can be an error.
func (e *Evaluation) value(slot int) ref.Val {
	if e.values[slot] == nil {
		e.values[slot] = e.batch.shared[slot].eval(e.frame)
	}
	return e.values[slot]
}

// variable returns the value of a variable, which can be an error.
func (e *Evaluation) variable(slot int) ref.Val {
	if e.values[slot] == nil {
		e.values[slot] = e.limited(e.value(slot))
	}
	return e.values[slot]
}

// Validation is the value of a validation of the last policy that was evaluated.
func (e *Evaluation) Validation(index int) ref.Val { return e.value(e.plan.validations[index]) }

// Message is the value of the message expression of a validation of that policy, nil without one.
func (e *Evaluation) Message(index int) ref.Val {
	slot := e.plan.messages[index]
	if slot == noSlot {
		return nil
	}
	return e.value(slot)
}
