package registration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
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
		useless = `spec.allowCriticalResources: Forbidden: remove it, or name a critical resource with its API group in matchConstraints.resourceRules: wildcards do not apply to critical resources`
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
		"a guarded resource is excluded":     {change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ExcludeResourceRules = []rule{eventsRule()} }},
		"one of two namespaces is exempt":    {change: namespaces(in("kubernetes.io/metadata.name", "kube-system", "prod"))},

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
			want: []string{match + `resourceRules: Required value: add CREATE, UPDATE or CONNECT to the operations of a rule: mutations are not called for DELETE`},
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
				`spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`,
				`spec.order: Invalid value: 1001: choose between 0 and 1000`,
			},
		},
		"a negative order": {
			change: func(s *v1alpha1.WebhookPolicySpec) { mutatingSpec(s); s.Order = new(int32(-1)) },
			want:   []string{`spec.order: Invalid value: -1: choose between 0 and 1000`},
		},
		"bindings": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.Bindings = []v1alpha1.Binding{{Name: "fine", MatchResources: &admissionregistrationv1.MatchResources{}}, {Name: "b", MatchResources: &admissionregistrationv1.MatchResources{
					MatchPolicy:          new(admissionregistrationv1.MatchPolicyType("Any")),
					NamespaceSelector:    new(in("kubernetes.io/metadata.name", "kube-system")),
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
				s.Bindings = []v1alpha1.Binding{{Name: "b", MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: new(in("kubernetes.io/metadata.name", "kube-system"))}}}
			},
			want: []string{`spec.bindings[0].matchResources.namespaceSelector.matchExpressions[0].values: Forbidden: ` +
				`select other namespaces too: policies never apply in kube-node-lease and kube-system` + why},
		},

		"no constraints": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints = nil },
			want:   []string{match + `resourceRules: Required value: add at least one rule that names the requests this policy is for`},
		},
		"no rules": {
			change: func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ResourceRules = nil },
			want:   []string{match + `resourceRules: Required value: add at least one rule that names the requests this policy is for`},
		},
		"invalid values": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.TimeoutSeconds, s.FailurePolicy, s.MatchConstraints.MatchPolicy = new(int32(31)), new(admissionregistrationv1.FailurePolicyType("fail")), new(admissionregistrationv1.MatchPolicyType("Any"))
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
				first + `operations: Invalid value: ["CREATE","*"]: remove "*", or all other operations: it matches them too`,
				first + `apiGroups: Invalid value: ["*",""]: remove "*", or all other API groups: it matches them too`,
				first + `apiVersions: Invalid value: ["v1","*"]: remove "*", or all other API versions: it matches them too`,
				first + `resources: Invalid value: ["*","pods"]: remove "*", or all other resources without a subresource: it matches them too`,
			},
		},
		"resources that another entry matches": {
			change: on("", "pods/*", "pods/status", "*/scale", "nodes/scale", "*/*"),
			want: []string{
				first + `resources[1]: Invalid value: "pods/status": remove it: "pods/*", earlier in the list, matches it too`,
				first + `resources[3]: Invalid value: "nodes/scale": remove it: "*/scale", earlier in the list, matches it too`,
				first + `resources: Invalid value: ["pods/*","pods/status","*/scale","nodes/scale","*/*"]: remove "*/*", or all other resources: it matches them too`,
			},
		},
		"empty and unknown entries": {
			change: onRule(func(r *rule) {
				r.Operations, r.APIVersions, r.Resources = []admissionregistrationv1.OperationType{"PATCH"}, []string{""}, []string{"", "/status"}
				r.Scope = new(admissionregistrationv1.ScopeType("All"))
			}),
			want: []string{
				first + `operations[0]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`,
				first + `apiVersions[0]: Required value: name an API version, or remove the entry`,
				first + `resources[0]: Required value: name a resource, or remove the entry`,
				first + `resources[1]: Required value: name a resource, or remove the entry`,
				first + `scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"`,
			},
		},
		"resource names": {
			change: onRule(func(r *rule) { r.ResourceNames = []string{"a", "a/b", "a"} }),
			want: []string{
				first + `resourceNames[1]: Invalid value: "a/b": may not contain '/'`,
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
			want: []string{match + `resourceRules: Invalid value: 1001: use wildcards or several policies: the rules list more than 1000 pairs of API group and resource`},
		},
		"invalid selectors": {
			change: func(s *v1alpha1.WebhookPolicySpec) {
				s.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a b", Operator: "In"}}}
				s.MatchConstraints.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
			},
			want: []string{
				match + "namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
				match + `namespaceSelector.matchExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', ` +
					`and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				match + `objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`,
			},
		},
		"only exempt namespaces": {
			change: namespaces(in("kubernetes.io/metadata.name", "kube-system", "kube-node-lease")),
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
				first + `resources[1]: Forbidden: remove "events", or set spec.allowCriticalResources to true: by default policies do not apply to it` + why,
				first + `resources[2]: Forbidden: remove "leases/status", or set spec.allowCriticalResources to true: by default policies do not apply to it` + why,
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
			policy := policyFor("a", "pods")
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
			Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}})
		})
	}
}

func mutatingSpec(s *v1alpha1.WebhookPolicySpec) {
	policy := &v1alpha1.WebhookPolicy{Spec: *s}
	mutating(policy)
	*s = policy.Spec
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

func in(key string, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
}

func TestEndpointValidate(t *testing.T) {
	service := func(namespace, name string, port int32) Endpoint {
		return Endpoint{Service: &Service{Namespace: namespace, Name: name, Port: port}}
	}
	tests := map[string]struct {
		endpoint Endpoint
		want     string
	}{
		"service":         {endpoint: service("ns", "name", 443)},
		"url":             {endpoint: Endpoint{URL: "https://example.com"}},
		"url with port":   {endpoint: Endpoint{URL: "https://127.0.0.1:9443/"}},
		"url, version 6":  {endpoint: Endpoint{URL: "https://[::1]:9443"}},
		"nothing":         {want: "endpoint: set service or url"},
		"service and url": {endpoint: Endpoint{Service: &Service{}, URL: "x"}, want: "endpoint: set either service or url, not both"},
		"bad service": {
			endpoint: service("", "A", 0),
			want: "endpoint: service.namespace \"\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\n" +
				"endpoint: service.name \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')\n" +
				"endpoint: service.port 0: must be between 1 and 65535, inclusive",
		},
		"not https":    {endpoint: Endpoint{URL: "http://a"}, want: `endpoint: url has scheme "http": write it as https://host[:port]`},
		"no host":      {endpoint: Endpoint{URL: "https://:9443"}, want: "endpoint: url has no host: write it as https://host[:port]"},
		"a port":       {endpoint: Endpoint{URL: "https://a:70000"}, want: `endpoint: url has port "70000": choose one between 1 and 65535`},
		"a path":       {endpoint: Endpoint{URL: "https://a/b"}, want: "endpoint: remove the path from url: each call group has its own"},
		"a user":       {endpoint: Endpoint{URL: "https://u:secret@a"}, want: "endpoint: remove user and password from url: the API server rejects them"},
		"a query":      {endpoint: Endpoint{URL: "https://a?b"}, want: "endpoint: remove query and fragment from url: the API server rejects them"},
		"not parsable": {endpoint: Endpoint{URL: "https://u:secret@a:b"}, want: "endpoint: url cannot be parsed: write it as https://host[:port]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := tc.endpoint.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Validate (-want +got):\n%s", diff)
			}
		})
	}
}
