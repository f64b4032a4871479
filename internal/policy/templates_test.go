package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

func templateGroupFrom(tb testing.TB, specs map[string]string) *Group {
	tb.Helper()
	var compiled []*Compiled
	for name, spec := range specs {
		compiled = append(compiled, mustCompile(tb, sharedCompiler, policyFrom(tb, name, spec)))
	}
	return NewTemplateGroup(compiled)
}

// workloadRequest returns the request for an object in YAML, and for an UPDATE the stored
// one.
func workloadRequest(tb testing.TB, resource metav1.GroupVersionResource, object, old string) *admissionv1.AdmissionRequest {
	tb.Helper()
	decode := func(text string) (tree map[string]any, raw []byte) {
		if text == "" {
			return nil, nil
		}
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			tb.Fatal(err)
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			tb.Fatal(err)
		}
		return tree, raw
	}
	out := &admissionv1.AdmissionRequest{
		UID:       "1",
		Namespace: "shop",
		Name:      "web",
		Resource:  resource,
		Operation: admissionv1.Create,
		UserInfo:  authenticationv1.UserInfo{Username: "alice"},
	}
	tree, raw := decode(object)
	out.Kind = metav1.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: tree["kind"].(string)}
	out.Object.Raw = raw
	if _, raw := decode(old); raw != nil {
		out.OldObject.Raw, out.Operation = raw, admissionv1.Update
	}
	return out
}

var (
	deploymentsResource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	replicaSetsResource = metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	cronJobsResource    = metav1.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	rolloutsResource    = metav1.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "rollouts"}
)

const (
	templateYAML = "{metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: latest}]}}"
	otherYAML    = "{metadata: {labels: {app: web}, annotations: {restartedAt: now}}, spec: {containers: [{name: web, image: latest}]}}"
)

func workloadYAML(kind, metadata, spec string) string {
	return "{kind: " + kind + ", metadata: {name: web, namespace: shop" + metadata + "}, spec: " + spec + "}"
}

func TestPodTemplates(t *testing.T) {
	const (
		latest = "validations: [{expression: 'object.spec.containers.all(c, c.image != \"latest\")', message: m}]\npodTemplates: {}"
		denied = "WebhookPolicy 'p' denied request: spec.template: m"
		rule   = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [%s]}]}\n"
		owner  = ", ownerReferences: [{apiVersion: %s, kind: %s, name: o, uid: u, controller: true}]"
		podIs  = "validations: [{expression: '%s', message: m}]\npodTemplates: {}"
		// guarded begins a policy of which updates that leave the spec alone pass, as in the library.
		guarded    = "matchConditions: [{name: g, expression: 'request.operation == \"CREATE\" || object.spec != oldObject.spec'}]\n"
		ratchets   = "ratchet: true\n"
		podsDenied = "WebhookPolicy 'p' will deny the Pods that controllers create from spec.template: correct the " +
			"template, or exclude the workload from the policy"
	)
	deployment := func(metadata, template string) string {
		return workloadYAML("Deployment", metadata, "{replicas: 1, template: "+template+"}")
	}
	create := workloadRequest(t, deploymentsResource, deployment("", templateYAML), "")
	change := workloadRequest(t, deploymentsResource, deployment("", otherYAML), deployment("", templateYAML))
	scale := workloadRequest(t, deploymentsResource,
		strings.Replace(deployment("", templateYAML), "replicas: 1", "replicas: 2", 1), deployment("", templateYAML))
	replicaSet := func(apiVersion, kind string) *admissionv1.AdmissionRequest {
		return workloadRequest(t, replicaSetsResource,
			workloadYAML("ReplicaSet", fmt.Sprintf(owner, apiVersion, kind), "{template: "+templateYAML+"}"), "")
	}
	rollout := workloadRequest(t, rolloutsResource, workloadYAML("Rollout", "", "{template: "+templateYAML+"}"), "")
	tests := map[string]struct {
		spec         string
		request      *admissionv1.AdmissionRequest
		want         string // message; empty if the request is allowed
		wantWarnings []string
		wantDecision Decision // empty if the policy is not evaluated
	}{
		"a new workload":        {spec: latest, request: create, want: denied, wantDecision: DecisionDeny},
		"a changed template":    {spec: latest, request: change, want: denied, wantDecision: DecisionDeny},
		"an unchanged template": {spec: latest, request: scale},
		"without podTemplates":  {spec: strings.TrimSuffix(latest, "podTemplates: {}"), request: create},
		"a cron job": {
			spec:    latest,
			request: workloadRequest(t, cronJobsResource, workloadYAML("CronJob", "", "{jobTemplate: {spec: {template: "+templateYAML+"}}}"), ""),
			want:    "WebhookPolicy 'p' denied request: spec.jobTemplate.spec.template: m", wantDecision: DecisionDeny,
		},
		"of an evaluated controller": {spec: latest, request: replicaSet("apps/v1", "Deployment")},
		"of a controller of another group": {
			spec:         latest,
			request:      replicaSet("example.com/v1", "Deployment"),
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"of a controller that is left out": {
			spec:         latest + "\n",
			request:      replicaSet("argoproj.io/v1alpha1", "Rollout"),
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"of an evaluated custom controller": {
			spec: strings.Replace(latest, "{}",
				"{kinds: [{resource: replicasets}, {group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.template}]}", 1),
			request: replicaSet("argoproj.io/v1alpha1", "Rollout"),
		},
		"another kind": {spec: strings.Replace(latest, "{}", "{kinds: [{resource: jobs}]}", 1), request: create},
		"a custom kind": {
			spec: strings.Replace(latest, "{}",
				"{kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.template}]}", 1),
			request:      rollout,
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"a custom kind, not named": {spec: latest, request: rollout},
		"without a template": {
			spec: strings.Replace(latest, "{}",
				"{kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.template}]}", 1),
			request: workloadRequest(t, rolloutsResource, workloadYAML("Rollout", "", "{workloadRef: {name: web}}"), ""),
		},
		"a template that is no object": {
			spec: "failurePolicy: Ignore\n" + strings.Replace(latest, "{}",
				"{kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.template}]}", 1),
			request: workloadRequest(t, rolloutsResource, workloadYAML("Rollout", "", "{template: [1]}"), ""),
			want: "WebhookPolicy 'p' denied request: spec.template: unreadable object at request.object: spec.template is a " +
				"[]interface {} and no object, so it is no pod template: remove the value, make the object smaller, or delete it " +
				"and create it again", wantDecision: DecisionDeny,
		},
		"other actions": {
			spec:         strings.Replace(latest, "{}", "{validationActions: [Warn]}", 1),
			request:      create,
			wantWarnings: []string{"Validation failed for WebhookPolicy 'p': spec.template: m", podsDenied},
			wantDecision: DecisionWarn,
		},
		"actions of the binding": {
			spec:         latest + "\nbindings: [{name: b, validationActions: [Warn]}]",
			request:      create,
			wantWarnings: []string{"Validation failed for WebhookPolicy 'p' with binding 'b': spec.template: m"},
			wantDecision: DecisionWarn,
		},
		"a named validation": {
			spec:         "validations: [{name: v, expression: 'false', message: m}]\npodTemplates: {}",
			request:      create,
			want:         "WebhookPolicy 'p' denied request: v at spec.template: m",
			wantDecision: DecisionDeny,
		},
		"rules for CREATE": {
			spec:         fmt.Sprintf(rule, "CREATE") + latest,
			request:      change,
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"rules for UPDATE, changed": {
			spec:         fmt.Sprintf(rule, "UPDATE") + latest,
			request:      change,
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"rules that exclude Pods": {
			spec: strings.Replace(fmt.Sprintf(rule, "CREATE"), "]}\n",
				"], excludeResourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: ['*']}]}\n",
				1) + latest,
			request: create,
		},
		"a selector of the template": {
			spec: strings.Replace(fmt.Sprintf(rule, "CREATE"), "{resource",
				"{objectSelector: {matchLabels: {app: web}}, resource", 1) + latest,
			request:      create,
			want:         denied,
			wantDecision: DecisionDeny,
		},
		"a selector of other templates": {
			spec: strings.Replace(fmt.Sprintf(rule, "CREATE"), "{resource",
				"{objectSelector: {matchLabels: {app: db}}, resource", 1) + latest,
			request: create,
		},
		"a binding for the template": {
			spec: latest + "\nbindings: [{name: b, matchResources: {objectSelector: {matchLabels: {app: web}}, " +
				"resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}}]",
			request:      change,
			want:         "WebhookPolicy 'p' with binding 'b' denied request: spec.template: m",
			wantDecision: DecisionDeny,
		},
		"a binding for other templates": {
			spec:         latest + "\nbindings: [{name: b, matchResources: {objectSelector: {matchLabels: {app: db}}}}]",
			request:      create,
			wantDecision: DecisionUnmatched,
		},
		"a match condition, about the Pod": {
			spec:         "matchConditions: [{name: c, expression: 'object.kind != \"Pod\"'}]\n" + latest,
			request:      create,
			wantDecision: DecisionSkip,
		},
		"the Pod": {
			spec: fmt.Sprintf(podIs,
				`object.apiVersion == "v1" && object.kind == "Pod" && object.metadata.labels == {"app": "web"} && `+
					`object.metadata.namespace == "shop" && object.metadata.size() == 2 && object.spec.containers.size() == 1 && !has(object.status)`),
			request:      create,
			wantDecision: DecisionAllow,
		},
		"a changed template as a new Pod": {
			spec: fmt.Sprintf(rule, "CREATE, UPDATE") + fmt.Sprintf(podIs, `oldObject == null && request.operation == "CREATE" && `+
				`request.kind.kind == "Deployment" && object.metadata.annotations.restartedAt == "now"`),
			request: change, wantDecision: DecisionAllow,
		},
		"a restart despite a guard": {spec: guarded + latest, request: change, want: denied, wantDecision: DecisionDeny},
		"scaling with a guard":      {spec: guarded + latest, request: scale},
		"a label that leaves the selector": {
			spec: strings.Replace(fmt.Sprintf(rule, "CREATE"), "{resource",
				"{objectSelector: {matchLabels: {app: web}}, resource", 1) + latest,
			request: workloadRequest(t, deploymentsResource, deployment("", strings.Replace(templateYAML, "web", "db", 1)),
				deployment("", templateYAML)),
		},
		"the old Pod": {
			spec: fmt.Sprintf(rule, "UPDATE") + fmt.Sprintf(podIs,
				`request.operation == "UPDATE" && oldObject.kind == "Pod" && oldObject.metadata.labels == {"app": "web"} && `+
					`oldObject.metadata.namespace == "shop" && object.metadata.annotations.restartedAt == "now"`),
			request:      change,
			wantDecision: DecisionAllow,
		},
		"the old Pod of a new workload": {spec: fmt.Sprintf(podIs, `oldObject == null`), request: create, wantDecision: DecisionAllow},
		"the request": {
			spec: fmt.Sprintf(podIs,
				`request.kind.kind == "Deployment" && request.resource.resource == "deployments" && request.name == "web" && `+
					`request.operation == "CREATE" && request.userInfo.username == "alice"`),
			request:      create,
			wantDecision: DecisionAllow,
		},
		"the namespace, params and the authorizer": {
			spec: "paramKind: {apiVersion: v1, kind: ConfigMap}\nbindings: [{name: b, paramRef: {name: first, parameterNotFoundAction: Deny}}]\n" +
				fmt.Sprintf(podIs, `namespaceObject.metadata.name == "shop" && params.data.max == "1" && `+
					`authorizer.requestResource.check("allow").reason().contains("deployments")`),
			request: create, wantDecision: DecisionAllow,
		},
		"ratchet of a guarded policy": {
			spec: ratchets + guarded + latest, request: change,
			wantWarnings: []string{
				"WebhookPolicy 'p' allowed request, because the stored object fails it too: spec.validations[0] at spec.template: m",
				podsDenied,
			}, wantDecision: DecisionRatchet,
		},
		"ratchet of a good template": {
			spec: ratchets + guarded + latest,
			request: workloadRequest(t, deploymentsResource, deployment("", templateYAML),
				deployment("", strings.Replace(templateYAML, "latest", "v1", 1))),
			want: denied, wantDecision: DecisionDeny,
		},
		"ratchet of a template that a binding does not select": {
			spec: ratchets + latest + "\nbindings: [{name: b, matchResources: {objectSelector: {matchLabels: {app: web}}}}]",
			request: workloadRequest(t, deploymentsResource, deployment("", templateYAML),
				deployment("", strings.Replace(templateYAML, "web", "db", 1))),
			want: strings.Replace(denied, "'p'", "'p' with binding 'b'", 1), wantDecision: DecisionDeny,
		},
		"ratchet of a new workload": {spec: ratchets + latest, request: create, want: denied, wantDecision: DecisionDeny},
		"ratchet": {
			spec: "validations: [{expression: 'object.spec.containers.all(c, c.image != \"latest\")', message: m, ratchet: " +
				"true}]\npodTemplates: {}", request: change,
			wantWarnings: []string{
				"WebhookPolicy 'p' allowed request, because the stored object fails it too: spec.validations[0] at spec.template: m",
				podsDenied,
			}, wantDecision: DecisionRatchet,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			decisions := map[string]Decision{}
			host.Observe = observeInto(decisions)
			resp := evaluate(t, templateGroupFrom(t, map[string]string{"p": tc.spec}), tc.request, host)
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
				if field := resp.Result.Details.Causes[0].Field; !strings.HasPrefix(field, "spec.") {
					t.Errorf("the field of the cause is %q, want the path of the template", field)
				}
				if resp.Result.Details.Kind != "deployments" && tc.request.Resource == deploymentsResource {
					t.Errorf("the denial is about %+v, want the workload", resp.Result.Details)
				}
			}
			if message != tc.want {
				t.Errorf("message = %q, want %q", message, tc.want)
			}
			if diff := cmp.Diff(tc.wantWarnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if decisions["p"] != tc.wantDecision {
				t.Errorf("decision = %q, want %q", decisions["p"], tc.wantDecision)
			}
		})
	}
}

// TestPodTemplatesAreShared: policies of a call with the same kinds see the same Pod, and
// one with other kinds does not affect them.
func TestPodTemplatesAreShared(t *testing.T) {
	g := templateGroupFrom(t, map[string]string{
		"a": "validations: [{expression: 'object.spec.containers[0].image != \"latest\"', message: m}]\npodTemplates: {}",
		"b": "validations: [{expression: 'object.metadata.labels.app != \"web\"', message: other}]\npodTemplates: {}\n" +
			"auditAnnotations: [{key: k, valueExpression: 'string(object.kind)'}]",
		"c": "validations: [{expression: 'false'}]\npodTemplates: {kinds: [{resource: jobs}]}",
		"d": "validations: [{expression: 'true'}]\npodTemplates: {kinds: [{resource: deployments}]}",
	})
	decisions := map[string]Decision{}
	host := testWorld.host()
	host.Observe = observeInto(decisions)
	resp := evaluate(t, g, workloadRequest(t, deploymentsResource, workloadYAML("Deployment", "", "{template: "+templateYAML+"}"), ""), host)
	if want := "WebhookPolicy 'a' denied request: spec.template: m\n" +
		"WebhookPolicy 'b' denied request: spec.template: other"; resp.Allowed || resp.Result.Message != want {
		t.Errorf("result = %+v, want message %q", resp.Result, want)
	}
	if diff := cmp.Diff(map[string]Decision{"a": DecisionDeny, "b": DecisionDeny, "d": DecisionAllow}, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if resp.AuditAnnotations["b.k"] != "Pod" {
		t.Errorf("audit annotations = %v", resp.AuditAnnotations)
	}
}

// A resource with two templates has two decisions. An UPDATE is about those that it changes.
func TestSeveralPodTemplates(t *testing.T) {
	const spec = "validations: [{expression: 'object.spec.containers.all(c, c.image != \"latest\")', message: m}]\n" +
		"podTemplates: {kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: " +
		"spec.master.template}, {group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.worker.template}]}"
	const pinned = "{spec: {containers: [{name: web, image: v1}]}}"
	rollout := func(master, worker string) string {
		return workloadYAML("Rollout", "", "{master: {template: "+master+"}, worker: {template: "+worker+"}}")
	}
	tests := map[string]struct{ object, old, want string }{
		"both": {
			object: rollout(templateYAML, templateYAML),
			want:   "WebhookPolicy 'p' denied request: spec.master.template: m\nWebhookPolicy 'p' denied request: spec.worker.template: m",
		},
		"the first":            {object: rollout(templateYAML, pinned), want: "WebhookPolicy 'p' denied request: spec.master.template: m"},
		"the second":           {object: rollout(pinned, templateYAML), want: "WebhookPolicy 'p' denied request: spec.worker.template: m"},
		"none":                 {object: rollout(pinned, pinned)},
		"the second is absent": {object: workloadYAML("Rollout", "", "{master: {template: "+pinned+"}}")},
		"only one changes": {
			object: rollout(templateYAML, otherYAML),
			old:    rollout(templateYAML, pinned),
			want:   "WebhookPolicy 'p' denied request: spec.worker.template: m",
		},
		"neither changes": {object: rollout(templateYAML, templateYAML), old: rollout(templateYAML, templateYAML)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp := evaluate(t, templateGroupFrom(t, map[string]string{"p": spec}),
				workloadRequest(t, rolloutsResource, tc.object, tc.old), testWorld.host())
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tc.want {
				t.Errorf("message = %q, want %q", message, tc.want)
			}
		})
	}
}

// TestTemplatesDecideAsPods compares the decisions of generated policies about a Pod
// without a name with those about workloads that produce it, when they are created and when
// their template changes. Expressions about the request differ, so the policies have none.
func TestTemplatesDecideAsPods(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	a := author{Rand: rand.New(rand.NewPCG(*seed, 1))}
	pod := podInput(t, admission.Create).review(t)
	var tree map[string]any
	if err := json.Unmarshal(pod.Object.Raw, &tree); err != nil {
		t.Fatal(err)
	}
	template := map[string]any{"metadata": tree["metadata"], "spec": tree["spec"]}
	delete(tree["metadata"].(map[string]any), "name")
	delete(tree, "status")
	pod.Name, pod.Object.Raw = "", mustJSON(t, tree)
	requests, changes := map[string]*admissionv1.AdmissionRequest{}, map[string]*admissionv1.AdmissionRequest{}
	for path, resource := range map[string]metav1.GroupVersionResource{
		"spec.template":                  deploymentsResource,
		"spec.jobTemplate.spec.template": cronJobsResource,
	} {
		object := map[string]any{"kind": "Workload", "metadata": map[string]any{"name": "web", "namespace": "shop"}}
		at := object
		fields := strings.Split(path, ".")
		for _, field := range fields[:len(fields)-1] {
			at[field] = map[string]any{}
			at = at[field].(map[string]any)
		}
		at[fields[len(fields)-1]] = template
		request := *pod
		request.Resource, request.RequestResource, request.Name = resource, nil, "web"
		request.Kind, request.RequestKind = metav1.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: "Workload"}, nil
		request.Object.Raw = mustJSON(t, object)
		requests[path] = &request
		changed := request
		at[fields[len(fields)-1]] = map[string]any{"metadata": map[string]any{"labels": map[string]any{"before": "change"}}, "spec": tree["spec"]}
		changed.Operation, changed.OldObject.Raw = admissionv1.Update, mustJSON(t, object)
		changes[path] = &changed
	}
	counts := map[Decision]int{}
	for i := range *randomPolicies * 4 {
		p := a.compiling("p")
		if text := string(mustJSON(t, p.Spec)); strings.Contains(text, "request.") ||
			strings.Contains(text, "requestResource") || strings.Contains(text, `"request"`) {
			continue
		}
		p.Spec.PodTemplates = &v1alpha1.PodTemplates{}
		compiled := mustCompile(t, sharedCompiler, p)
		decide := func(g *Group, request *admissionv1.AdmissionRequest, path string) string {
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe = observeInto(decisions)
			resp := evaluate(t, g, request, host)
			counts[decisions["p"]]++
			message := ""
			if resp.Result != nil {
				message = resp.Result.Message
			}
			text := fmt.Sprintf("%s %t %q %q", decisions["p"], resp.Allowed, message, resp.Warnings)
			if path != "" {
				text = strings.ReplaceAll(text, path+": ", "")
			}
			return text
		}
		want := decide(NewGroup([]*Compiled{compiled}), pod, "")
		for path, request := range requests {
			if got := decide(NewTemplateGroup([]*Compiled{compiled}), request, path); got != want {
				t.Errorf("policy %d of seed %d: %s of the workload, %s of the Pod\n%+v", i, *seed, got, want, p.Spec)
			}
			if celsyntax.Ratchets(&p.Spec) || p.Spec.TemplateOperation() != admissionregistrationv1.Create {
				continue
			}
			if got := decide(NewTemplateGroup([]*Compiled{compiled}), changes[path], path); got != want {
				t.Errorf("policy %d of seed %d: %s of the change, %s of the Pod\n%+v", i, *seed, got, want, p.Spec)
			}
		}
	}
	t.Logf("decisions: %v", counts)
	for _, d := range []Decision{DecisionAllow, DecisionDeny, DecisionWarn, DecisionError, DecisionUnmatched} {
		if counts[d] == 0 && *randomPolicies > 50 {
			t.Errorf("no policy had the decision %s: the policies have lost their variety", d)
		}
	}
}

func mustJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// forbidding denies every call and keeps it.
type forbidding struct{ call *pluginapi.Call }

// Rules implements Plugin.
func (*forbidding) Rules() []admissionregistrationv1.RuleWithOperations { return nil }

// Validate implements Validator.
func (f *forbidding) Validate(_ context.Context, call *pluginapi.Call) error {
	f.call = call
	return call.Forbid("no")
}

func TestPodTemplatesOfPlugins(t *testing.T) {
	p := policyFrom(t, "p", "plugin: {name: PodSecurity}\npodTemplates: {}")
	plugin := &forbidding{}
	compiled, errs := sharedCompiler.CompilePlugin(p, plugin, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for name, old := range map[string]string{"CREATE": "", "UPDATE": workloadYAML("Deployment", "", "{template: "+otherYAML+"}")} {
		t.Run(name, func(t *testing.T) {
			raw := workloadRequest(t, deploymentsResource, workloadYAML("Deployment", "", "{template: "+templateYAML+"}"), old)
			resp := evaluate(t, NewTemplateGroup([]*Compiled{compiled}), raw, testWorld.host())
			if resp.Allowed || !strings.HasPrefix(resp.Result.Message,
				"WebhookPolicy 'p' denied request: spec.template: pods ") || resp.Result.Code != 403 {
				t.Errorf("result = %+v", resp.Result)
			}
			call := plugin.call
			if call.Resource.Resource != "pods" || call.GetKind().Kind != "Pod" || call.GetOperation() != admission.Create ||
				call.GetName() != "" || call.GetNamespace() != "shop" {
				t.Errorf("the plugin is called for %s %s of %s %q in %q", call.GetOperation(), call.Resource, call.GetKind(),
					call.GetName(), call.GetNamespace())
			}
			if object := call.Object(); object.GetKind() != "Pod" || object.GetLabels()["app"] != "web" || call.OldObject() != nil {
				t.Errorf("objects = %v, %v", object, call.OldObject())
			}
		})
	}
}
