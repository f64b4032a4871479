package celengine

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	celcommon "github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Engine is the minor version of Kubernetes whose engine expressions behave like. API
// servers evaluate native policies with the libraries that they were built with, and
// those differ: see docs/operations/kubernetes-versions.md.
type Engine int

// OldestEngine and LatestEngine are the first and the last engine that Ostiary knows.
// The libraries that this program was built with are those of the last.
const (
	OldestEngine Engine = 34
	LatestEngine Engine = 37
)

// EngineOf returns the engine of a version that an API server reports. Versions before the
// oldest engine have the oldest one, and versions after the latest one have that. Some
// providers write the minor version as "34+".
func EngineOf(major, minor string) (Engine, error) {
	n, err := strconv.Atoi(minor[:len(minor)-len(strings.TrimLeft(minor, "0123456789"))])
	if err != nil || major != "1" {
		return 0, fmt.Errorf("reading the version of the API server: %q.%q is not a version of Kubernetes", major, minor)
	}
	return min(max(Engine(n), OldestEngine), LatestEngine), nil
}

// strictOptionals is the first engine in which a receiver of or and orValue that is
// not optional is an error.
const strictOptionals Engine = 37

// String is the version, as in "1.36".
func (e Engine) String() string { return fmt.Sprintf("1.%d", int(e)) }

// tolerant is how a tolerant function is named until it is evaluated. Programs of CEL
// replace functions of the library's own names before any other code sees them.
const tolerant = "@tolerant_"

// withEngine returns the environment with the functions of an engine.
func withEngine(base *environment.EnvSet, e Engine) (*environment.EnvSet, error) {
	if e >= strictOptionals {
		return base, nil
	}
	return base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        append(tolerantOptionals(), earlierFunctions()...),
		ProgramOptions:    []cel.ProgramOption{cel.CustomDecoratorV2(decorateTolerant), earlierCosts()},
	})
}

// tolerantOptionals declare or and orValue as before strictOptionals: at run time, a
// receiver that is not optional is its own value.
func tolerantOptionals() []cel.EnvOption {
	value := cel.TypeParamType("V")
	optional := cel.OptionalType(value)
	or := cel.MemberOverload("tolerant_optional_or_optional", []*cel.Type{optional, optional}, optional)
	orValue := cel.MemberOverload("tolerant_optional_orValue_value", []*cel.Type{optional, value}, value)
	return []cel.EnvOption{
		cel.Macros(tolerantMacro("or"), tolerantMacro("orValue")),
		cel.Function(tolerant+"or", or),
		cel.Function(tolerant+"orValue", orValue),
	}
}

func tolerantMacro(name string) cel.Macro {
	expand := func(factory cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		return factory.NewMemberCall(tolerant+name, target, args...), nil
	}
	return cel.ReceiverMacro(name, 1, expand)
}

// earlierFunctions are as before strictOptionals: duration() of an integer compiles,
// and always fails, and lists.range() of a negative number is an empty list.
func earlierFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("duration", cel.Overload("int64_to_duration", []*cel.Type{cel.IntType}, cel.DurationType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return v.ConvertToType(types.DurationType) }))),
		cel.Function("lists.range", cel.Overload("lists_range", []*cel.Type{cel.IntType}, cel.ListType(cel.IntType),
			cel.UnaryBinding(func(v ref.Val) ref.Val {
				var out []ref.Val
				n, _ := v.(types.Int)
				for i := range n {
					out = append(out, i)
				}
				return types.NewRefValList(types.DefaultTypeAdapter, out)
			}))),
	}
}

// earlierCosts are those of functions that cost another amount from strictOptionals on.
func earlierCosts() cel.ProgramOption {
	traversal := func(args []ref.Val, _ ref.Val) *uint64 {
		cost := uint64(math.Ceil(float64(len(text(args[0]))) * celcommon.StringTraversalCostFactor))
		return &cost
	}
	return cel.CostTrackerOptions(
		interpreter.OverloadCostTracker(overloads.StartsWithString, traversal),
		interpreter.OverloadCostTracker(overloads.EndsWithString, traversal),
		interpreter.OverloadCostTracker(overloads.Matches, func([]ref.Val, ref.Val) *uint64 {
			return new(uint64(1))
		}),
	)
}

// decorateTolerant evaluates the tolerant functions.
func decorateTolerant(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || !strings.HasPrefix(call.Function(), tolerant) {
		return i, nil
	}
	args := call.Args()
	return &tolerantCall{
		id:       call.ID(),
		receiver: args[0],
		other:    args[1],
		value:    call.Function() == tolerant+"orValue",
	}, nil
}

// tolerantCall is receiver.or(other) or, if it is about the value, receiver.orValue(other).
type tolerantCall struct {
	id              int64
	receiver, other interpreter.InterpretableV2
	value           bool
}

// ID implements interpreter.Interpretable.
func (c *tolerantCall) ID() int64 { return c.id }

// Eval implements interpreter.Interpretable.
func (c *tolerantCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *tolerantCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	receiver := c.receiver.Exec(frame)
	optional, ok := receiver.(*types.Optional)
	switch {
	case !ok:
		return receiver
	case !optional.HasValue():
		return c.other.Exec(frame)
	case c.value:
		return optional.GetValue()
	}
	return receiver
}
