package lookups

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// maxErrorDetail is the number of bytes of an expression in an error.
const maxErrorDetail = 2048

// Definition is what determines an index: lookups of all policies with equal definitions share one.
type Definition struct {
	Group, Version, Resource string
	Scope                    v1alpha1.LookupScope
	KeyErrors                v1alpha1.LookupKeyErrors
	StoredKeys, Value        string
}

// DefinitionOf returns the definition of a lookup, with its defaults.
func DefinitionOf(l *v1alpha1.Lookup) Definition {
	return Definition{
		Group: l.Resource.Group, Version: l.Resource.Version, Resource: l.Resource.Resource,
		Scope: l.EffectiveScope(), KeyErrors: l.EffectiveKeyErrors(),
		StoredKeys: l.StoredKeys, Value: l.Value,
	}
}

// GroupVersionResource returns the resource of the stored objects.
func (d Definition) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: d.Group, Version: d.Version, Resource: d.Resource}
}

// Program computes what an index keeps of a stored object. It is safe for concurrent use.
type Program struct {
	Definition
	keys  *celengine.StoredProgram
	value *celengine.StoredProgram // nil for the default
	reads unstructuredjson.Selection
}

// Compile compiles the expressions of a lookup over stored objects. The path is that of the lookup. With an error, the
// program is nil.
func Compile(c *celengine.Compiler, l *v1alpha1.Lookup, path *field.Path) (*Program, field.ErrorList) {
	var errs field.ErrorList
	p := &Program{Definition: DefinitionOf(l)}
	flow := celsyntax.NewFlow()
	compile := func(at *field.Path, text string, check func(*cel.Type) error) *celengine.StoredProgram {
		program, err := c.Stored(text)
		if err == nil {
			err = check(program.ResultType())
		}
		if err != nil {
			errs = append(errs, field.Invalid(at, truncate.String(text, maxErrorDetail), truncate.String(err.Error(), maxErrorDetail)))
		}
		if parsed, issues := c.SyntaxEnv().Parse(text); issues.Err() == nil {
			flow.Add(parsed, "")
		}
		return program
	}
	p.keys = compile(path.Child("storedKeys"), l.StoredKeys, CheckKeys)
	if l.Value != "" {
		p.value = compile(path.Child("value"), l.Value, checkValue)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	p.reads = Identity().Union(flow.ReadOfInput(celsyntax.StoredVarName))
	if flow.Unknown() {
		p.reads = unstructuredjson.Everything()
	}
	return p, nil
}

// Identity selects what is read of every stored object.
func Identity() unstructuredjson.Selection {
	return unstructuredjson.Path("metadata", "name").Union(unstructuredjson.Path("metadata", "namespace")).
		Union(unstructuredjson.Path("metadata", "uid")).Union(unstructuredjson.Path("metadata", "resourceVersion"))
}

// Reads selects the parts of stored objects that the program reads, and what identifies an object. The other parts need
// not be decoded.
func (p *Program) Reads() unstructuredjson.Selection { return p.reads }

// ReadsOnlyMetadata reports whether the metadata of an object is enough.
func (p *Program) ReadsOnlyMetadata() bool {
	metadata := unstructuredjson.Path("metadata").Union(unstructuredjson.Path("kind")).Union(unstructuredjson.Path("apiVersion"))
	return metadata.Covers(p.reads)
}

// Element returns the type of the elements of the list that expressions read.
func (p *Program) Element() *cel.Type {
	if p.value == nil {
		return cel.MapType(cel.StringType, cel.StringType)
	}
	return p.value.ResultType()
}

// CheckKeys returns an error for the type of an expression that cannot be a list of strings.
func CheckKeys(t *cel.Type) error {
	if cel.ListType(cel.StringType).IsAssignableType(t) || t.IsExactType(cel.DynType) || t.IsExactType(cel.ListType(cel.DynType)) {
		return nil
	}
	return fmt.Errorf("must evaluate to list(string) but got %v: write one key as [key]", t)
}

// maxTypes is the number of types in the type of a value. With more, expressions that read it would take long to compile.
const maxTypes = 32

// checkValue returns an error for the type of a value that has no equal JSON, or consists of too many types.
func checkValue(t *cel.Type) error {
	if typesIn(t, maxTypes) > maxTypes {
		return fmt.Errorf("the type of the value consists of more than %d types: use fewer lists and maps within each other", maxTypes)
	}
	return checkJSON(t)
}

// typesIn returns the number of types in a type, at most bound + 1.
func typesIn(t *cel.Type, bound int) int {
	n := 1
	for _, part := range t.Parameters() {
		if n <= bound {
			n += typesIn(part, bound-n)
		}
	}
	return n
}

func checkJSON(t *cel.Type) error {
	switch t.Kind() {
	case types.BoolKind, types.IntKind, types.DoubleKind, types.StringKind, types.NullTypeKind, types.DynKind, types.AnyKind:
		return nil
	case types.ListKind, types.MapKind:
		if t.Kind() == types.MapKind && t.Parameters()[0].Kind() != types.StringKind && t.Parameters()[0].Kind() != types.DynKind {
			return fmt.Errorf("a map of the value has keys of type %v: use strings as keys", t.Parameters()[0])
		}
		for _, part := range t.Parameters() {
			if err := checkJSON(part); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the value contains the type %v, which JSON does not have: convert it, as with string()", t)
}

// Entry is what an index keeps of an object.
type Entry struct {
	Keys  []string // sorted, each once
	Value string   // JSON; empty for the default
}

// Entry evaluates the expressions for an object. Without keys, the object cannot be found and the value is not evaluated.
// An error means that the object has no keys or no value, or that they are too large; errors of CEL can contain keys of
// maps. ctx bounds the time.
func (p *Program) Entry(ctx context.Context, object map[string]any) (e Entry, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panics.Error(value)
		}
	}()
	result, err := p.keys.Evaluate(ctx, object)
	if err != nil {
		return Entry{}, fmt.Errorf("storedKeys: %w", err)
	}
	if e.Keys, err = KeysOf(result); err != nil {
		return Entry{}, fmt.Errorf("storedKeys: %w", err)
	}
	for i := range e.Keys { // they share no memory with the object
		e.Keys[i] = strings.Clone(e.Keys[i])
	}
	if e.Keys = slices.Clip(e.Keys); p.value == nil || len(e.Keys) == 0 {
		return e, nil
	}
	if result, err = p.value.Evaluate(ctx, object); err != nil {
		return Entry{}, fmt.Errorf("value: %w", err)
	}
	if e.Value, err = encode(result); err != nil {
		return Entry{}, fmt.Errorf("value: %w", err)
	}
	return e, nil
}
