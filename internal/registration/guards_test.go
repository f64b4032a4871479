package registration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/validation"
)

// TestGuardCompilesOnOldClusters uses the CEL environment of Kubernetes 1.30.
func TestGuardCompilesOnOldClusters(t *testing.T) {
	compiler := cel.NewCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, 30)))
	rules := []admissionregistrationv1.RuleWithOperations{everything().RuleWithOperations}
	for _, allowed := range [][]string{nil, {"coordination.k8s.io/leases"}, {guard.CoreEvents, guard.NamedEvents}} {
		condition := matchconditions.MatchCondition(guard.Conditions(rules, allowed, nil)[0])
		result := compiler.CompileCELExpression(&condition, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
		if result.Error != nil {
			t.Errorf("%q are allowed: %v", allowed, result.Error)
		}
	}
}

// TestAllowedCriticalResources sends every resource to webhooks of policies that have
// rules for everything and name one critical resource each.
func TestAllowedCriticalResources(t *testing.T) {
	resources := slices.Clone(testResources)
	for _, name := range []string{"authentication.k8s.io/selfsubjectreviews", "authorization.k8s.io/selfsubjectaccessreviews", "authorization.k8s.io/selfsubjectrulesreviews"} {
		group, resource, _ := strings.Cut(name, "/")
		resources = append(resources, testResource{group, resource, []string{"v1"}, []string{""}, false})
	}
	o := newOracle(t, testNamespaces, resources)
	allowed := 0
	for _, named := range resources {
		policy := policyFor("a", "pods")
		policy.Spec.AllowCriticalResources = true
		policy.Spec.MatchConstraints.ResourceRules = []rule{everything(), ruleOf(named.group, named.resource)}
		if errs := validation.Check(policy); len(errs) > 0 {
			continue
		}
		allowed++
		config := planOf(policy).Groups[0].Configuration
		for _, r := range resources {
			want := !guard.Resource(r.group, r.resource) || r.group == named.group && r.resource == named.resource ||
				named.resource == "events" && r.resource == "events"
			if _, called := o.called(t, config, r.attributes("v1", "", "prod", "thing", admission.Create, nil, nil)); called != want {
				t.Errorf("a policy that names %s/%s is called for %s/%s: %t, want %t", named.group, named.resource, r.group, r.resource, called, want)
			}
			if _, called := o.called(t, config, r.attributes("v1", "", "kube-node-lease", "thing", admission.Create, nil, nil)); called && r.namespaced {
				t.Errorf("a policy that names %s/%s is called for %s/%s in an exempt namespace", named.group, named.resource, r.group, r.resource)
			}
		}
	}
	if allowed != 9 {
		t.Errorf("%d resources can be allowed, want 9", allowed)
	}
}

// TestGuardExpression sends every resource to a webhook with rules for everything,
// and compares the result with guard.Resource.
func TestGuardExpression(t *testing.T) {
	var resources []testResource
	for _, group := range []string{"", "apps", "example.com", "coordination.k8s.io", "events.k8s.io", "authentication.k8s.io",
		"authorization.k8s.io", "rbac.authorization.k8s.io", "admissionregistration.k8s.io", "admission.ostiary.dev", "ostiary.dev"} {
		for _, resource := range []string{"pods", "events", "leases", "leasecandidates", "tokenreviews", "subjectaccessreviews", "webhookpolicies"} {
			resources = append(resources, testResource{group, resource, []string{"v1"}, []string{"", "status"}, true})
		}
	}
	o := newOracle(t, testNamespaces, resources)
	policy := policyFor("all", "pods")
	policy.Spec.MatchConstraints.ResourceRules = []rule{everything()}
	plan := planOf(policy)
	for _, r := range resources {
		for _, sub := range r.subresources {
			attr := r.attributes("v1", sub, "prod", "thing", admission.Update, nil, nil)
			_, called := o.called(t, plan.Groups[0].Configuration, attr)
			if called == guard.Resource(r.group, r.resource) {
				t.Errorf("%s: called %t, guarded %t", describe(attr), called, !called)
			}
		}
		if r.group != "apps" && r.group != "example.com" && guard.Resource(r.group, r.resource) && !guard.Group(r.group) && !guard.Name(r.resource) {
			t.Errorf("%s is guarded, but guard.Name is false", r.resource)
		}
	}
}

// The conditions of a backend can exceed the cost limit of API servers, which is an
// error. They are not evaluated in exempt namespaces.
func TestExpensiveConditionsInExemptNamespaces(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	list := "[" + strings.Repeat("1, ", 299) + "1]"
	policy := asBackend(policyFor("expensive", "pods"))
	policy.Spec.MatchConstraints.ResourceRules = []rule{everything()}
	policy.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{
		Name: "expensive", Expression: fmt.Sprintf("%s.all(a, %s.all(b, %s.all(c, a + b + c > 0))) // a comment", list, list, list),
	}}
	config := Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}, ExemptNamespaces: testExempt}).Groups[0].Configuration
	for _, ns := range []string{"kube-system", "ostiary-system"} {
		if _, called := o.called(t, config, testResources[0].attributes("v1", "", ns, "thing", admission.Create, nil, nil)); called {
			t.Errorf("the backend is called in %s", ns)
		}
	}
	policy.Spec.MatchConditions[0].Expression = "request.namespace != 'test' // a comment"
	config = Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}, ExemptNamespaces: testExempt}).Groups[0].Configuration
	for _, ns := range testNamespaces[:4] {
		want := ns.Name == "prod" || ns.Name == "plain"
		if _, called := o.called(t, config, testResources[0].attributes("v1", "", ns.Name, "thing", admission.Create, nil, nil)); called != want {
			t.Errorf("in %s: called %t, want %t", ns.Name, called, want)
		}
	}
}

// Namespace objects themselves are exempt by name. Their labels have no effect.
func TestNamespaceObjects(t *testing.T) {
	o := newOracle(t, testNamespaces, testResources)
	policy := policyFor("all", "namespaces")
	policy.Spec.MatchConstraints.ResourceRules = []rule{everything()}
	policy.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{""}
	config := Build(Input{Policies: nil, Entries: []Entry{Prepare(policy)}, ExemptNamespaces: testExempt}).Groups[0].Configuration
	namespaces := testResource{"", "namespaces", []string{"v1"}, nil, false}
	for _, ns := range testNamespaces {
		want := ns.Name == "prod" || ns.Name == "test" || ns.Name == "plain"
		if _, got := o.called(t, config, namespaces.attributes("v1", "", ns.Name, ns.Name, admission.Create, exemptLabels, nil)); got != want {
			t.Errorf("%s with labels of an exempt namespace: called %t, want %t", ns.Name, got, want)
		}
		for _, sub := range []string{"", "status", "finalize"} {
			for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
				t.Run(fmt.Sprintf("%s %s/%s", op, ns.Name, sub), func(t *testing.T) {
					_, got := o.called(t, config, namespaces.attributes("v1", sub, ns.Name, ns.Name, op, ns.Labels, nil))
					if got != want {
						t.Errorf("called %t, want %t", got, want)
					}
				})
			}
		}
	}
	if _, got := o.called(t, config, namespaces.attributes("v1", "", "", "", admission.Create, exemptLabels, nil)); !got {
		t.Error("a Namespace with generateName is exempt by its labels")
	}
}
