package bench_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/sets"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/test/clitest"
)

// uncalled are the overloads that no policy of the set R2 calls.
func uncalled() map[string]string {
	return map[string]string{
		"list_includes_dyn_dyn": "API servers of 1.36 and 1.37 do not accept it in new native policies",
	}
}

// TestCoverage freezes the set R2: what its policies contain, and which functions they call. It
// fails for a function of the environment of CEL that none of them calls.
func TestCoverage(t *testing.T) {
	policies := policiesOf(t, bench.R2)
	calls := callsOf(t, policies)
	exceptions := uncalled()
	var overloads [][]string
	for _, id := range declaredOverloads(t) {
		reason, excepted := exceptions[id]
		switch callers := len(calls[id]); {
		case callers == 0 && !excepted:
			t.Errorf("no policy calls the overload %s: add one, or a reason to uncalled", id)
		case callers > 0 && excepted:
			t.Errorf("the overload %s is called: remove it from uncalled", id)
		case excepted:
			overloads = append(overloads, []string{id, "none: " + reason})
		default:
			overloads = append(overloads, []string{id, fmt.Sprint(callers)})
		}
	}
	var out strings.Builder
	for _, table := range []struct {
		header []string
		rows   [][]string
	}{
		{[]string{"STYLE", "POLICIES", "SHA-256"}, stylesOf(t, policies)},
		{[]string{"SHAPE", "POLICIES"}, shapesOf(policies)},
		{[]string{"OVERLOAD", "POLICIES"}, overloads},
	} {
		if err := output.WriteTable(&out, table.header, table.rows); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n")
	}
	clitest.Compare(t, "testdata/r2/coverage.txt", out.String())
}

func stylesOf(t *testing.T, policies []*v1alpha1.WebhookPolicy) [][]string {
	t.Helper()
	counts := map[string]int{}
	for _, p := range policies {
		prefix, _, _ := strings.Cut(p.Name, "-")
		counts[prefix]++
	}
	prefixes := map[string]string{"constraints": "con", "controls": "ctl", "profiles": "prf", "platform": "plt"}
	var out [][]string
	for _, name := range bench.Styles() {
		text, err := bench.StyleText(name)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, []string{name, fmt.Sprint(counts[prefixes[name]]), fmt.Sprintf("%x", sha256.Sum256(text))})
	}
	return out
}

// shape is a property of a policy. The text has all its expressions.
type shape struct {
	name string
	has  func(spec *v1alpha1.WebhookPolicySpec, text string) bool
}

func containing(name string, parts ...string) shape {
	return shape{name, func(_ *v1alpha1.WebhookPolicySpec, text string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}}
}

func withVariables(least, most int) shape {
	return shape{fmt.Sprintf("%d to %d variables", least, most), func(spec *v1alpha1.WebhookPolicySpec, _ string) bool {
		return least <= len(spec.Variables) && len(spec.Variables) <= most
	}}
}

func hasMessageExpression(spec *v1alpha1.WebhookPolicySpec, part string) bool {
	return slices.ContainsFunc(spec.Validations, func(v v1alpha1.Validation) bool {
		return v.MessageExpression != "" && strings.Contains(v.MessageExpression, part)
	})
}

func shapes() []shape {
	return []shape{
		{"no variables", func(spec *v1alpha1.WebhookPolicySpec, _ string) bool { return len(spec.Variables) == 0 }},
		withVariables(1, 4), withVariables(5, 9), withVariables(10, 28),
		containing("parameters as a map of constants with dyn", "': dyn("),
		containing("the object or the old object", "? oldObject : object"),
		containing("three kinds of containers", "phemeralContainers"),
		containing("exemptions by image prefix", "variables.exemptPrefixes", "agents/"),
		containing("a switch on object.kind", "object.kind"),
		{"match conditions", func(spec *v1alpha1.WebhookPolicySpec, _ string) bool {
			return len(spec.MatchConditions) > 0
		}},
		containing("match conditions by user", "request.userInfo"),
		containing("match conditions by name", "object.metadata.?name", "object.metadata.name.endsWith"),
		{"message expressions", func(spec *v1alpha1.WebhookPolicySpec, _ string) bool {
			return hasMessageExpression(spec, "")
		}},
		{"message expressions with lists", func(spec *v1alpha1.WebhookPolicySpec, _ string) bool {
			return hasMessageExpression(spec, ".join(")
		}},
		containing("regular expressions", "matches(", ".find("),
		containing("findAll", ".findAll("),
		containing("durations and timestamps", "duration(", "timestamp("),
		containing("quantities", "quantity("),
		containing("semantic versions", "semver(", "isSemver("),
		containing("addresses", "ip(", "cidr(", "url("),
		containing("namespaceObject", "namespaceObject"),
		containing("authorizer", "authorizer"),
		{"a ConfigMap as parameter", func(spec *v1alpha1.WebhookPolicySpec, _ string) bool {
			return spec.ParamKind != nil
		}},
	}
}

func shapesOf(policies []*v1alpha1.WebhookPolicy) [][]string {
	versions, rules := map[string]int{}, sets.Set[string]{}
	counts := map[string]int{}
	for _, p := range policies {
		text := strings.Join(expressionsOf(p), "\n")
		for _, s := range shapes() {
			if s.has(&p.Spec, text) {
				counts[s.name]++
			}
		}
		match := p.Spec.MatchConstraints.ResourceRules
		versions[fmt.Sprintf("apiVersions %q", match[0].APIVersions)]++
		rules.Insert(fmt.Sprint(match))
	}
	var out [][]string
	for _, s := range shapes() {
		out = append(out, []string{s.name, fmt.Sprint(counts[s.name])})
	}
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		out = append(out, []string{v, fmt.Sprint(versions[v])})
	}
	return append(out, []string{"different rules", fmt.Sprint(rules.Len())})
}

// kubernetesEnvironment has the functions of 1.37. API servers accept those of their own version
// only in policies that are stored already.
func kubernetesEnvironment() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// declaredOverloads returns the overloads of all functions that expressions can call, sorted.
func declaredOverloads(t *testing.T) []string {
	t.Helper()
	out := sets.Set[string]{}
	for _, function := range kubernetesEnvironment().StoredExpressionsEnv().Functions() {
		if function.IsDeclarationDisabled() {
			continue
		}
		for _, overload := range function.OverloadDecls() {
			out.Insert(overload.ID())
		}
	}
	return sets.List(out)
}

// callsOf returns the policies that call each overload, where its arguments have types that
// permit no other.
func callsOf(t *testing.T, policies []*v1alpha1.WebhookPolicy) map[string]sets.Set[string] {
	t.Helper()
	compiler, err := celplugin.NewCompositedCompiler(kubernetesEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	variables, err := compiler.Env(environment.StoredExpressions) // which have the types of the last that were compiled
	if err != nil {
		t.Fatal(err)
	}
	options := []cel.EnvOption{
		cel.Variable(celplugin.AuthorizerVarName, library.AuthorizerType),
		cel.Variable(celplugin.RequestResourceAuthorizerVarName, library.ResourceCheckType),
	}
	for _, name := range []string{"object", "oldObject", "request", "params", "namespaceObject"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	env, err := variables.Extend(options...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]sets.Set[string]{}
	for _, p := range policies {
		declared := celplugin.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
		for _, v := range p.Spec.Variables {
			accessor := &validating.Variable{Name: v.Name, Expression: v.Expression}
			compiler.CompileAndStoreVariable(accessor, declared, environment.StoredExpressions)
		}
		for _, text := range expressionsOf(p) {
			checked, issues := env.Compile(text)
			if issues.Err() != nil {
				t.Fatalf("%s: %v", p.Name, issues.Err())
			}
			for _, reference := range checked.NativeRep().ReferenceMap() {
				if len(reference.OverloadIDs) == 1 {
					insert(out, reference.OverloadIDs[0], p.Name)
				}
			}
		}
	}
	return out
}

func expressionsOf(p *v1alpha1.WebhookPolicy) []string {
	var out []string
	for _, text := range celsyntax.Expressions(&p.Spec) {
		out = append(out, text)
	}
	return out
}

func insert(into map[string]sets.Set[string], key, value string) {
	if into[key] == nil {
		into[key] = sets.Set[string]{}
	}
	into[key].Insert(value)
}
