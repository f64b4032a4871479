// Package typecheck checks the expressions of policies against the schemas of the kinds
// that they match. It finds fields that do not exist, values that do not fit and
// operations of patches that do not exist, in every expression of a policy. It is pure:
// the reviewer of policies and the leader call it with schemas that they have read.
package typecheck

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// Kind is a kind with its schema.
type Kind struct {
	schema.GroupVersionKind
	// Document has the schema. Nil means that the schema is not known.
	Document *Document
}

// known reports whether the schema is known.
func (k Kind) known() bool { return k.Document != nil && k.Document.Has(k.GroupVersionKind) }

// Checker checks policies, one at a time. It is safe for concurrent use.
type Checker struct {
	mu    sync.Mutex
	types *resolver
	env   *cel.Env
}

// New returns a checker for the CEL environment of the API server release that this
// program was built with.
func New() (*Checker, error) {
	request, namespace := celplugin.BuildRequestType(), celplugin.BuildNamespaceType()
	types := &resolver{}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0), // for every version
			EnvOptions: []cel.EnvOption{
				cel.Variable(celplugin.ObjectVarName, cel.ObjectType(objectType)),
				cel.Variable(celplugin.OldObjectVarName, cel.ObjectType(objectType)),
				cel.Variable(celplugin.ParamsVarName, cel.ObjectType(paramsType)),
				cel.Variable(celplugin.VariableVarName, cel.ObjectType(variablesType)),
				cel.Variable(celsyntax.LookupsVarName, cel.ObjectType(lookupsType)),
				cel.Variable(celsyntax.StoredVarName, cel.ObjectType(storedType)),
				cel.Variable(celplugin.RequestVarName, request.CelType()),
				cel.Variable(celplugin.NamespaceVarName, namespace.CelType()),
				cel.Variable(celplugin.AuthorizerVarName, library.AuthorizerType),
				cel.Variable(celplugin.RequestResourceAuthorizerVarName, library.ResourceCheckType),
			},
			DeclTypes: []*apiservercel.DeclType{request, namespace},
		})
	if err != nil {
		return nil, fmt.Errorf("preparing the check of types: %w", err)
	}
	set, err = set.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{common.ResolverEnvOption(types), environment.UnversionedLib(library.JSONPatch)},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the check of types: %w", err)
	}
	return &Checker{types: types, env: set.StoredExpressionsEnv()}, nil
}

// Check checks the expressions of a policy for each of the kinds that it matches, and
// merges what it finds. A kind without a schema is not checked. When ctx ends, what has
// been found until then is returned. The policy must compile.
func (c *Checker) Check(ctx context.Context, p *v1alpha1.WebhookPolicy, kinds []Kind, others Others) []advice.Warning {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { *c.types = resolver{} }() // do not keep the documents
	expressions := expressionsOf(&p.Spec)
	found := newFindings(kinds, discriminates(expressions))
	stored := c.checkStored(ctx, &p.Spec, others.Stored, found)
	for _, kind := range kinds {
		if kind.known() {
			c.checkKind(ctx, &p.Spec, expressions, kind, others.Params, stored, found)
		}
	}
	return found.warnings(append(storedExpressionsOf(&p.Spec), expressions...))
}

// Others are the kinds of objects that expressions read besides the object of a request.
type Others struct {
	Params Kind
	// Stored has the kind of each lookup. The zero value means that it is not known.
	Stored []Kind
}

// checkStored checks the expressions of lookups over stored objects, and returns the types of the lists and of their values.
func (c *Checker) checkStored(ctx context.Context, spec *v1alpha1.WebhookPolicySpec, kinds []Kind, found *findings) storedTypes {
	out := storedTypes{roots: map[string]node{}, lists: map[string]*cel.Type{}}
	for i := range spec.Lookups {
		l, kind := &spec.Lookups[i], Kind{}
		if i < len(kinds) {
			kind = kinds[i]
		}
		name := fmt.Sprintf("%s%d", storedType, i)
		found.stored[name] = kind
		out.roots[name] = root(kind.Document, kind.GroupVersionKind, name)
		element := cel.MapType(cel.StringType, cel.StringType)
		for _, e := range storedExpressionsOfLookup(l, i) {
			result := cel.DynType
			if *c.types = (resolver{stored: out, current: out.roots[name]}); kind.known() && ctx.Err() == nil {
				result = c.checkExpression(&e, kind, Kind{}, found)
			}
			if e.isValue {
				element = result
			}
		}
		if element.TypeName() == storedType { // the whole object, whose type is another one in each lookup
			element = cel.DynType
		}
		out.lists[l.Name] = cel.ListType(element)
	}
	return out
}

func (c *Checker) checkKind(
	ctx context.Context,
	spec *v1alpha1.WebhookPolicySpec,
	expressions []expression,
	kind, params Kind,
	stored storedTypes,
	found *findings,
) {
	*c.types = resolver{
		object:    root(kind.Document, kind.GroupVersionKind, objectType),
		params:    root(params.Document, params.GroupVersionKind, paramsType),
		variables: make(map[string]*cel.Type, len(spec.Variables)),
		stored:    stored,
	}
	for i := range expressions {
		if ctx.Err() != nil {
			return
		}
		e := &expressions[i]
		out := c.checkExpression(e, kind, params, found)
		if e.variable != "" {
			c.types.variables[e.variable] = out
		}
	}
}

// checkExpression returns the type of an expression.
func (c *Checker) checkExpression(e *expression, kind, params Kind, found *findings) *cel.Type {
	c.types.missing, c.types.unknown = nil, nil
	checked, issues := c.env.Compile(e.text)
	for _, m := range c.types.unknown {
		found.addMissing(e, kind, params, m)
	}
	if issues.Err() != nil {
		parsed, _ := c.env.Parse(e.text) // it has no types
		c.addIssues(e, parsed, issues, kind, params, found)
		c.checkMutation(e, parsed, kind, params, found)
		return cel.DynType
	}
	out := checked.OutputType()
	if !e.returns(out) {
		found.add(e, kind, "%s returns %s, and this returns %s", e.what, resultsOf(e), cel.FormatCELType(out))
	}
	c.checkMutation(e, checked, kind, params, found)
	return out
}

// addIssues adds what the compiler reports. It reports fields that do not exist in the
// order in which it asked the resolver for them.
func (c *Checker) addIssues(e *expression, parsed *cel.Ast, issues *cel.Issues, kind, params Kind, found *findings) {
	missing := c.types.missing
	for _, issue := range issues.Errors() {
		if isMissingField(issue.Message) && len(missing) > 0 {
			found.addMissing(e, kind, params, missing[0])
			missing = missing[1:]
			continue
		}
		text, ok := c.types.explainMisfit(parsed, issue)
		if !ok {
			text = explain(issue.Message)
		}
		if text != "" {
			found.add(e, kind, "%s", text+position(e, issue.Location))
		}
	}
}

func resultsOf(e *expression) string {
	names := make([]string, len(e.results))
	for i, t := range e.results {
		names[i] = cel.FormatCELType(t)
	}
	return strings.Join(names, " or ")
}
