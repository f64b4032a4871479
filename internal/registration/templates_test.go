package registration

import (
	"context"
	"strings"
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
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// A replica recognizes groups for templates by their names, also divided ones.
func TestNamesOfTemplateGroups(t *testing.T) {
	policy := policyFor("p", "pods", func(p *v1alpha1.WebhookPolicy) { p.Spec.PodTemplates = &v1alpha1.PodTemplates{} })
	plan := Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}, Endpoint: testService})
	if len(plan.Groups) != 2 {
		t.Fatalf("%d groups, want 2", len(plan.Groups))
	}
	templates := 0
	for i := range plan.Groups {
		key, _ := GroupOf(plan.Groups[i].Configuration)
		if key.OfTemplates() {
			templates++
			if name := plan.Groups[i].webhook.Name; !strings.HasPrefix(name, "templates-t") {
				t.Errorf("the webhook is called %s", name)
			}
			if key.Name += "-1f"; !key.OfTemplates() {
				t.Errorf("%s is not recognized", key.Name)
			}
		}
	}
	if templates != 1 {
		t.Errorf("%d groups for templates, want 1", templates)
	}
	for _, name := range []string{"fail-5s-0123456789abcdef", "0500-ignore-5s-fe01", "templates", "t"} {
		if (GroupKey{Phase: PhaseValidate, Name: name}).OfTemplates() {
			t.Errorf("%s is taken for a group for templates", name)
		}
	}
}

// The condition for API servers is false only for requests that need no evaluation, and
// has no errors, whatever the objects contain.
func TestTemplateCondition(t *testing.T) {
	const (
		one   = "{kind: W, metadata: {name: a}, spec: {replicas: 1, template: {spec: {a: 1}}, jobTemplate: {spec: {template: {spec: {a: 1}}}}}}"
		two   = "{kind: W, metadata: {name: a}, spec: {replicas: 2, template: {spec: {a: 1}}, jobTemplate: {spec: {template: {spec: {a: 1}}}}}}"
		other = "{kind: W, metadata: {name: a}, spec: {template: {spec: {a: 2}}, jobTemplate: {spec: {template: {spec: {a: 2}}}}}}"
		owned = "{kind: W, metadata: {name: a, ownerReferences: [{apiVersion: %s, kind: %s, name: o, controller: %s}]}, spec: {template: {spec: {a: 1}}}}"
	)
	owner := func(apiVersion, kind, controller string) string {
		return strings.NewReplacer("{apiVersion: %s", "{apiVersion: "+apiVersion, "kind: %s", "kind: "+kind, "controller: %s", "controller: "+controller).Replace(owned)
	}
	tests := map[string]struct {
		group, resource string
		object, old     string
		kinds           []v1alpha1.PodTemplateKind
		want            bool
	}{
		"CREATE":                                {group: "apps", resource: "deployments", object: one, want: true},
		"changed":                               {group: "apps", resource: "deployments", object: other, old: one, want: true},
		"scaled":                                {group: "apps", resource: "deployments", object: two, old: one},
		"a cron job, changed":                   {group: "batch", resource: "cronjobs", object: other, old: one, want: true},
		"a cron job, unchanged":                 {group: "batch", resource: "cronjobs", object: two, old: one},
		"of another group":                      {group: "example.com", resource: "deployments", object: two, old: one, want: true},
		"without a template":                    {resource: "replicationcontrollers", object: "{kind: W, metadata: {name: a}, spec: {}}", old: "{kind: W, metadata: {name: a}}"},
		"a template that is removed":            {resource: "replicationcontrollers", object: "{kind: W, metadata: {name: a}, spec: {}}", old: one, want: true},
		"of a Deployment":                       {group: "apps", resource: "replicasets", object: owner("apps/v1", "Deployment", "true")},
		"of a Deployment that is no controller": {group: "apps", resource: "replicasets", object: owner("apps/v1", "Deployment", "false"), want: true},
		"of another Deployment":                 {group: "apps", resource: "replicasets", object: owner("example.com/v1", "Deployment", "true"), want: true},
		"of a CronJob":                          {group: "batch", resource: "jobs", object: owner("batch/v1", "CronJob", "true")},
		"of a Deployment that is not evaluated": {group: "apps", resource: "replicasets", object: owner("apps/v1", "Deployment", "true"), kinds: []v1alpha1.PodTemplateKind{{Group: "apps", Version: "v1", Resource: "replicasets", TemplatePath: "spec.template"}}, want: true},
		"scaled, of a kind that is not a default, named": {group: "argoproj.io", resource: "rollouts", object: two, old: one, kinds: []v1alpha1.PodTemplateKind{{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts", TemplatePath: "spec.template"}}, want: true},
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kinds := tc.kinds
			if kinds == nil {
				kinds = v1alpha1.DefaultPodTemplateKinds()
			}
			expression := templateCondition(kinds)
			if expression == "" {
				if !tc.want {
					t.Fatal("there is no condition")
				}
				return
			}
			condition := matchconditions.MatchCondition{Name: "c", Expression: expression}
			evaluator := compiler.CompileCondition([]cel.ExpressionAccessor{&condition}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
			matcher := matchconditions.NewMatcher(evaluator, new(admissionregistrationv1.Fail), "webhook", "validating", "w")
			operation := admission.Create
			if tc.old != "" {
				operation = admission.Update
			}
			object, old := treeOf(t, tc.object), treeOf(t, tc.old)
			attributes := admission.NewAttributesRecord(object, old, schema.GroupVersionKind{Group: tc.group, Version: "v1", Kind: "W"}, "n", "a",
				schema.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource}, "", operation, nil, false, &user.DefaultInfo{})
			result := matcher.Match(context.Background(), &admission.VersionedAttributes{
				Attributes: attributes, VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: attributes.GetKind(),
			}, nil, nil)
			if result.Error != nil || result.Matches != tc.want {
				t.Errorf("matches: %t, %v, want %t", result.Matches, result.Error, tc.want)
			}
		})
	}
}

func treeOf(t *testing.T, text string) runtime.Object {
	t.Helper()
	if text == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
