package celengine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"

	"github.com/ostiary/ostiary/internal/celsyntax"
)

// typeOfLookups is the type of the CEL variable "lookups".
const typeOfLookups = "ostiary.lookups"

// Lookup is a lookup of a policy: the expression of its keys, which can read variables.
type Lookup struct {
	Name string
	Keys *Program
}

// Declared is what the expressions of a policy can read besides the inputs of a request.
type Declared struct {
	Variables []Variable
	Lookups   []Lookup
}

func (d Declared) none() bool { return len(d.Variables) == 0 && len(d.Lookups) == 0 }

// newLookupsCompiler returns a compiler for expressions that can read lookups. Its environments take memory, so that it is
// made for the first policy with lookups.
func newLookupsCompiler(from *environment.EnvSet) (*variablesCompiler, error) {
	object := apiservercel.NewObjectType(typeOfLookups, map[string]*apiservercel.DeclField{})
	env, err := from.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(celsyntax.LookupsVarName, object.CelType())},
		DeclTypes:         []*apiservercel.DeclType{object},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing lookups: %w", err)
	}
	c, err := newVariablesCompiler(env)
	if err != nil {
		return nil, err
	}
	c.lookups = object
	return c, nil
}

// WithLookup adds a lookup whose list has elements of a type.
func (k KnownVariables) WithLookup(name string, element *cel.Type) KnownVariables {
	if k.lookups == nil {
		k.lookups = map[string]*apiservercel.DeclField{}
	}
	list := apiservercel.NewListType(declaredTypeOf(element), -1)
	k.lookups[name] = apiservercel.NewDeclField(name, list, true, nil, nil)
	sum := sha256.Sum256([]byte(k.lookupsSignature + name + " " + list.CelType().String()))
	k.lookupsSignature = string(sum[:])
	return k
}

// lookupsReadBy reports whether an expression can read a lookup.
func (k KnownVariables) lookupsReadBy(expression string) bool {
	return len(k.lookups) > 0 && strings.Contains(expression, celsyntax.LookupsVarName)
}

// declaredTypeOf returns the type of a JSON value.
func declaredTypeOf(t *cel.Type) *apiservercel.DeclType {
	switch t.Kind() {
	case types.BoolKind:
		return apiservercel.BoolType
	case types.IntKind:
		return apiservercel.IntType
	case types.DoubleKind:
		return apiservercel.DoubleType
	case types.StringKind:
		return apiservercel.StringType
	case types.NullTypeKind:
		return apiservercel.NullType
	case types.ListKind:
		return apiservercel.NewListType(declaredTypeOf(t.Parameters()[0]), -1)
	case types.MapKind:
		return apiservercel.NewMapType(apiservercel.StringType, declaredTypeOf(t.Parameters()[1]), -1)
	}
	return apiservercel.DynType
}

// readingLookups is a program that reads lookups. The activation of Kubernetes does not have them.
type readingLookups struct{ cel.Program }

// ContextEval implements cel.Program.
func (p readingLookups) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	if c, ok := ctx.(*variablesContext); ok && c.lookups != nil {
		if inputs, ok := input.(cel.Activation); ok {
			input = withLookups{Activation: inputs, lookups: c.lookups}
		}
	}
	return p.Program.ContextEval(ctx, input)
}

// withLookups adds lookups to the inputs of an evaluation.
type withLookups struct {
	cel.Activation
	lookups ref.Val
}

// ResolveName implements cel.Activation.
func (a withLookups) ResolveName(name string) (any, bool) {
	if name == celsyntax.LookupsVarName {
		return a.lookups, true
	}
	return a.Activation.ResolveName(name)
}

// FindStored returns the objects that a lookup of a policy, by its index, finds for the value of its keys, and the cost of
// the list.
type FindStored func(ctx context.Context, lookup int, keys ref.Val) (list ref.Val, cost int64, err error)

// lookupRun is what the lookups of a policy have found. The lists that messages show are those that validations read.
type lookupRun struct {
	find   FindStored
	values map[int]ref.Val
}

type lookupRunKey struct{}

// WithLookups returns a context in which evaluations find stored objects, once for each lookup. It is for the
// evaluations of one policy on one object with one param.
func WithLookups(ctx context.Context, find FindStored) context.Context {
	return context.WithValue(ctx, lookupRunKey{}, &lookupRun{find: find, values: map[int]ref.Val{}})
}

// WithLookupsAgain returns a context in which lookups are evaluated again, for another object.
func WithLookupsAgain(ctx context.Context) context.Context {
	if run, ok := ctx.Value(lookupRunKey{}).(*lookupRun); ok {
		return WithLookups(ctx, run.find)
	}
	return ctx
}

// lookupValues returns the value of the CEL variable "lookups"; nil without lookups.
func (c *variablesContext) lookupValues(activation any) ref.Val {
	if len(c.declared.Lookups) == 0 {
		return nil
	}
	values := lazy.NewMapValue(cel.ObjectType(typeOfLookups))
	for i, l := range c.declared.Lookups {
		values.Append(l.Name, func(*lazy.MapValue) ref.Val { return c.lookUpOnce(i, activation) })
	}
	return values
}

func (c *variablesContext) lookUpOnce(index int, activation any) ref.Val {
	run, ok := c.Value(lookupRunKey{}).(*lookupRun)
	if !ok {
		return c.failedLookup(index, errors.New("stored objects are not available here"))
	}
	if value, ok := run.values[index]; ok {
		return value
	}
	value := c.lookUp(run, index, activation)
	run.values[index] = value
	return value
}

func (c *variablesContext) lookUp(run *lookupRun, index int, activation any) ref.Val {
	result := &c.declared.Lookups[index].Keys.Result
	if result.Error != nil {
		return c.failedLookup(index, fmt.Errorf("requestKeys fails to compile: %w", result.Error))
	}
	keys, details, err := result.Program.ContextEval(c, activation)
	if details == nil || details.ActualCost() == nil {
		return c.failedLookup(index, errors.New("unable to calculate the cost of requestKeys"))
	}
	c.cost += int64(min(*details.ActualCost(), math.MaxInt64))
	if err != nil {
		return c.failedLookup(index, fmt.Errorf("requestKeys: %w", err))
	}
	list, cost, err := run.find(c, index, keys)
	if err != nil {
		return c.failedLookup(index, err)
	}
	c.cost += cost
	return list
}

func (c *variablesContext) failedLookup(index int, err error) ref.Val {
	return types.WrapErr(fmt.Errorf("lookup %q: %w", c.declared.Lookups[index].Name, err))
}
