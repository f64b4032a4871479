package integration

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Bad input that the API server knows when it is applied: each with its field.
func TestPolicyRefusedWhenApplied(t *testing.T) {
	c := install(t)
	mutation := "  mutations:\n  - {patchType: JSONPatch, jsonPatch: {expression: '[]'}}\n"
	tests := map[string]struct {
		more, want string
	}{
		"paramRef with name and selector": {
			more: "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  bindings:\n  - {name: b, paramRef: {name: a, selector: {}, parameterNotFoundAction: Deny}}\n",
			want: "spec.bindings[0].paramRef: Invalid value: set either name or selector",
		},
		"order too high": {
			more: mutation + "  order: 1001\n",
			want: "spec.order: Invalid value: 1001: spec.order in body should be less than or equal to 1000",
		},
		"order below 0": {
			more: mutation + "  order: -1\n",
			want: "spec.order: Invalid value: -1: spec.order in body should be greater than or equal to 0",
		},
		"a variable twice": {
			more: "  variables:\n  - {name: v, expression: '1'}\n  - {name: v, expression: '2'}\n",
			want: "spec.variables[1]: Duplicate value",
		},
		"unknown reason": {more: "", want: `spec.validations[0].reason: Unsupported value: "NotAllowed"`},
		"unknown phase": {
			more: mutation + "  reinvocationPolicy: Always\n",
			want: `spec.reinvocationPolicy: Unsupported value: "Always"`,
		},
		"unknown patch type": {
			more: "  mutations:\n  - {patchType: MergePatch, jsonPatch: {expression: '[]'}}\n",
			want: `spec.mutations[0].patchType: Unsupported value: "MergePatch"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(manifest, "refused", "nowhere", "true", tt.more)
			if name == "unknown reason" {
				text = strings.Replace(text, "message: bad is not good", "reason: NotAllowed", 1)
			}
			_, errOut, err := c.kubectl(t.Context(), text, "apply", "-f", "-")
			if err == nil || !strings.Contains(strings.ReplaceAll(errOut, `"object": `, ""), tt.want) {
				t.Errorf("kubectl ended with %v and said %q, want %q", err, errOut, tt.want)
			}
		})
	}
}

// Bad input that only the compiler knows: the status says what is wrong, where.
func TestPolicyRefusedByItsCompiler(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	variables := func(of ...string) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			for i, expression := range of {
				p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: string(rune('a' + i)), Expression: expression})
			}
		}
	}
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicy)
		want []string
	}{
		"a variable that reads a later one": {
			edit: variables("variables.b", "1"),
			want: []string{"spec.variables[0].expression", "undefined field 'b'"},
		},
		"variables in a circle": {
			edit: variables("variables.b", "variables.a"),
			want: []string{"spec.variables[0].expression", "undefined field 'b'"},
		},
		"a variable that reads itself": {
			edit: variables("variables.a"),
			want: []string{"spec.variables[0].expression", "undefined field 'a'"},
		},
		"a messageExpression of an int": {edit: func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].MessageExpression = "1 + 1" },
			want: []string{"spec.validations[0].messageExpression", "must evaluate to string but got int"}},
		"a JSON patch that is a string": {
			edit: patching(`"remove"`),
			want: []string{"spec.mutations[0].jsonPatch.expression", "must evaluate to"},
		},
		"an unknown field of a JSON patch": {
			edit: patching(`[JSONPatch{operation: "remove"}]`),
			want: []string{"spec.mutations[0].jsonPatch.expression", "field 'operation'"},
		},
		"an ApplyConfiguration that is a map": {
			edit: applying(`{"spec": 1}`),
			want: []string{"spec.mutations[0].applyConfiguration.expression", "must evaluate to Object"},
		},
		"an auditAnnotation of an int": {edit: func(p *v1alpha1.WebhookPolicy) {
			p.Spec.AuditAnnotations = []admissionregistrationv1.AuditAnnotation{{Key: "k", ValueExpression: "1"}}
		}, want: []string{
			"spec.auditAnnotations[0].valueExpression", "must evaluate to one of [string null_type] but got int",
		}},
	}
	i := 0
	for name, tt := range tests {
		i++
		policy := fmt.Sprintf("uncompiled-%d", i)
		t.Run(name, func(t *testing.T) {
			c.apply(t, newPolicy(policy, namespace, tt.edit))
			p := c.awaitCondition(t, policy, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
			for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionReady} {
				for _, want := range tt.want {
					if got := condition(p, kind).Message; !strings.Contains(got, want) {
						t.Errorf("%s: message %q, want %q", kind, got, want)
					}
				}
			}
		})
	}
}

func applying(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
		}}
	}
}

// Bad input that only a request shows: the answer names the policy and the
// field, and nothing of it is silently dropped.
func TestPolicyRefusedByItsRun(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	both := func(first, second func(*v1alpha1.WebhookPolicy)) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			first(p)
			kept := p.Spec.Mutations
			second(p)
			p.Spec.Mutations = append(kept, p.Spec.Mutations...)
		}
	}
	container := `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "c", %s}]}}}}`
	tests := map[string]struct {
		edit func(*v1alpha1.WebhookPolicy)
		want []string
	}{
		"an atomic list": {applying(fmt.Sprintf(container, `command: ["a"]`)),
			[]string{"spec.mutations[0]: ", "may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].command"}},
		"a JSON patch to a missing parent": {patching(`[JSONPatch{op: "add", path: "/spec/strategy/rollingUpdate/no/where", value: 1}]`),
			[]string{"spec.mutations[0]: ", "add operation does not apply", "missing path"}},
		"a field of an ApplyConfiguration that is none": {applying(`Object{spec: Object.spec{replica: 3}}`),
			[]string{"spec.mutations[0]: ", ".spec.replica: field not declared in schema"}},
		"a field of a JSON patch that is none": {patching(`[JSONPatch{op: "add", path: "/spec/replica", value: 3}]`),
			[]string{"spec.mutations[0]: ", `unknown field "spec.replica"`}},
		"the second of two mutations": {both(applying(`Object{spec: Object.spec{replicas: 3}}`), applying(fmt.Sprintf(container, `img: "x"`))),
			[]string{"spec.mutations[1]: ", "img: field not declared in schema"}},
	}
	i := 0
	for name, tt := range tests {
		i++
		broken, ignored := fmt.Sprintf("misdirected-%d", i), fmt.Sprintf("misdirected-%d-ignored", i)
		t.Run(name, func(t *testing.T) {
			for _, policy := range []string{broken, ignored} {
				p := newPolicy(policy, namespace, tt.edit)
				p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
					rule("apps", "deployments", admissionregistrationv1.Create),
				}
				p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
				p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{policy}
				if policy == ignored {
					failing(admissionregistrationv1.Ignore)(p)
				}
				c.enforce(t, p)
			}
			var err error
			await(t).Eventually(func() error {
				err = c.Create(t.Context(), deployment(namespace, broken), client.DryRunAll)
				return err
			}).Should(HaveOccurred())
			for _, want := range append(tt.want, "WebhookPolicy '"+broken+"' denied request: ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			must(t, c.Create(t.Context(), deployment(namespace, ignored), client.DryRunAll))
		})
	}
}

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": "a"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}},
			},
		},
	}
}

// A response lists all denials of one call group. If several groups deny, the API server
// returns the response of one of them.
func TestDenialsOfSeveralCallGroups(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("denials-a", namespace), newPolicy("denials-b", namespace), newPolicy("denials-c", namespace, within(7)))
	names := func() string {
		err := c.probe(t.Context(), namespace, bad)
		found := ""
		for _, name := range []string{"a", "b", "c"} {
			if deniedBy(err, "denials-"+name) {
				found += name
			}
		}
		return found
	}
	await(t).Eventually(names).Should(Or(Equal("ab"), Equal("c")))
	c.remove(t, "denials-c")
	await(t).Eventually(names).Should(Equal("ab"))
}
