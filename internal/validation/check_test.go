package validation

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

type rule = admissionregistrationv1.NamedRuleWithOperations

func TestCheck(t *testing.T) {
	onRule := func(change func(*rule)) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { change(&s.MatchConstraints.ResourceRules[0]) }
	}
	on := func(group string, resources ...string) func(*v1alpha1.WebhookPolicySpec) {
		return onRule(func(r *rule) { r.APIGroups, r.Resources = []string{group}, resources })
	}
	allowing := func(change func(*v1alpha1.WebhookPolicySpec)) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { change(s); s.AllowCriticalResources = true }
	}
	namespaces := func(selector metav1.LabelSelector) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.NamespaceSelector = &selector }
	}
	const (
		match   = "spec.matchConstraints."
		first   = match + "resourceRules[0]."
		why     = ", so that a broken policy cannot lock the cluster"
		useless = `spec.allowCriticalResources: Forbidden: remove it, or name a critical resource with its API group in ` +
			`matchConstraints.resourceRules: wildcards do not apply to critical resources`
	)
	tests := map[string]struct {
		change func(*v1alpha1.WebhookPolicySpec)
		want   []string
	}{
		"a valid policy":                     {change: func(*v1alpha1.WebhookPolicySpec) {}},
		"wildcards":                          {change: onRule(func(r *rule) { *r = everything() })},
		"wildcard in a group":                {change: on("coordination.k8s.io", "*")},
		"several wildcards":                  {change: on("", "*", "pods/*", "*/status")},
		"pods and all of pods":               {change: on("", "pods", "pods/*")},
		"events and leases of another group": {change: on("example.com", "events", "leases")},
		"a guarded resource is excluded": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ExcludeResourceRules = []rule{eventsRule()} },
		},
		"one of two namespaces is exempt": {
			change: namespaces(inValues("kubernetes.io/metadata.name", "kube-system", "prod")),
		},

		"mutations on DELETE and UPDATE": {change: func(s *v1alpha1.WebhookPolicySpec) {
			mutatingSpec(s)
			s.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"DELETE", "UPDATE"}
			s.MatchConstraints.ResourceRules = append(s.MatchConstraints.ResourceRules, s.MatchConstraints.ResourceRules[0])
			s.MatchConstraints.ResourceRules[1].Operations = []admissionregistrationv1.OperationType{"DELETE"}
		}},
		"mutations on everything": {change: func(s *v1alpha1.WebhookPolicySpec) {
			mutatingSpec(s)
			s.MatchConstraints.ResourceRules[0] = everything()
		}},
		"only audit annotations": {change: func(s *v1alpha1.WebhookPolicySpec) {
			s.Validations, s.AuditAnnotations = nil, []admissionregistrationv1.AuditAnnotation{{Key: "a", ValueExpression: "'b'"}}
		}},
		"the highest order": {change: func(s *v1alpha1.WebhookPolicySpec) { mutatingSpec(s); s.Order = new(int32(1000)) }},

		"no expressions": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Validations = nil },
			want:   []string{`spec: Required value: add at least one entry to mutations, validations or auditAnnotations, or a plugin or a backend`},
		},
		"mutations on DELETE only": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				mutatingSpec(s)
				s.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{"DELETE"}
			},
			want: []string{
				match + `resourceRules: Required value: add CREATE, UPDATE or CONNECT to the operations of a rule: mutations are not called for DELETE`,
			},
		},
		"mutations without operations": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				mutatingSpec(s)
				s.MatchConstraints.ResourceRules[0].Operations = nil
			},
			want: []string{first + `operations: Required value: add an operation, or "*" for all`},
		},
		"invalid values for mutations": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				mutatingSpec(s)
				s.Order, s.ReinvocationPolicy = new(int32(1001)), new(admissionregistrationv1.ReinvocationPolicyType("Always"))
			},
			want: []string{
				`spec.reinvocationPolicy: Unsupported value: "Always": supported values: "Never", "IfNeeded"`,
				`spec.order: Invalid value: 1001: choose between 0 and 1000`,
			},
		},
		"a negative order": {
			change: func(s *v1alpha1.WebhookPolicySpec) { mutatingSpec(s); s.Order = new(int32(-1)) },
			want:   []string{`spec.order: Invalid value: -1: choose between 0 and 1000`},
		},
		"bindings": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Bindings = []v1alpha1.Binding{{
					Name:           "fine",
					MatchResources: &admissionregistrationv1.MatchResources{},
				}, {Name: "b", MatchResources: &admissionregistrationv1.MatchResources{
					MatchPolicy:          new(admissionregistrationv1.MatchPolicyType("Any")),
					NamespaceSelector:    new(inValues("kubernetes.io/metadata.name", "kube-system")),
					ObjectSelector:       &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}},
					ResourceRules:        []rule{everything(), {}},
					ExcludeResourceRules: []rule{eventsRule()},
				}}}
				s.Bindings[1].MatchResources.ResourceRules[1] = eventsRule()
				s.Bindings[1].MatchResources.ResourceRules[1].Operations = nil
			},
			want: []string{
				`spec.bindings[1].matchResources.matchPolicy: Unsupported value: "Any": supported values: "Exact", "Equivalent"`,
				`spec.bindings[1].matchResources.objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
				`spec.bindings[1].matchResources.resourceRules[1].operations: Required value: add an operation, or "*" for all`,
			},
		},
		"a binding for an exempt namespace": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Bindings = []v1alpha1.Binding{
					{
						Name: "b",
						MatchResources: &admissionregistrationv1.MatchResources{
							NamespaceSelector: new(inValues("kubernetes.io/metadata.name", "kube-system")),
						},
					},
				}
			},
			want: []string{`spec.bindings[0].matchResources.namespaceSelector.matchExpressions[0].values: Forbidden: ` +
				`select other namespaces too: policies never apply in kube-node-lease and kube-system` + why},
		},

		"no constraints": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints = nil },
			want:   []string{`spec.matchConstraints: Required value: add matchConstraints: they select the requests of this policy`},
		},
		"no rules": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ResourceRules = nil },
			want:   []string{match + `resourceRules: Required value: add at least one rule that names the requests this policy is for`},
		},
		"invalid values": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.TimeoutSeconds = new(int32(31))
				s.FailurePolicy = new(admissionregistrationv1.FailurePolicyType("fail"))
				s.MatchConstraints.MatchPolicy = new(admissionregistrationv1.MatchPolicyType("Any"))
			},
			want: []string{
				`spec.failurePolicy: Unsupported value: "fail": supported values: "Fail", "Ignore"`,
				`spec.timeoutSeconds: Invalid value: 31: choose between 1 and 30 seconds`,
				match + `matchPolicy: Unsupported value: "Any": supported values: "Exact", "Equivalent"`,
			},
		},
		"empty rule": {
			change: onRule(func(r *rule) { *r = rule{} }),
			want: []string{
				first + `operations: Required value: add an operation, or "*" for all`,
				first + `apiGroups: Required value: add an API group, "" for the core group, or "*" for all`,
				first + `apiVersions: Required value: add an API version, or "*" for all`,
				first + `resources: Required value: add a resource, or "*" for all`,
			},
		},
		"wildcards with other entries": {
			change: onRule(func(r *rule) {
				r.Operations = append(r.Operations, "*")
				r.APIGroups, r.APIVersions, r.Resources = []string{"*", ""}, []string{"v1", "*"}, []string{"*", "pods"}
			}),
			want: []string{
				first + `operations: Invalid value: ["CREATE","*"]: keep '*' alone in operations, or remove it: it already stands for all`,
				first + `apiGroups: Invalid value: ["*",""]: keep '*' alone in apiGroups, or remove it: it already stands for all`,
				first + `apiVersions: Invalid value: ["v1","*"]: keep '*' alone in apiVersions, or remove it: it already stands for all`,
				first + `resources: Invalid value: ["*","pods"]: keep '*' in resources beside subresources only, or remove it: it ` +
					`already stands for all resources`,
			},
		},
		"resources that another entry matches": {
			change: on("", "pods/*", "pods/status", "*/scale", "nodes/scale", "*/*"),
			want: []string{
				first + `resources[1]: Invalid value: "pods/status": remove it: "pods/*", earlier in the list, matches it too`,
				first + `resources[3]: Invalid value: "nodes/scale": remove it: "*/scale", earlier in the list, matches it too`,
				first + `resources: Invalid value: ["pods/*","pods/status","*/scale","nodes/scale","*/*"]: keep '*/*' alone in ` +
					`resources, or remove it: it already stands for all resources and subresources`,
			},
		},
		"empty and unknown entries": {
			change: onRule(func(r *rule) {
				r.Operations, r.APIVersions, r.Resources = []admissionregistrationv1.OperationType{"PATCH"}, []string{""}, []string{"", "/status"}
				r.Scope = new(admissionregistrationv1.ScopeType("All"))
			}),
			want: []string{
				first + `operations[0]: Unsupported value: "PATCH": supported values: "CREATE", "UPDATE", "DELETE", "CONNECT", "*"`,
				first + `apiVersions[0]: Required value: write an API version such as v1, or '*' for all`,
				first + `resources[0]: Required value: write a resource such as pods, or '*' for all`,
				first + `resources[1]: Required value: write a resource such as pods, or '*' for all`,
				first + `scope: Unsupported value: "All": supported values: "Cluster", "Namespaced", "*"`,
			},
		},
		"resource names": {
			change: onRule(func(r *rule) { r.ResourceNames = []string{"a", "a/b", "a"} }),
			want: []string{
				first + `resourceNames[1]: Invalid value: "a/b": ` + MessageObjectName,
				first + `resourceNames[2]: Duplicate value: "a"`,
			},
		},
		"an exclusion without resources": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.ExcludeResourceRules = []rule{everything()}
				s.MatchConstraints.ExcludeResourceRules[0].Resources = nil
			},
			want: []string{match + `excludeResourceRules[0].resources: Required value: add a resource, or "*" for all`},
		},
		"too many pairs": {
			change: onRule(func(r *rule) {
				for i := range 1000 {
					r.Resources = append(r.Resources, fmt.Sprintf("r%d", i))
				}
			}),
			want: []string{
				match + `resourceRules: Invalid value: 1001: use wildcards or several policies: the rules list more than 1000 ` +
					`pairs of API group and resource`,
			},
		},
		"invalid selectors": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a b", Operator: "In"}},
				}
				s.MatchConstraints.ObjectSelector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}},
				}
			},
			want: []string{
				match + "namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
				match + `namespaceSelector.matchExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric ` +
					`characters, '-', '_' or '.', ` +
					`and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used ` +
					`for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				match + `objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
			},
		},
		"only exempt namespaces": {
			change: namespaces(inValues("kubernetes.io/metadata.name", "kube-system", "kube-node-lease")),
			want: []string{match + `namespaceSelector.matchExpressions[0].values: Forbidden: ` +
				`select other namespaces too: policies never apply in kube-node-lease and kube-system` + why},
		},
		"only one exempt namespace": {
			change: namespaces(metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "kube-system"}}),
			want: []string{match + `namespaceSelector.matchLabels[kubernetes.io/metadata.name]: Forbidden: ` +
				`select other namespaces too: policies never apply in kube-node-lease and kube-system` + why},
		},
		"guarded group": {
			change: onRule(func(r *rule) { r.APIGroups = []string{"apps", "authentication.k8s.io"} }),
			want: []string{first + `resources[0]: Forbidden: remove "pods" or the API group "authentication.k8s.io": ` +
				`policies never apply to this resource of this group` + why},
		},
		"a guarded group with a wildcard": {
			change: on("authorization.k8s.io", "*/status"),
			want: []string{first + `apiGroups[0]: Forbidden: remove "authorization.k8s.io", or name its resources instead of "*": ` +
				`wildcards do not apply to it` + why},
		},
		"an allowed guarded group with a wildcard": {
			change: allowing(on("authorization.k8s.io", "*")),
			want: []string{first + `apiGroups[0]: Forbidden: remove "authorization.k8s.io", or name its resources instead of "*": ` +
				`wildcards do not apply to it` + why, useless},
		},
		"Ostiary's own group": {
			change: on("admission.ostiary.dev", "*"),
			want:   []string{first + `apiGroups[0]: Forbidden: remove "admission.ostiary.dev": policies never apply to it` + why},
		},
		"guarded resources": {
			change: onRule(func(r *rule) {
				r.APIGroups, r.Resources = []string{"", "coordination.k8s.io"}, []string{"pods", "events", "leases/status"}
			}),
			want: []string{
				first + `resources[1]: Forbidden: remove "events", or set spec.allowCriticalResources to true: by default ` +
					`policies do not apply to it` + why,
				first + `resources[2]: Forbidden: remove "leases/status", or set spec.allowCriticalResources to true: by default ` +
					`policies do not apply to it` + why,
			},
		},
		"guarded resource in any group": {
			change: on("*", "leases", "pods"),
			want: []string{first + `resources[0]: Forbidden: remove "leases", or name its API groups instead of "*": ` +
				`wildcards do not apply to the leases of Kubernetes and Ostiary` + why},
		},
		"allowed guarded resources": {change: allowing(onRule(func(r *rule) {
			r.APIGroups, r.Resources = []string{"", "coordination.k8s.io"}, []string{"pods", "events", "leases/status"}
		}))},
		"an allowed guarded resource and everything": {change: allowing(func(s *v1alpha1.WebhookPolicySpec) {
			s.MatchConstraints.ResourceRules = []rule{everything(), ruleOf("authentication.k8s.io", "tokenreviews")}
		})},
		"an allowed guarded resource in any group": {
			change: allowing(on("*", "leases")),
			want: []string{first + `resources[0]: Forbidden: remove "leases", or name its API groups instead of "*": ` +
				`wildcards do not apply to the leases of Kubernetes and Ostiary` + why, useless},
		},
		"everything is allowed":         {change: allowing(onRule(func(r *rule) { *r = everything() })), want: []string{useless}},
		"no critical resource is named": {change: allowing(func(*v1alpha1.WebhookPolicySpec) {}), want: []string{useless}},
		"allowed policies": {
			change: allowing(on("admission.ostiary.dev", "webhookpolicies")),
			want:   []string{first + `apiGroups[0]: Forbidden: remove "admission.ostiary.dev": policies never apply to it` + why, useless},
		},
		"allowed webhook configurations": {
			change: allowing(on("admissionregistration.k8s.io", "validatingwebhookconfigurations")),
			want:   []string{first + `apiGroups[0]: Forbidden: remove "admissionregistration.k8s.io": policies never apply to it` + why, useless},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := aboutPods()
			tc.change(&policy.Spec)
			before := policy.DeepCopy()
			var got []string
			for _, err := range Check(policy) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, policy); diff != "" {
				t.Errorf("Check changed the policy:\n%s", diff)
			}
			// Build must not panic, whatever Check returns.
			registration.Build(registration.Input{Policies: []*v1alpha1.WebhookPolicy{policy}})
		})
	}
}

func mutatingSpec(s *v1alpha1.WebhookPolicySpec) {
	s.Validations = nil
	s.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[]"},
	}}
}

func everything() rule {
	return rule{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
}

func eventsRule() rule {
	r := ruleOf("", "events")
	r.APIGroups = append(r.APIGroups, "events.k8s.io")
	return r
}

func ruleOf(group string, resources ...string) rule {
	r := everything()
	r.APIGroups, r.Resources = []string{group}, resources
	return r
}

func inValues(key string, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}},
	}
}

// aboutPods returns a valid policy for new Pods.
func aboutPods() *v1alpha1.WebhookPolicy {
	r := ruleOf("", "pods")
	r.APIVersions, r.Operations = []string{"v1"}, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []rule{r}},
			Validations:      []v1alpha1.Validation{{Expression: "true"}},
		},
	}
}

func aBackend() *v1alpha1.Backend {
	return &v1alpha1.Backend{
		Type:                    v1alpha1.BackendValidating,
		Service:                 &v1alpha1.BackendService{Namespace: "shop", Name: "checks"},
		AdmissionReviewVersions: []string{"v1"},
		SideEffects:             admissionregistrationv1.SideEffectClassNone,
		CABundle:                []byte("bundle"),
	}
}
