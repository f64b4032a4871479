package registration

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestCheckTemplates(t *testing.T) {
	const at = "spec.podTemplates"
	kinds := func(kinds ...v1alpha1.PodTemplateKind) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { s.PodTemplates = &v1alpha1.PodTemplates{Kinds: kinds} }
	}
	with := func(change func(*v1alpha1.WebhookPolicySpec)) func(*v1alpha1.WebhookPolicySpec) {
		return func(s *v1alpha1.WebhookPolicySpec) { kinds()(s); change(s) }
	}
	onPods := func(change func(*rule)) func(*v1alpha1.WebhookPolicySpec) {
		return with(func(s *v1alpha1.WebhookPolicySpec) { change(&s.MatchConstraints.ResourceRules[0]) })
	}
	const noRule = at + `: Forbidden: remove it, or add a rule to matchConstraints.resourceRules that matches CREATE or UPDATE of pods, without resourceNames: it is for policies about Pods`
	tests := map[string]struct {
		change func(*v1alpha1.WebhookPolicySpec)
		want   []string
	}{
		"the default kinds":     {change: kinds()},
		"default kinds, named":  {change: kinds(v1alpha1.PodTemplateKind{Resource: "deployments"}, v1alpha1.PodTemplateKind{Group: "batch", Resource: "jobs"}, v1alpha1.PodTemplateKind{Group: "batch", Version: "v1", Resource: "cronjobs"})},
		"another kind":          {change: kinds(v1alpha1.PodTemplateKind{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts", TemplatePath: "spec.template"})},
		"jobs of another group": {change: kinds(v1alpha1.PodTemplateKind{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs", TemplatePath: "spec.template"})},
		"wildcards":             {change: onPods(func(r *rule) { *r = everything() })},
		"UPDATE":                {change: onPods(func(r *rule) { r.Operations = []admissionregistrationv1.OperationType{"UPDATE"} })},
		"CREATE is excluded, UPDATE is not": {change: with(func(s *v1alpha1.WebhookPolicySpec) {
			s.MatchConstraints.ResourceRules[0] = everything()
			s.MatchConstraints.ExcludeResourceRules = []rule{everything()}
			s.MatchConstraints.ExcludeResourceRules[0].Operations = []admissionregistrationv1.OperationType{"CREATE"}
		})},
		"DELETE":                    {change: onPods(func(r *rule) { r.Operations = []admissionregistrationv1.OperationType{"DELETE"} }), want: []string{noRule}},
		"another resource":          {change: onPods(func(r *rule) { r.Resources = []string{"configmaps", "pods/exec"} }), want: []string{noRule}},
		"another group":             {change: onPods(func(r *rule) { r.APIGroups = []string{"apps"} }), want: []string{noRule}},
		"names":                     {change: onPods(func(r *rule) { r.ResourceNames = []string{"web"} }), want: []string{noRule}},
		"cluster scope":             {change: onPods(func(r *rule) { r.Scope = new(admissionregistrationv1.ClusterScope) }), want: []string{noRule}},
		"Pods are excluded":         {change: with(func(s *v1alpha1.WebhookPolicySpec) { s.MatchConstraints.ExcludeResourceRules = []rule{everything()} }), want: []string{noRule}},
		"mutations":                 {change: with(mutatingSpec)},
		"a kind without a path":     {change: kinds(v1alpha1.PodTemplateKind{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}), want: []string{at + `.kinds[0].templatePath: Required value: name it: only the default kinds have one without it`}},
		"a kind without a version":  {change: kinds(v1alpha1.PodTemplateKind{Group: "argoproj.io", Resource: "rollouts", TemplatePath: "spec.template"}), want: []string{at + `.kinds[0].version: Required value: name it: only the default kinds have one without it`}},
		"another path of a default": {change: kinds(v1alpha1.PodTemplateKind{Group: "apps", Version: "v1", Resource: "deployments", TemplatePath: "spec.other"}), want: []string{at + `.kinds[0]: Invalid value: "deployments": remove version and templatePath: Ostiary knows them for this resource`}},
		"two templates":             {change: kinds(v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs", TemplatePath: "spec.pytorchReplicaSpecs.Master.template"}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "pytorchjobs", TemplatePath: "spec.pytorchReplicaSpecs.Worker.template"})},
		"a default kind, twice":     {change: kinds(v1alpha1.PodTemplateKind{Resource: "jobs"}, v1alpha1.PodTemplateKind{Group: "batch", Resource: "jobs"}), want: []string{at + `.kinds[1]: Duplicate value: "jobs"`}},
		"templates of two versions": {change: kinds(v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.a"}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v2", Resource: "jobs", TemplatePath: "spec.b"}), want: []string{at + `.kinds[1].version: Invalid value: "v2": write "v1", the version of the other templates of jobs: a request has one version`}},
		"a template in another":     {change: kinds(v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.a.spec.b"}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.a"}), want: []string{at + `.kinds[1].templatePath: Invalid value: "spec.a": name one of it and spec.a.spec.b: one is a part of the other`}},
		"templates with one prefix": {change: kinds(v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.a"}, v1alpha1.PodTemplateKind{Group: "kubeflow.org", Version: "v1", Resource: "jobs", TemplatePath: "spec.ab"})},
		"every group":               {change: kinds(v1alpha1.PodTemplateKind{Group: "*", Version: "v1", Resource: "rollouts", TemplatePath: "spec.template"}), want: []string{at + `.kinds[0].group: Invalid value: "*": name the API group`}},
		"pods":                      {change: kinds(v1alpha1.PodTemplateKind{Version: "v1", Resource: "pods", TemplatePath: "spec"}), want: []string{at + `.kinds[0].resource: Invalid value: "pods": remove it: the policy is evaluated on Pods themselves`}},
		"leases":                    {change: kinds(v1alpha1.PodTemplateKind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", TemplatePath: "spec"}), want: []string{at + `.kinds[0]: Forbidden: remove it: policies do not apply to this resource, so that a broken policy cannot lock the cluster`}},
		"policies":                  {change: kinds(v1alpha1.PodTemplateKind{Group: "admission.ostiary.dev", Version: "v1alpha1", Resource: "webhookpolicies", TemplatePath: "spec"}), want: []string{at + `.kinds[0]: Forbidden: remove it: policies do not apply to this resource, so that a broken policy cannot lock the cluster`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := policyFor("p", "pods", func(p *v1alpha1.WebhookPolicy) { tc.change(&p.Spec) })
			var got []string
			for _, err := range Check(policy) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

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
