package uncounted

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// decorateSelections has the programs of a batch select fields of JSON objects without
// the conversions between Go values and values of CEL, x.?y.orValue(z) without an
// optional value, has() of them, and macros without accumulators. An error of some functions ends the
// program. Everything else is left to the library.
func decorateSelections(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch node := i.(type) {
	case *selectedPath:
		return node, nil
	case interpreter.InterpretableAttribute:
		attr, ok := node.Attr().(interpreter.NamespacedAttribute)
		if ok && len(attr.Qualifiers()) == 0 && len(attr.CandidateVariableNames()) == 1 {
			return &selectedPath{InterpretableAttribute: node, name: attr.CandidateVariableNames()[0], simple: true}, nil
		}
	case interpreter.InterpretableCall:
		if l := loopOf(node); l != nil {
			return l, nil
		}
		if p := presenceFrom(node); p != nil {
			return p, nil
		}
		if m := computedMatchOf(node); m != nil {
			return m, nil
		}
		if args := node.Args(); len(args) == 2 && (node.Function() == "or" || node.Function() == "orValue") {
			return &optionalOr{id: node.ID(), receiver: args[0], other: args[1], value: node.Function() == "orValue"}, nil
		}
		if mustSucceed(node) {
			return &endingCall{node}, nil
		}
	}
	return i, nil
}

// mustSucceed reports whether an error of a call ends the program. Costs are counted for calls with arguments of a wrong
// type too. For sort, distinct and flatten with a depth, the counting of the cost then panics: see trackListSelfCompare
// and trackListFlatten in cel-go/ext. For sets it is the product of the lengths of two texts.
func mustSucceed(call interpreter.InterpretableCall) bool {
	switch call.Function() {
	case "sort", "@sortByAssociatedKeys", "distinct", "sets.contains", "sets.equivalent", "sets.intersects":
		return true
	case "flatten":
		return len(call.Args()) == 2
	}
	return false
}

// endingCall ends the program if the call returns an error, so that || and && do not ignore it.
type endingCall struct{ interpreter.InterpretableCall }

// Exec implements interpreter.InterpretableV2.
func (c *endingCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value := c.InterpretableCall.Exec(frame)
	if err, ok := value.(*types.Err); ok {
		panic(err)
	}
	return value
}

// Eval implements interpreter.Interpretable.
func (c *endingCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// selectedPath is a name and the selections that follow it, such as c.?ports or
// object.spec.containers.
type selectedPath struct {
	interpreter.InterpretableAttribute
	name   string
	steps  []selectStep
	simple bool // every step is the name of a field
}

type selectStep struct {
	key      ref.Val
	optional bool // this one or one before it is
}

// AddQualifier implements interpreter.InterpretableAttribute.
func (p *selectedPath) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	constant, ok := q.(interpreter.ConstantQualifier)
	if ok {
		_, ok = constant.Value().(types.String)
	}
	if p.simple = p.simple && ok; p.simple {
		optional := q.IsOptional() || len(p.steps) > 0 && p.steps[len(p.steps)-1].optional
		p.steps = append(p.steps, selectStep{key: constant.Value(), optional: optional})
	}
	return p.InterpretableAttribute.AddQualifier(q)
}

// Exec implements interpreter.InterpretableV2.
func (p *selectedPath) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	value, ok := p.find(frame)
	switch {
	case !ok:
		return p.InterpretableAttribute.Exec(frame)
	case !p.isOptional(), types.IsError(value):
		return value
	case value == nil:
		return types.OptionalNone
	}
	return types.OptionalOf(value)
}

// Eval implements interpreter.Interpretable.
func (p *selectedPath) Eval(vars interpreter.Activation) ref.Val {
	return p.Exec(interpreter.AsFrame(vars))
}

func (p *selectedPath) isOptional() bool {
	return len(p.steps) > 0 && p.steps[len(p.steps)-1].optional
}

// find returns the selected value, nil if an optional field is missing, or an error if another field is missing. It
// returns false if the selection has another result, or if one of the values is no JSON object.
func (p *selectedPath) find(frame *interpreter.ExecutionFrame) (ref.Val, bool) {
	if !p.simple {
		return nil, false
	}
	root, ok := frame.ResolveName(p.name)
	if !ok {
		return nil, false
	}
	value, ok := root.(ref.Val)
	if !ok {
		return nil, false
	}
	for i := range p.steps {
		var found bool
		step := &p.steps[i]
		switch v := value.(type) {
		case *jsonObject:
			value, found = v.Find(step.key)
			if !found && !step.optional {
				return types.WrapErr(&missingFieldError{key: step.key}), true
			}
		case *variableValues:
			value, found = v.Find(step.key)
		case traits.Mapper: // of an expression, not the request or the namespace
			if v.Type() != types.MapType {
				return nil, false
			}
			if value, found = v.Find(step.key); !found && !step.optional {
				return nil, false
			}
		default:
			return nil, false
		}
		if !found {
			return nil, step.optional
		}
	}
	return value, !types.IsUnknownOrError(value)
}

// optionalOr is receiver.or(other) or, if it is about the value, receiver.orValue(other).
type optionalOr struct {
	id              int64
	receiver, other interpreter.InterpretableV2
	value           bool
}

// ID implements interpreter.Interpretable.
func (o *optionalOr) ID() int64 { return o.id }

// Eval implements interpreter.Interpretable.
func (o *optionalOr) Eval(vars interpreter.Activation) ref.Val {
	return o.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (o *optionalOr) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if p, ok := o.receiver.(*selectedPath); ok && o.value && p.isOptional() {
		if value, ok := p.find(frame); ok {
			if value == nil {
				return o.other.Exec(frame)
			}
			return value
		}
	}
	receiver := o.receiver.Exec(frame)
	optional, ok := receiver.(*types.Optional)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(receiver)
	case !optional.HasValue():
		return o.other.Exec(frame)
	case o.value:
		return optional.GetValue()
	}
	return receiver
}
