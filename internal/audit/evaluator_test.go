package audit

import (
	"bytes"
	gocmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
)

// namespaces are those of the tests, by name.
type namespaces map[string]map[string]string

func (n namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	l, ok := n[name]
	if !ok {
		return nil, errors.New("no such namespace")
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}, nil
}

func (n namespaces) Get(name string) (*corev1.Namespace, error) {
	return n.GetNamespace(context.Background(), name)
}

func (n namespaces) List(labels.Selector) ([]*corev1.Namespace, error) { return nil, nil }

// limits are params with a limit.
type limits struct{}

func (limits) Params(context.Context, *admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef,
	string) ([]runtime.Object, error) {
	return []runtime.Object{
		&unstructured.Unstructured{
			Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"limit": "2"}},
		},
	}, nil
}

func environment() policy.Environment {
	known := namespaces{"shop": {"team": "a"}, "kube-system": {}, "exempt": {}}
	return policy.Environment{
		Namespaces: known, Matcher: matching.NewMatcher(known, nil), Params: limits{}, Now: time.Now,
		Objects: admission.NewObjectInterfacesFromScheme(scheme.Scheme),
	}
}

const (
	onConfigMaps = "matchConstraints: {%s resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, " +
		"UPDATE], resources: [configmaps]}]}\n"
	onPods       = "matchConstraints: {%s resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n"
	requiresTeam = "validations: [{name: team, expression: 'has(object.metadata.labels) && \"team\" in " +
		"object.metadata.labels', message: no team}]\n"
	configMap  = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop, labels: {app: web}}, data: {a: b}}"
	deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: " +
		"{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'i:latest'}]}}}}"
)

func policyFrom(t *testing.T, spec string) *v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// objectFrom returns the object of a YAML document.
func objectFrom(t testing.TB, text string) *Object {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	u := unstructured.Unstructured{Object: tree}
	o := &Object{Kind: u.GroupVersionKind(), Namespace: u.GetNamespace(), Name: u.GetName(), JSON: raw}
	o.Resource = o.Kind.GroupVersion().WithResource(strings.ToLower(o.Kind.Kind) + "s")
	if o.Kind.Kind == "Namespace" {
		o.Namespace = o.Name
	}
	return o
}

func rulesWith(rules, selector string) string { return strings.Replace(rules, "%s", selector, 1) }

func TestEvaluate(t *testing.T) {
	violates := func(d policy.Decision, binding string) policy.Audited {
		return policy.Audited{
			Decision:   d,
			Denied:     d == policy.DecisionDeny,
			Violations: []policy.Violation{{Decision: d, Message: "no team", Binding: binding, Validation: "team"}},
		}
	}
	unmatched := policy.Audited{Decision: policy.DecisionUnmatched}
	tests := map[string]struct {
		spec, object string
		want         policy.Audited
	}{
		"denied": {spec: rulesWith(onConfigMaps, "") + requiresTeam, object: configMap, want: violates(policy.DecisionDeny, "")},
		"warned": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam + "bindings: [{name: b, validationActions: [Warn]}]",
			object: configMap,
			want:   violates(policy.DecisionWarn, "b"),
		},
		"audited": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam + "bindings: [{name: b, validationActions: [Audit]}]",
			object: configMap,
			want:   violates(policy.DecisionAudit, "b"),
		},
		"ratcheted": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam + "ratchet: true",
			object: configMap,
			want:   violates(policy.DecisionRatchet, ""),
		},
		"allowed": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam,
			object: strings.Replace(configMap, "app:", "team:", 1),
			want:   policy.Audited{Decision: policy.DecisionAllow},
		},
		"another resource": {spec: rulesWith(onConfigMaps, "") + requiresTeam, object: deployment, want: unmatched},
		"an exempt namespace": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam,
			object: strings.Replace(configMap, "shop", "exempt", 1),
			want:   unmatched,
		},
		"Kubernetes' own namespace": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam,
			object: strings.Replace(configMap, "shop", "kube-system", 1),
			want:   unmatched,
		},
		"an exempt Namespace": {
			spec:   strings.Replace(rulesWith(onConfigMaps, ""), "configmaps", "namespaces", 1) + requiresTeam,
			object: "{apiVersion: v1, kind: Namespace, metadata: {name: exempt}}",
			want:   unmatched,
		},
		"a guarded resource": {
			spec:   strings.NewReplacer("configmaps", "'*'", "''", "'*'").Replace(rulesWith(onConfigMaps, "")) + requiresTeam,
			object: "{apiVersion: v1, kind: Event, metadata: {name: e, namespace: shop}}",
			want:   unmatched,
		},
		"another namespace label": {
			spec:   rulesWith(onConfigMaps, "namespaceSelector: {matchLabels: {team: b}},") + requiresTeam,
			object: configMap,
			want:   unmatched,
		},
		"the namespace label": {
			spec:   rulesWith(onConfigMaps, "namespaceSelector: {matchLabels: {team: a}},") + requiresTeam,
			object: configMap,
			want:   violates(policy.DecisionDeny, ""),
		},
		"another object label": {
			spec:   rulesWith(onConfigMaps, "objectSelector: {matchLabels: {app: db}},") + requiresTeam,
			object: configMap,
			want:   unmatched,
		},
		"the object label": {
			spec:   rulesWith(onConfigMaps, "objectSelector: {matchLabels: {app: web}},") + requiresTeam,
			object: configMap,
			want:   violates(policy.DecisionDeny, ""),
		},
		"a binding that matches not": {
			spec: rulesWith(onConfigMaps, "") + requiresTeam +
				"bindings: [{name: b, matchResources: {objectSelector: {matchLabels: {app: db}}}}]",
			object: configMap,
			want:   unmatched,
		},
		"a match condition": {
			spec:   rulesWith(onConfigMaps, "") + requiresTeam + "matchConditions: [{name: m, expression: 'object.data.a == \"c\"'}]",
			object: configMap,
			want:   policy.Audited{Decision: policy.DecisionSkip},
		},
		"the namespace": {
			spec:   rulesWith(onConfigMaps, "") + "validations: [{expression: 'namespaceObject.metadata.labels.team == \"a\"'}]",
			object: configMap,
			want:   policy.Audited{Decision: policy.DecisionAllow},
		},
		"params": {
			spec: rulesWith(onConfigMaps, "") +
				"paramKind: {apiVersion: v1, kind: ConfigMap}\nbindings: [{name: b, validationActions: [Deny], paramRef: {name: " +
				"l, parameterNotFoundAction: Deny}}]\nvalidations: [{expression: 'params.data.limit == \"2\"'}]",
			object: configMap,
			want:   policy.Audited{Decision: policy.DecisionAllow},
		},
		"a template": {
			spec: rulesWith(onPods, "") + "podTemplates: {validationActions: [Warn]}\n" +
				"validations: [{expression: '!object.spec.containers.exists(c, c.image.endsWith(\":latest\"))', message: latest}]",
			object: deployment,
			want: policy.Audited{
				Decision:   policy.DecisionWarn,
				Violations: []policy.Violation{{Decision: policy.DecisionWarn, Message: "latest", Template: "spec.template"}},
				DeniesPods: true,
			},
		},
		"a template that matches not": {
			spec: rulesWith(onPods, "objectSelector: {matchLabels: {app: db}},") +
				"podTemplates: {}\nvalidations: [{expression: 'false'}]",
			object: deployment,
			want:   unmatched,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, tc.spec)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			got := NewEvaluator(p, compiled, guard.ExemptNamespaces([]string{"exempt"})).Evaluate(t.Context(),
				objectFrom(t, tc.object), environment())
			if diff := cmp.Diff(tc.want, got.Audited); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// storedPod is a Pod that runs on a node.
const storedPod = `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: u, resourceVersion: "7", generation: 3,
  creationTimestamp: "2020-01-01T00:00:00Z", managedFields: [{manager: m}]},
  spec: {nodeName: n, containers: [{name: c, image: 'i:latest'}], ephemeralContainers: [{name: e}]},
  status: {phase: Running, qosClass: Burstable, podIP: 10.0.0.1}}`

func TestEvaluateAnew(t *testing.T) {
	const (
		guard     = `(oldObject != null && object.spec == oldObject.spec) || `
		latest    = `!object.spec.containers.exists(c, c.image.endsWith(":latest"))`
		widget    = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: {}, status: {ready: true}}`
		onWidgets = `matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: ['*'], resources: [widgets]}]}`
	)
	allOnPods := strings.Replace(rulesWith(onPods, ""), "[CREATE]", "[CREATE, UPDATE]", 1)
	saying := func(rules, expression string) string {
		return rules + "\nvalidations: [{expression: '" + strings.ReplaceAll(expression, "'", "''") + "'}]"
	}
	asNew := `!has(object.metadata.resourceVersion) && !has(object.metadata.managedFields) && object.metadata.generation == 1 &&
	  object.metadata.uid == "u" && timestamp(object.metadata.creationTimestamp) > timestamp("2024-01-01T00:00:00Z") &&
	  object.status == {"phase": "Pending", "qosClass": "Burstable"}`
	tests := map[string]struct {
		spec, object  string
		keepsStatus   bool
		want          policy.Decision
		wantOperation string
	}{
		"only new Pods": {spec: saying(rulesWith(onPods, ""), latest), want: policy.DecisionDeny, wantOperation: "CREATE"},
		"only new Pods that pass": {
			spec:          saying(rulesWith(onPods, ""), "true"),
			want:          policy.DecisionAllow,
			wantOperation: "CREATE",
		},
		"only changed Pods": {
			spec:          saying(strings.Replace(rulesWith(onPods, ""), "CREATE", "UPDATE", 1), latest),
			want:          policy.DecisionDeny,
			wantOperation: "UPDATE",
		},
		"new and changed Pods":           {spec: saying(allOnPods, guard+latest), want: policy.DecisionDeny, wantOperation: "CREATE"},
		"new and changed Pods that pass": {spec: saying(allOnPods, guard+"true"), want: policy.DecisionAllow, wantOperation: "UPDATE"},
		"both operations":                {spec: saying(allOnPods, latest), want: policy.DecisionDeny, wantOperation: "UPDATE"},
		"an error of new ones": {
			spec:          saying(allOnPods, `oldObject.spec == object.spec`),
			want:          policy.DecisionError,
			wantOperation: "CREATE",
		},
		"a guard by the operation": {
			spec:          saying(allOnPods, `request.operation == "UPDATE" || `+latest),
			want:          policy.DecisionDeny,
			wantOperation: "CREATE",
		},
		"the node": {
			spec:          saying(allOnPods, `has(object.spec.nodeName)`),
			want:          policy.DecisionAllow,
			wantOperation: "UPDATE",
		},
		"the node, violated": {
			spec:          saying(allOnPods, `!has(object.spec.nodeName)`),
			want:          policy.DecisionDeny,
			wantOperation: "UPDATE",
		},
		"the node of only new Pods": {
			spec:          saying(rulesWith(onPods, ""), `has(object.spec.nodeName)`),
			want:          policy.DecisionAllow,
			wantOperation: "CREATE",
		},
		"the node by a variable": {
			spec: "variables: [{name: node, expression: 'object.spec.?nodeName'}]\n" + saying(allOnPods,
				`variables.node.hasValue()`),
			want:          policy.DecisionAllow,
			wantOperation: "UPDATE",
		},
		"the node in a match condition": {
			spec: "matchConditions: [{name: m, expression: '!has(object.spec.nodeName)'}]\n" +
				saying(allOnPods, latest),
			want:          policy.DecisionDeny,
			wantOperation: "CREATE",
		},
		"ephemeral containers": {
			spec: "matchConditions: [{name: m, expression: 'has(object.spec.ephemeralContainers)'}]\n" +
				saying(rulesWith(onPods, ""), latest),
			want:          policy.DecisionSkip,
			wantOperation: "CREATE",
		},
		"all containers": {
			spec: saying(allOnPods, guard+
				`(object.spec.containers + object.spec.?ephemeralContainers.orValue([])).all(c, !c.image.endsWith(":latest"))`),
			want: policy.DecisionDeny, wantOperation: "CREATE",
		},
		"metadata and status": {spec: saying(rulesWith(onPods, ""), asNew), want: policy.DecisionAllow, wantOperation: "CREATE"},
		"a ratchet": {
			spec:          "ratchet: true\n" + saying(allOnPods, latest),
			want:          policy.DecisionRatchet,
			wantOperation: "UPDATE",
		},
		"a Pod that is being deleted": {
			spec:          saying(allOnPods, latest),
			object:        strings.Replace(storedPod, "uid: u,", "uid: u, deletionTimestamp: '2020-01-01T00:00:00Z',", 1),
			want:          policy.DecisionUnmatched,
			wantOperation: "UPDATE",
		},
		"a template, only new Pods": {
			spec:          "podTemplates: {}\n" + saying(rulesWith(onPods, ""), latest),
			object:        deployment,
			want:          policy.DecisionDeny,
			wantOperation: "UPDATE",
		},
		"a template, new and changed Pods": {
			spec:          "podTemplates: {}\n" + saying(allOnPods, guard+latest),
			object:        deployment,
			want:          policy.DecisionDeny,
			wantOperation: "UPDATE",
		},
		"the status of a custom object": {
			spec:          saying(onWidgets, `!has(object.status)`),
			object:        widget,
			want:          policy.DecisionDeny,
			wantOperation: "UPDATE",
		},
		"a custom object without its status": {
			spec:          saying(onWidgets, guard+`has(object.status)`),
			object:        widget,
			want:          policy.DecisionDeny,
			wantOperation: "CREATE",
		},
		"a custom object that keeps its status": {
			spec:          saying(onWidgets, guard+`has(object.status)`),
			object:        widget,
			keepsStatus:   true,
			want:          policy.DecisionAllow,
			wantOperation: "UPDATE",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, tc.spec)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if why := compiled.Unauditable(); why != "" {
				t.Fatal(why)
			}
			o := objectFrom(t, gocmp.Or(tc.object, storedPod))
			o.KeepsStatus, o.IsDeleted = tc.keepsStatus, strings.Contains(tc.object, "deletionTimestamp")
			before := bytes.Clone(o.JSON)
			got := NewEvaluator(p, compiled, nil).Evaluate(t.Context(), o, environment())
			if got.Decision != tc.want || string(got.Operation) != tc.wantOperation {
				t.Errorf("got %s of %s (%v), want %s of %s", got.Decision, got.Operation, got.Violations, tc.want, tc.wantOperation)
			}
			if !bytes.Equal(before, o.JSON) {
				t.Errorf("the object has changed: %s", o.JSON)
			}
		})
	}
}

// partlyUnreadable has one member that cannot be decoded. As the first object, it is decoded
// before the parts that later policies read are known.
const partlyUnreadable = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}, data: {a: 1e999}, immutable: true}"

// storedFrom is objectFrom, with a number that is too large.
func storedFrom(t *testing.T, text string) *Object {
	t.Helper()
	o := objectFrom(t, strings.Replace(text, "1e999", "too large", 1))
	o.JSON = bytes.Replace(o.JSON, []byte(`"too large"`), []byte("1e999"), 1)
	return o
}

// Policies that read different parts share what is decoded, and find what each finds alone.
func TestStoredObject(t *testing.T) {
	var evaluators []*Evaluator
	for _, spec := range []string{
		rulesWith(onConfigMaps, "") + requiresTeam,
		rulesWith(onConfigMaps, "objectSelector: {matchLabels: {app: web}},") + "validations: [{expression: 'object.data.a == \"b\"'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'object.data.missing == \"\"'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'object.data.size() == oldObject.data.size() && object.data.size() < 2'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'object == null || object.metadata.size() == 2'}]",
		rulesWith(onPods, "") + "podTemplates: {}\nvalidations: [{expression: '!object.spec.containers.exists(c, " +
			"c.image.endsWith(\":latest\"))', message: latest}]",
		rulesWith(onPods, "") + "podTemplates: {}\nvalidations: [{expression: 'object.metadata.labels.app == \"db\"'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'object.data.a == \"b\" && object.immutable'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'object.immutable == true'}]",
		rulesWith(onConfigMaps, "") + "validations: [{expression: 'oldObject != null || object.data.a != \"b\"'}]",
	} {
		p := policyFrom(t, spec)
		compiled, errs := policy.NewCompiler().Compile(p)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		evaluators = append(evaluators, NewEvaluator(p, compiled, guard.ExemptNamespaces(nil)))
	}
	host, decoded := environment(), new(Decoded)
	for _, text := range []string{
		partlyUnreadable,
		configMap, strings.Replace(configMap, "a: b", "missing: ''", 1), deployment, strings.Replace(deployment, ":latest", ":v1", 1),
		strings.Replace(configMap, "data: {a: b}", "data: [text]", 1), configMap,
	} {
		decoded.Next()
		shared := storedFrom(t, text)
		shared.Decoded = decoded
		for i, e := range evaluators {
			want, got := e.Evaluate(t.Context(), storedFrom(t, text), host), e.Evaluate(t.Context(), shared, host)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("policy %d on %s (-alone +sharing):\n%s", i, text, diff)
			}
		}
		if diff := cmp.Diff(storedFrom(t, text).JSON, shared.JSON); diff != "" {
			t.Errorf("%s changed: %s", text, diff)
		}
	}
}

func TestErrors(t *testing.T) {
	panics := environment()
	panics.Namespaces = panicking{}
	tests := map[string]struct {
		spec, object string
		host         policy.Environment
		want         string
		wantDenied   bool
	}{
		"an expression": {
			spec:       "validations: [{expression: 'object.data.missing == \"\"'}]",
			object:     configMap,
			host:       environment(),
			want:       "no such key",
			wantDenied: true,
		},
		"an ignored one": {
			spec:   "failurePolicy: Ignore\nvalidations: [{expression: 'object.data.missing == \"\"'}]",
			object: configMap,
			host:   environment(),
			want:   "no such key",
		},
		"a panic": {
			spec:       "validations: [{expression: 'namespaceObject != null'}]",
			object:     configMap,
			host:       panics,
			want:       "panicked",
			wantDenied: true,
		},
		"too high a cost": {
			spec: "validations: [{expression: 'object.data.all(a, object.data.all(b, object.data.all(c, " +
				"object.data.all(d, a + b + c + d != \"x\"))))'}]",
			object:     large(),
			host:       environment(),
			want:       "cost",
			wantDenied: true,
		},
		"contradictory JSON": {
			spec:       "validations: [{expression: 'true'}]",
			object:     configMap,
			host:       environment(),
			want:       "contradicts",
			wantDenied: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, rulesWith(onConfigMaps, "")+tc.spec)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			o := objectFrom(t, tc.object)
			if tc.want == "contradicts" {
				o.Kind = schema.GroupVersionKind{Version: "v1", Kind: "Other"}
			}
			e := NewEvaluator(p, compiled, guard.ExemptNamespaces(nil))
			got := e.Evaluate(t.Context(), o, tc.host)
			if got.Decision != policy.DecisionError || got.Denied != tc.wantDenied || len(got.Violations) != 1 ||
				!strings.Contains(got.Violations[0].Message, tc.want) {
				t.Errorf("got %+v, want an error with %q, denied %v", got, tc.want, tc.wantDenied)
			}
			if again := e.Evaluate(t.Context(), objectFrom(t, strings.Replace(configMap, "a: b", "missing: ''", 1)),
				environment()); again.Decision != policy.DecisionAllow {
				t.Errorf("the next object: %+v", again)
			}
		})
	}
}

type panicking struct{ pluginapi.Namespaces }

// large returns a ConfigMap with many keys.
func large() string {
	var keys []string
	for i := range 200 {
		keys = append(keys, "k"+strings.Repeat("x", i)+": ''")
	}
	return strings.Replace(configMap, "a: b", strings.Join(keys, ", "), 1)
}
