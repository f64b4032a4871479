package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/truncate"
)

var errNoLookups = errors.New("stored objects are not available here")

// compiledLookup is a lookup of a policy.
type compiledLookup struct {
	name    string
	program *lookups.Program
	match   v1alpha1.LookupMatch
}

// LookupNeeds returns what the lookups of the policy read.
func (c *Compiled) LookupNeeds() []*lookups.Program {
	if c == nil {
		return nil
	}
	var out []*lookups.Program
	for _, l := range c.lookups {
		out = append(out, l.program)
	}
	return out
}

// declareLookups compiles the lookups of the policy, before the variables: all of them can read lookups, and the keys of
// requests can read the variables that read none.
func (b *builder) declareLookups() {
	spec := &b.policy.Spec
	if len(spec.Lookups) == 0 {
		return
	}
	readers := celsyntax.LookupReadersOf(spec, b.parsed)
	keys := b.variablesOfKeys(readers)
	known := b.known
	for i := range spec.Lookups {
		l, path := &spec.Lookups[i], field.NewPath("spec", "lookups").Index(i)
		at := path.Child("requestKeys")
		program, errs := lookups.Compile(b.compiler.counted, l, path)
		if err := checkReads(readers, l, at); err != nil {
			errs = append(errs, err)
		}
		if b.errs = append(b.errs, errs...); len(errs) > 0 { // expressions that read the list then have no second error
			known = known.WithLookup(l.Name, cel.DynType)
			continue
		}
		known = known.WithLookup(l.Name, program.Element())
		b.lookups = append(b.lookups, compiledLookup{name: l.Name, program: program, match: l.EffectiveMatch()})
		b.declared.Lookups = append(b.declared.Lookups, celengine.Lookup{Name: l.Name, Keys: b.requestKeys(at, l, keys)})
	}
	b.known = known
}

// variablesOfKeys returns the types of the variables that read no lookup. Their errors are those of declareVariables.
func (b *builder) variablesOfKeys(readers celsyntax.LookupReaders) (known celengine.KnownVariables) {
	for _, v := range b.policy.Spec.Variables {
		if readers.Variable(v.Name) {
			continue
		}
		p := b.compiler.counted.Variable(known, v.Expression, b.declarations(), b.parsed[v.Expression])
		if celengine.CheckType(p) != nil {
			return known
		}
		known = known.With(v.Name, p)
	}
	return known
}

// checkReads rejects keys that depend on lookups.
func checkReads(readers celsyntax.LookupReaders, l *v1alpha1.Lookup, at *field.Path) *field.Error {
	by, reads := readers.Reads(l.RequestKeys)
	if !reads {
		return nil
	}
	detail := "requestKeys cannot read lookups: use object, oldObject, request, params, and variables that read no lookup"
	if by != "" {
		detail = fmt.Sprintf("requestKeys cannot read variables.%s, because that variable reads lookups: use variables that read no lookup", by)
	}
	return field.Invalid(at, truncate.String(l.RequestKeys, maxErrorDetail), detail)
}

// requestKeys compiles the keys of requests, as a variable that has no name.
func (b *builder) requestKeys(at *field.Path, l *v1alpha1.Lookup, known celengine.KnownVariables) *celengine.Program {
	compile := func(c *celengine.Compiler) *celengine.Program {
		return c.Variable(known, l.RequestKeys, b.declarations(), nil)
	}
	p := b.compiler.counted.Variable(known, l.RequestKeys, b.declarations(), b.parsed[l.RequestKeys])
	all := b.known
	b.known = known // for hints
	b.check(at, l.RequestKeys, p.Result, b.declarations())
	b.known = all
	b.programs = append(b.programs, p)
	if p.Result.Error == nil {
		if err := lookups.CheckKeys(p.Result.OutputType); err != nil {
			b.errs = append(b.errs, field.Invalid(at, truncate.String(l.RequestKeys, maxErrorDetail), err.Error()))
		}
	}
	return b.traced(at, p, compile)
}

// withLookups returns a context in which evaluations of the policy on a subject find stored objects.
func (c *Compiled) withLookups(ctx context.Context, on *subject, host Environment) context.Context {
	if len(c.lookups) == 0 {
		return ctx
	}
	return celengine.WithLookups(ctx, func(ctx context.Context, index int, keys ref.Val) (ref.Val, int64, error) {
		return c.lookUp(ctx, on, index, keys, host)
	})
}

// lookUp finds stored objects.
func (c *Compiled) lookUp(ctx context.Context, on *subject, index int, value ref.Val, host Environment) (ref.Val, int64, error) {
	if host.Lookups == nil {
		return nil, 0, errNoLookups
	}
	keys, err := lookups.KeysOf(value)
	if err != nil {
		return nil, 0, fmt.Errorf("requestKeys: %w", err)
	}
	l := &c.lookups[index]
	query := lookups.Query{Keys: keys, Match: l.match, Namespace: on.raw.Namespace, Own: on.own(l.program.Definition)}
	found, err := host.Lookups.Lookup(ctx, l.program, query)
	if report := traceOf(ctx).Lookup; report != nil {
		report(LookedUp{
			Policy: c.name, Lookup: l.name, Definition: l.program.Definition, Query: query, Found: found.Values, Template: on.template, Err: err,
		})
	}
	if err != nil {
		return nil, 0, err
	}
	return listOf(found)
}

// valueCostFactor is the number of bytes of a value whose cost is 1, as of a text that is read.
const valueCostFactor = 10

// listOf returns a result as CEL reads it, and its cost.
func listOf(found lookups.Result) (ref.Val, int64, error) {
	list := make([]ref.Val, len(found.Values))
	cost := int64(1)
	for i, v := range found.Values {
		value, err := v.Decode()
		if err != nil {
			return nil, 0, err
		}
		list[i] = types.DefaultTypeAdapter.NativeToValue(value)
		cost += 1 + int64(len(v.Namespace)+len(v.Name)+len(v.JSON))/valueCostFactor
	}
	return types.NewRefValList(types.DefaultTypeAdapter, list), cost, nil
}

// own returns what identifies the object of the request among the objects of a lookup. Of a pod template it is the workload.
func (on *subject) own(d lookups.Definition) lookups.Own {
	raw := on.raw
	if isAnotherObject(raw.SubResource) {
		return lookups.Own{}
	}
	out := lookups.Own{
		IsStored:  raw.Resource.Group == d.Group && raw.Resource.Resource == d.Resource,
		Namespace: raw.Namespace, Name: raw.Name,
	}
	if d.Group == "" && d.Resource == "namespaces" { // a request about a namespace is in it
		out.Namespace = ""
	}
	for _, object := range on.requestObjects() {
		accessor, err := meta.Accessor(object)
		if object == nil || err != nil {
			continue
		}
		if out.UID == "" && raw.Operation != admissionv1.Create { // the client can have written that of another object
			out.UID = string(accessor.GetUID())
		}
		if out.Name == "" {
			out.Name = accessor.GetName()
		}
	}
	out.IsStored = out.IsStored && out.Name != ""
	return out
}

// requestObjects returns the objects of the request, each of which can be nil.
func (on *subject) requestObjects() [2]runtime.Object {
	whole := on.request.whole.versioned
	return [2]runtime.Object{whole.VersionedOldObject.Object(), whole.VersionedObject.Object()}
}
