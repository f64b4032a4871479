package uncounted

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	param        param
	namespace    *Namespace // nil for policies that do not read it
	class        Class      // of everything that the current policy can read
	limit        extent     // of variables
	variables    variableValues
	plan         *plan      // of the current policy
	values       []ref.Val  // by slot, nil before the evaluation
	slots        *[]ref.Val // of the batch, with values
	frame        *interpreter.ExecutionFrame
}

// Release gives the memory of the values to another evaluation of the batch. Nothing may use this one afterwards. One
// that is not released is garbage.
func (e *Evaluation) Release() {
	clear(e.values)
	e.batch.released.Put(e.slots)
	e.values, e.slots = nil, nil
}

// Read determines what the next policies can read besides the request: an object as params, nil for none, and the
// namespace, nil for policies that do not read it. It returns the class of all of it together, and whether there is
// one. Only values that can be another one with this are evaluated again.
func (e *Evaluation) Read(params *unstructured.Unstructured, namespace *Namespace) (Class, bool) {
	if params != e.param.object {
		e.param = newParam(params)
		for _, slot := range e.batch.ofParams {
			e.values[slot] = nil
		}
	}
	size := e.inputs.Size.union(e.param.size)
	if e.namespace = namespace; namespace != nil {
		size = size.union(namespace.size)
	}
	class, ok := smallestClass(size)
	if ok && class != e.class { // a variable can be within one class and beyond another one
		clear(e.values)
		e.class, e.limit = class, class.extent()
	}
	return class, ok
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
	case celplugin.ParamsVarName:
		return e.param.value, true
	case celplugin.NamespaceVarName:
		if e.namespace != nil {
			return e.namespace.value, true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (e *Evaluation) Parent() cel.Activation { return nil }

// Policy evaluates the policy with an index in the batch, except validations that ask the authorizer.
func (e *Evaluation) Policy(index int) Outcome {
	e.plan = &e.batch.plans[index]
	if outcome := e.matched(); outcome != Satisfied {
		return outcome
	}
	outcome := Satisfied
	for _, slot := range e.plan.validations {
		if slot == noSlot {
			continue
		}
		value := e.value(slot)
		switch {
		case value == types.True:
		case value == types.False, types.IsError(value) && !IsUnfinished(value):
			outcome = Violated
		default:
			return Undecided
		}
	}
	for _, slot := range e.plan.checkedVariables {
		if IsUnfinished(e.variable(slot)) {
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
		case IsUnfinished(value):
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
		e.values[slot] = e.limited(e.value(slot), e.batch.shared[slot].fixed)
	}
	return e.values[slot]
}

// Validation is the value of a validation of the last policy that was evaluated, nil if it asks the authorizer.
func (e *Evaluation) Validation(index int) ref.Val { return e.valueOrNil(e.plan.validations[index]) }

// Message is the value of the message expression of a validation of that policy, nil without one.
func (e *Evaluation) Message(index int) ref.Val { return e.valueOrNil(e.plan.messages[index]) }

// Annotation is the value of an audit annotation of that policy.
func (e *Evaluation) Annotation(index int) ref.Val { return e.value(e.plan.annotations[index]) }

func (e *Evaluation) valueOrNil(slot int) ref.Val {
	if slot == noSlot {
		return nil
	}
	return e.value(slot)
}
