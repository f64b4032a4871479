package matchconditions

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// requests returns requests with and without objects, names, users and fields.
func requests() []*admission.VersionedAttributes {
	var out []*admission.VersionedAttributes
	objects := []map[string]any{
		nil, {}, {"metadata": map[string]any{}},
		{"metadata": map[string]any{"name": "a", "labels": map[string]any{"team": "x", "a/b": "c"}, "finalizers": []any{"f"}}, "spec": map[string]any{"replicas": int64(3), "on": true, "host": "h.example.com"}},
		{"metadata": map[string]any{"name": "b", "labels": map[string]any{"team": "y"}}, "spec": map[string]any{"replicas": "3", "on": "yes", "host": int64(1)}},
		{"metadata": map[string]any{"name": "c"}, "spec": "a text", "data": nil},
	}
	users := []user.Info{nil, &user.DefaultInfo{}, &user.DefaultInfo{Name: "system:node:n", Groups: []string{"system:nodes"}}, &user.DefaultInfo{Name: "jane", Groups: []string{"a", "b"}}}
	gvk, gvr := schema.GroupVersionKind{Version: "v1", Kind: "Thing"}, schema.GroupVersionResource{Version: "v1", Resource: "things"}
	for i, object := range objects {
		for j, u := range users {
			var obj, old runtime.Object
			if object != nil {
				obj = &unstructured.Unstructured{Object: object}
			}
			if other := objects[(i+j)%len(objects)]; other != nil {
				old = &unstructured.Unstructured{Object: other}
			}
			if u == nil {
				u = &user.DefaultInfo{}
			}
			name, namespace, sub := []string{"", "a", "b"}[(i+j)%3], []string{"", "prod"}[j%2], []string{"", "status"}[i%2]
			operation := []admission.Operation{admission.Create, admission.Update, admission.Delete}[i%3]
			attr := admission.NewAttributesRecord(obj, old, gvk, namespace, name, gvr, sub, operation, nil, j%2 == 0, u)
			out = append(out, &admission.VersionedAttributes{
				Attributes: attr, VersionedKind: gvk, VersionedObject: admission.NewLazyObject(obj), VersionedOldObject: admission.NewLazyObject(old),
			})
		}
	}
	return out
}

func match(t *testing.T, compiler cel.ConditionCompiler, expression string, attr *admission.VersionedAttributes) matchconditions.MatchResult {
	t.Helper()
	accessor := matchconditions.MatchCondition{Name: "c", Expression: expression}
	evaluator := compiler.CompileCondition([]cel.ExpressionAccessor{&accessor}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	fail := admissionregistrationv1.Fail
	return matchconditions.NewMatcher(evaluator, &fail, "webhook", "validate", "c").Match(context.Background(), attr, nil, nil)
}

// A rewritten expression never fails and excludes no request that the original
// does not exclude, according to the code of the API server.
func TestErrorFree(t *testing.T) {
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	tests := map[string]struct {
		expressions []string
		wantExact   bool // false whenever the expression is false
	}{
		"the request": {wantExact: true, expressions: []string{
			`request.operation == "CREATE"`, `request.operation in ["CREATE", "UPDATE"]`, `request.resource.resource != "things"`, `request.kind.kind == "Thing"`,
			`!("system:nodes" in request.userInfo.groups)`, `request.namespace == "prod"`, `request.name != "a"`, `request.dryRun`, `!request.dryRun`,
			`request.subResource == "status" || request.name == "a"`, `has(request.namespace) && request.namespace != "prod"`,
			`request.userInfo.username.startsWith("system:")`, `request.userInfo.username.matches("^system:.*n$")`, `!request.userInfo.username.contains("ja") && request.name.endsWith("a")`,
			`request.requestResource.group == ""`, `!has(request.requestSubResource)`, `true`, `false`,
		}},
		"objects": {wantExact: true, expressions: []string{
			`object == null`, `oldObject != null`, `object != null && object.metadata.name == "a"`, `has(object.metadata.labels) && object.metadata.labels.team == "x"`,
			`!(has(object.metadata.labels) && object.metadata.labels.team == "x")`, `"team" in object.metadata.labels`, `object.metadata.labels["a/b"] != "c"`,
			`"f" in object.metadata.finalizers`, `object.metadata.name in ["a", "c"]`, `oldObject.metadata.name.startsWith("b")`, `"x" == object.metadata.labels.team`,
			`object.metadata.name == request.name`, `object.spec.host.contains("example")`,
		}},
		"types that differ": {expressions: []string{
			`object.spec.replicas > 2`, `object.spec.replicas == 3`, `object.spec.on`, `!object.spec.on`, `object.spec.host == "h.example.com" || object.spec.on == true`,
			`has(object.spec) && has(object.spec.host)`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, expression := range tt.expressions {
				text, ok := errorFree(expression)
				if !ok {
					t.Errorf("%s is not delegated", expression)
					continue
				}
				for _, attr := range requests() {
					want, got := match(t, compiler, expression, attr), match(t, compiler, text, attr)
					excluded := want.Error == nil && !want.Matches
					switch {
					case got.Error != nil:
						t.Errorf("%s fails: %v", text, got.Error)
					case !got.Matches && !excluded:
						t.Errorf("%s excludes a request that %s does not exclude: %v", text, expression, want.Error)
					case got.Matches && excluded && tt.wantExact:
						t.Errorf("%s includes a request that %s excludes: %v", text, expression, attr.GetObject())
					}
				}
			}
		})
	}
}

func TestNotDelegated(t *testing.T) {
	for name, expression := range map[string]string{
		"invalid CEL":                `request.`,
		"params":                     `params.data.x == "a"`,
		"variables":                  `variables.x == "a"`,
		"lookups":                    `lookups.x == "a"`,
		"namespaceObject":            `namespaceObject.metadata.name == "a"`,
		"two values of unknown type": `object.spec == oldObject.spec`,
		"arithmetic":                 `object.spec.replicas + 1 > 2`,
		"a list of unknown size":     `object.spec.containers.all(c, c.image != "x")`,
		"an unsupported function":    `object.metadata.name.lowerAscii() == "a"`,
		"userInfo.extra":             `request.userInfo.extra["k"][0] == "a"`,
		"an invalid pattern":         `request.name.matches("(")`,
		"a pattern in the object":    `request.name.matches(object.spec.host)`,
		"a conditional":              `request.dryRun ? true : false`,
		"another authorizer result":  `authorizer.group("").resource("pods").check("get").errored()`,
	} {
		t.Run(name, func(t *testing.T) {
			if text, ok := errorFree(expression); ok {
				t.Errorf("%s is delegated as %s", expression, text)
			}
		})
	}
}

func TestCondition(t *testing.T) {
	known := admissionregistrationv1.MatchCondition{Name: "a", Expression: `request.operation == "CREATE"`}
	unknown := admissionregistrationv1.MatchCondition{Name: "b", Expression: `object.spec == oldObject.spec`}
	rules := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{ResourceNames: []string{"b", "a"}}}}
	const named = `(has(request.name) && request.name in ["a", "b"])`
	kind := &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	tests := map[string]struct {
		spec v1alpha1.WebhookPolicySpec
		want string
	}{
		"no conditions":                      {},
		"a supported condition":              {spec: v1alpha1.WebhookPolicySpec{MatchConditions: []admissionregistrationv1.MatchCondition{known}}, want: `(request.operation == "CREATE")`},
		"one unsupported condition of two":   {spec: v1alpha1.WebhookPolicySpec{MatchConditions: []admissionregistrationv1.MatchCondition{known, unknown}}},
		"names and an unsupported condition": {spec: v1alpha1.WebhookPolicySpec{MatchConstraints: rules, MatchConditions: []admissionregistrationv1.MatchCondition{unknown}}, want: named},
		"names and a paramKind":              {spec: v1alpha1.WebhookPolicySpec{MatchConstraints: rules, ParamKind: kind, MatchConditions: []admissionregistrationv1.MatchCondition{known}}, want: named},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Condition(&tt.spec); got != tt.want {
				t.Errorf("Condition() = %s, want %s", got, tt.want)
			}
		})
	}
}

// FuzzErrorFree fails if a delegated expression fails, or excludes a request that
// the original does not exclude.
func FuzzErrorFree(f *testing.F) {
	for _, seed := range []string{`request.name == "a" || !object.spec.on`, `has(object.a.b) && object.a["b"] in ["c"]`, `!(object == null)`} {
		f.Add(seed)
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	all := requests()
	f.Fuzz(func(t *testing.T, expression string) {
		text, ok := errorFree(expression)
		if !ok {
			return
		}
		accessor := matchconditions.MatchCondition{Name: "c", Expression: expression}
		decls := cel.OptionalVariableDeclarations{HasAuthorizer: true}
		if cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())).CompileCELExpression(&accessor, decls, environment.StoredExpressions).Error != nil {
			return // such a policy is rejected before
		}
		for _, attr := range all {
			want, got := match(t, compiler, expression, attr), match(t, compiler, text, attr)
			if got.Error != nil || !got.Matches && (want.Matches || want.Error != nil) {
				t.Errorf("%s as %s: %+v, want %+v", expression, text, got, want)
			}
		}
	})
}
