package typecheck

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// The names of types in expressions. Those of initialisers begin with Object, and the
// object of the request has the same types, so that one can be a part of the other.
const (
	objectType    = mutation.ObjectTypeName
	paramsType    = "Params"
	variablesType = "kubernetes.variables"
	lookupsType   = "ostiary.lookups"
	storedType    = "Stored" // with the index of a lookup in fields
)

// resolver finds the types of one check by their names. The environment of all checks
// keeps one resolver, whose content is replaced for each check.
type resolver struct {
	object, params node
	variables      map[string]*cel.Type
	stored         storedTypes
	current        node // of the lookup whose expressions are checked

	missing []missing // fields, in the order in which the checker asked for them
	unknown []missing // fields in the names of types
}

// storedTypes are the types of the lookups of a policy.
type storedTypes struct {
	roots map[string]node      // of stored objects, by the names of their types
	lists map[string]*cel.Type // by the names of lookups
}

func (s storedTypes) list(name string) (*cel.Type, bool) {
	t, ok := s.lists[name]
	return t, ok
}

// missing is a field that an object does not have.
type missing struct {
	object node
	field  string
}

// Resolve implements common.TypeResolver.
func (r *resolver) Resolve(name string) (common.ResolvedType, bool) {
	if name == variablesType {
		return structType{name: name, lookup: r.variable}, true
	}
	if name == lookupsType {
		return structType{name: name, lookup: r.stored.list}, true
	}
	first, rest, _ := strings.Cut(name, ".")
	switch first {
	case objectType:
		return r.find(r.object, name, rest), true
	case paramsType:
		return r.find(r.params, name, rest), true
	case storedType:
		return r.find(r.current, name, rest), true
	}
	if of, ok := r.stored.roots[first]; ok {
		return r.find(of, name, rest), true
	}
	if name == mutation.JSONPatchTypeName {
		return structType{name: name, lookup: patchField}, true
	}
	return nil, false
}

// patchField is the type of a field of JSONPatch. checkPatches warns of other fields.
func patchField(name string) (*cel.Type, bool) {
	switch name {
	case "op", "path", "from":
		return cel.StringType, true
	}
	return cel.DynType, true
}

// find walks from a root to the type with a name. A name of a field that does not exist
// is recorded, and gets a type with any fields.
func (r *resolver) find(at node, name, rest string) common.ResolvedType {
	for rest != "" && at.form() == formObject {
		var field string
		field, rest, _ = strings.Cut(rest, ".")
		next, ok := at.field(field)
		if !ok {
			r.unknown = append(r.unknown, missing{at, field})
			return structType{name: name, lookup: anyField}
		}
		at = next.inner()
	}
	if at.form() != formObject {
		return structType{name: name, lookup: anyField}
	}
	return structType{name: name, lookup: func(field string) (*cel.Type, bool) {
		found, ok := at.field(field)
		if !ok {
			r.missing = append(r.missing, missing{at, field})
			return nil, false
		}
		return found.celType(), true
	}}
}

func (r *resolver) variable(name string) (*cel.Type, bool) {
	t, ok := r.variables[name]
	return t, ok
}

func anyField(string) (*cel.Type, bool) { return cel.DynType, true }

// structType is a type with fields. It implements common.ResolvedType for the checker
// of types, which makes no values.
type structType struct {
	name   string
	lookup func(field string) (*cel.Type, bool)
}

// Type implements common.ResolvedType.
func (t structType) Type() *types.Type { return types.NewObjectType(t.name) }

// TypeName implements ref.Type.
func (t structType) TypeName() string { return t.name }

// HasTrait implements ref.Type.
func (t structType) HasTrait(trait int) bool { return t.Type().HasTrait(trait) }

// Field implements common.ResolvedType.
func (t structType) Field(name string) (*types.FieldType, bool) {
	found, ok := t.lookup(name)
	if !ok {
		return nil, false
	}
	return &types.FieldType{Type: found}, true
}

// FieldNames implements common.ResolvedType.
func (t structType) FieldNames() ([]string, bool) { return nil, true }

// Val implements common.ResolvedType.
func (t structType) Val(map[string]ref.Val) ref.Val { return types.NewErr("no values of %s", t.name) }
