package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// Values that must not leave an object: a text, a number, and the same number as a double prints it.
const (
	canaryText   = "s3cr3t"
	canaryNumber = 73313373
)

func holdsCanary(text string) bool {
	return slices.ContainsFunc([]string{canaryText, fmt.Sprint(canaryNumber), "7.3313373"},
		func(c string) bool { return strings.Contains(text, c) })
}

// canaryRequest is an update of a Secret or a ConfigMap whose keys, values and metadata are canaries.
func canaryRequest(tb testing.TB, kind string) *admissionv1.AdmissionRequest {
	tb.Helper()
	object := map[string]any{
		"apiVersion": "v1", "kind": kind,
		"metadata": map[string]any{
			"name": "web", "namespace": "shop", "generation": canaryNumber, "finalizers": []string{canaryText + "-finalizer"},
			"annotations": map[string]any{canaryText + "-key": canaryText + "-annotation"},
		},
		"data": map[string]any{"k": canaryText + "-value", "bad": canaryText + "[(", canaryText + "-key": canaryText + "-value"},
	}
	raw, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	return &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Resource: metav1.GroupVersionResource{
			Version:  "v1",
			Resource: strings.ToLower(kind) + "s",
		},
		Namespace: "shop", Name: "web", Operation: admissionv1.Update,
		Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: raw},
	}
}

// disclosed returns what the client gets about a request and what a host gets of the violations, in both phases and from
// the audit of stored objects.
func disclosed(tb testing.TB, p *v1alpha1.WebhookPolicy, c *Compiled, raw *admissionv1.AdmissionRequest,
	host Environment) (client, observed string) {
	tb.Helper()
	var reports []reported
	host.Violated = func(v ViolationReport) {
		reports = append(reports, reported{v.Policy, v.Decision, v.Violations()})
	}
	group := NewGroup([]*Compiled{c})
	for _, phase := range []func() (*admissionv1.AdmissionResponse, error){
		func() (*admissionv1.AdmissionResponse, error) { return group.Validate(tb.Context(), raw, host) },
		func() (*admissionv1.AdmissionResponse, error) { return group.Mutate(tb.Context(), raw, host) },
	} {
		response, err := phase()
		if err != nil {
			tb.Fatal(err)
		}
		text, err := json.Marshal(response)
		if err != nil {
			tb.Fatal(err)
		}
		client += string(text)
	}
	audited := NewAuditor(p, c).Evaluate(tb.Context(), raw, host)
	return client, fmt.Sprintf("%+v %+v", reports, audited)
}

// canaryParams has one param, of any kind.
type canaryParams struct{}

// Params implements Params.
func (canaryParams) Params(_ context.Context, kind *admissionregistrationv1.ParamKind,
	_ *admissionregistrationv1.ParamRef, _ string) ([]runtime.Object, error) {
	return []runtime.Object{&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.APIVersion, "kind": kind.Kind, "data": map[string]any{"k": canaryText + "-param"},
	}}}, nil
}

// ResourcesOf implements Kinds.
func (canaryParams) ResourcesOf(kind schema.GroupVersionKind) ([]pluginapi.KindResource, error) {
	return []pluginapi.KindResource{
		{GroupVersionResource: kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s"), Namespaced: true},
	}, nil
}

// canaryHost permits the values of ConfigMaps, if values are permitted at all.
func canaryHost(values bool) Environment {
	host := testWorld.host()
	host.Params, host.Kinds = canaryParams{}, canaryParams{}
	if values {
		host.ReportsValues = func(of schema.GroupResource, _ string) bool {
			return of.Resource == "configmaps" || of.Resource == "namespaces"
		}
	}
	return host
}

// canaryPolicy returns a policy on Secrets and ConfigMaps.
func canaryPolicy(tb testing.TB, spec string) *v1alpha1.WebhookPolicy {
	tb.Helper()
	return policyFrom(tb, "p", "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: "+
		"[UPDATE], resources: [secrets, configmaps]}]}\n"+spec)
}

// argument returns an expression of the type of a parameter.
func argument(of *types.Type) string {
	switch of.Kind() {
	case types.IntKind:
		return "int(object.metadata.generation)"
	case types.UintKind:
		return "uint(object.metadata.generation)"
	case types.DoubleKind:
		return "double(object.metadata.generation)"
	case types.BytesKind:
		return "bytes(object.data.k)"
	case types.BoolKind:
		return "(object.data.k == '')"
	case types.ListKind:
		return "object.metadata.finalizers"
	case types.MapKind:
		return "object.data"
	}
	return "object.data.k"
}

// calls returns calls of an overload with values of the object: with the types that it takes, and with others.
func calls(function string, o *decls.OverloadDecl) (out []string) {
	pools := [][]string{nil, nil, nil, nil, nil}
	for _, of := range o.ArgTypes() {
		for i, other := range []string{argument(of), "object.data.k", "object.metadata.generation", "object.metadata.finalizers", "object.data"} {
			pools[i] = append(pools[i], other)
		}
	}
	for _, arguments := range pools {
		if o.IsMemberFunction() {
			out = append(out, fmt.Sprintf("dyn(%s).%s(%s)", arguments[0], function, strings.Join(arguments[1:], ", ")))
		} else {
			out = append(out, fmt.Sprintf("%s(%s)", function, strings.Join(arguments, ", ")))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failingExpressions are operators and functions that fail, most of them with a value in the error.
func failingExpressions() []string {
	return []string{
		`{"a": true}[object.data.k]`,
		`object.data[object.data.k] == ""`,
		`object[object.data.k].x == ""`,
		`object.metadata.finalizers[object.metadata.generation] == ""`,
		`[1, 2][int(object.metadata.generation)] == 1`,
		`int(object.data.k) == 1`,
		`uint(object.data.k) == 1u`,
		`bool(object.data.k)`,
		`duration(object.data.k) == duration("1s")`,
		`quantity(object.data.k).isInteger()`,
		`semver(object.data.k).major() == 1`,
		`cidr(object.data.k).prefixLength() == 1`,
		`object.metadata.finalizers.all(x, {"a": true}[x])`,
		`params.data[object.data.k] == ""`,
		`oldObject.data[object.data.k] == ""`,
		`variables.broken == ""`,
		`namespaceObject.metadata.labels[object.data.k] == ""`,
		`"%d".format([object.data.k]) == ""`,
		`object.data.k.substring(int(object.metadata.generation)) == ""`,
	}
}

// TestViolationsHoldNoValues: the text of an error, a message expression, an audit annotation or a mutation reaches the
// client only. Expressions that fail are calls of each function with values of the object, besides a table.
func TestViolationsHoldNoValues(t *testing.T) {
	var calling []string
	for name, function := range sharedCompiler.counted.SyntaxEnv().Functions() {
		for _, o := range function.OverloadDecls() {
			if len(o.ArgTypes()) > 0 && !strings.ContainsAny(name, "_@!?-") {
				calling = append(calling, calls(name, o)...)
			}
		}
	}
	slices.Sort(calling)
	forms := map[string]func(string) string{
		"validation": func(e string) string {
			return fmt.Sprintf("validations: [{expression: %q, message: static, messageExpression: \"'says ' + "+
				"object.data.k\"}]", "dyn("+e+") == dyn(1)")
		},
		"condition": func(e string) string {
			return fmt.Sprintf("matchConditions: [{name: c, expression: %q}]\nvalidations: [{expression: 'true'}]", "dyn("+e+") == dyn(1)")
		},
		"annotation": func(e string) string {
			return fmt.Sprintf("validations: [{expression: 'true'}]\nauditAnnotations: [{key: k, valueExpression: %q}]", "string(dyn("+e+"))")
		},
		"mutation": func(e string) string {
			return fmt.Sprintf("mutations: [{patchType: JSONPatch, jsonPatch: {expression: %q}}]",
				`[JSONPatch{op: "add", path: "/data/x", value: string(dyn(`+e+`))}]`)
		},
	}
	quoted, failed := map[string]bool{}, 0
	for form, spec := range forms {
		expressions := failingExpressions()
		if form == "validation" { // the others evaluate in the same way
			expressions = append(expressions, slices.Compact(calling)...)
		}
		for _, expression := range expressions {
			client, reported := quotedBy(t, spec(expression))
			if holdsCanary(reported) || strings.Contains(reported, violationtext.OtherError) {
				t.Errorf("%s %s is reported as %s, to the client as %s", form, expression, reported, client)
			}
			if strings.Contains(client, "resulted in error") {
				failed++
				if holdsCanary(strings.ReplaceAll(client, "says "+canaryText, "")) {
					quoted[form] = true
				}
			}
		}
	}
	if len(quoted) != 4 || failed < 400 {
		t.Errorf("%d expressions failed, and errors quoted values in %v: the test shows nothing", failed, quoted)
	}
}

// quotedBy returns what disclosed does for a Secret and a policy with params and a variable. It returns nothing for a spec
// that does not compile: no values have these types.
func quotedBy(tb testing.TB, spec string) (client, reported string) {
	tb.Helper()
	p := canaryPolicy(tb, spec+"\nparamKind: {apiVersion: v1, kind: ConfigMap}\n"+
		"variables: [{name: broken, expression: '{\"a\": \"\"}[object.data.k]'}]\n"+
		bound("{name: b, validationActions: [Deny], paramRef: {name: limits, namespace: shop, parameterNotFoundAction: Allow}}"))
	c, errs := sharedCompiler.Compile(p)
	if len(errs) > 0 {
		return "", ""
	}
	return disclosed(tb, p, c, canaryRequest(tb, "Secret"), canaryHost(true))
}

// TestValuesInViolations: what violations hold of each text that quotes an object, with and without the permission.
func TestValuesInViolations(t *testing.T) {
	tests := map[string]struct {
		spec   string
		plugin pluginFunc
		broken bool // the object cannot be decoded
		want   string
		hidden bool // even if values are permitted
	}{
		"messageExpression": {
			spec: "validations: [{expression: 'false', messageExpression: string(object.data.k), message: static}]",
			want: "Message:static ",
		},
		"no message": {
			spec: "validations: [{expression: '1 == 2', messageExpression: string(object.data.k)}]",
			want: "Message:failed expression: 1 == 2 ",
		},
		"ratchet": {
			spec: "validations: [{name: v, ratchet: true, expression: 'false', messageExpression: string(object.data.k), " +
				"message: static}, {expression: 'false', message: other}]",
			want: "Message:static ",
		},
		"a name in an error": {spec: "validations: [{name: v, expression: '{\"a\": true}[object.data.k]'}]",
			want: "Decision:error Message:no such key at spec.validations[0].expression Binding: Validation:v "},
		"an error of a condition": {spec: "matchConditions: [{name: c, expression: 'ip(object.data.k).family() == 4'}]\n" +
			"validations: [{expression: 'true'}]",
			want: "Message:conversion failed at spec.matchConditions[0].expression "},
		"an error of an annotation": {spec: "validations: [{expression: 'true'}]\n" +
			"auditAnnotations: [{key: k, valueExpression: 'string({\"a\": true}[object.data.k])'}]",
			want: "Message:no such key at spec.auditAnnotations[0].valueExpression "},
		"an error of a variable": {spec: "variables: [{name: v, expression: 'ip(object.data.k)'}]\n" +
			"validations: [{expression: 'variables.v.family() == 4'}]",
			want: "Message:conversion failed at spec.validations[0].expression "},
		"a mutation": {spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: " +
			"\"/data/\" + object.data.k}]'}}]",
			want: "Message:the patch does not apply at spec.mutations[0] "},
		"several mutations": {spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", " +
			"path: \"/data/\" + object.data.k}]'}}," +
			" {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{name: object.data.k}}'}}]",
			want: "Message:the patch does not apply at spec.mutations[0]; the result is invalid at spec.mutations[1] "},
		"a plugin": {
			plugin: func(c *pluginapi.Call) error { return c.Forbid("got %v", c.Object().Object["data"]) },
			want:   "Message:the plugin Any rejects the request ",
		},
		"an error of a plugin": {
			plugin: func(c *pluginapi.Call) error { return fmt.Errorf("got %v", c.Object().Object["data"]) },
			want:   "Message:the evaluation failed ",
		},
		"a panic of a plugin": {
			plugin: func(c *pluginapi.Call) error { panic(c.Object().Object["data"]) },
			want:   "Message:internal error: the evaluation panicked ",
			hidden: true,
		},
		"an object with a limit": {
			spec:   "validations: [{expression: 'object.data.k != \"\"'}]",
			broken: true,
			want:   "Message:the object cannot be read at request.object ",
		},
		"params": {spec: "paramKind: {apiVersion: v1, kind: Secret}\nvalidations: [{expression: 'false', messageExpression: " +
			"string(params.data.k)}]" +
			"\nbindings: [{name: b, validationActions: [Deny], paramRef: {selector: {}, " +
			"parameterNotFoundAction: Deny}}]", want: "Binding:b ", hidden: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := canaryPolicy(t, tc.spec)
			if tc.plugin != nil {
				p = canaryPolicy(t, "plugin: {name: Any}")
			}
			var plugin pluginapi.Plugin
			if tc.plugin != nil {
				plugin = tc.plugin
			}
			c, errs := sharedCompiler.CompilePlugin(p, plugin, nil)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			for _, kind := range []string{"Secret", "ConfigMap"} {
				for _, values := range []bool{false, true} {
					raw := canaryRequest(t, kind)
					if tc.broken {
						raw.Object.Raw = []byte(`{"data":{"` + canaryText + `":1e400,"k":"a"}}`)
					}
					client, reported := disclosed(t, p, c, raw, canaryHost(values))
					permitted := values && kind == "ConfigMap" && !tc.hidden
					if got := holdsCanary(reported); got != permitted || !permitted && !strings.Contains(reported, tc.want) {
						t.Errorf("%s, values permitted: %t: reported %s, want %s", kind, values, reported, tc.want)
					}
					if !tc.hidden && !holdsCanary(client) {
						t.Errorf("%s: the client got %s, want the value", kind, client)
					}
				}
			}
		})
	}
}
