package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"
)

func TestMutatedTemplates(t *testing.T) {
	const (
		pull         = "{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: \"Always\"})}}'}}"
		label        = "{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/labels/team\", value: \"shop\"}]'}}"
		finalize     = "{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/\" + \"finalizers\", value: [\"example.com/f\"]}]'}}"
		rename       = "{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/metadata/\" + \"name\", value: \"x\"}]'}}"
		status       = "{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/\" + \"status\", value: {\"message\": \"x\"}}]'}}"
		template     = "{metadata: {name: ignored, labels: {app: web}}, spec: {containers: [{name: web, image: latest}]}}"
		twoTemplates = "podTemplates: {kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.master.template}, {group: argoproj.io, version: v1alpha1, resource: rollouts, templatePath: spec.worker.template}]}"
		outside      = " cannot be changed in a pod template: controllers use its spec and its metadata.labels, metadata.annotations, metadata.finalizers"
	)
	workload := func(template string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, labels: {a: b}}, spec: {replicas: 1, template: " + template + "}}"
	}
	cronJob := "{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: shop}, spec: {jobTemplate: {metadata: {labels: {a: b}}, spec: {template: " + template + "}}}}"
	create := workloadRequest(t, deploymentsResource, workload(template), "")
	rollout := func(master, worker string) string {
		return workloadYAML("Rollout", "", "{master: {template: {metadata: {labels: "+master+"}, spec: {containers: []}}}, worker: {template: {metadata: {labels: "+worker+"}, spec: {containers: []}}}}")
	}
	tests := map[string]struct {
		spec         string
		request      *admissionv1.AdmissionRequest
		want         string // the object; empty if it is not changed
		wantDenied   string
		wantDecision Decision
	}{
		"spec": {
			spec: "mutations: [" + pull + "]", request: create, wantDecision: DecisionMutate,
			want: workload("{metadata: {name: ignored, labels: {app: web}}, spec: {containers: [{name: web, image: latest, imagePullPolicy: Always}]}}"),
		},
		"several, of a cron job": {
			spec: "mutations: [" + pull + ", " + label + ", " + finalize + "]", request: workloadRequest(t, cronJobsResource, cronJob, ""), wantDecision: DecisionMutate,
			want: strings.Replace(strings.Replace(cronJob, "app: web}", "app: web, team: shop}, finalizers: [example.com/f]", 1), "image: latest", "image: latest, imagePullPolicy: Always", 1),
		},
		"a template without metadata": {
			spec:    "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {\"a\": \"b\"}}}'}}]",
			request: workloadRequest(t, deploymentsResource, workload("{spec: {containers: []}}"), ""), wantDecision: DecisionMutate,
			want: workload("{metadata: {annotations: {a: b}}, spec: {containers: []}}"),
		},
		"a label that is removed": {
			spec:    "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/metadata/labels\"}]'}}]",
			request: create, wantDecision: DecisionMutate, want: workload("{metadata: {name: ignored}, spec: {containers: [{name: web, image: latest}]}}"),
		},
		"no change":             {spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: 'object.spec.containers.size() > 5 ? [JSONPatch{op: \"remove\", path: \"/spec\"}] : []'}}]", request: create, wantDecision: DecisionAllow},
		"an unchanged template": {spec: "mutations: [" + label + "]", request: workloadRequest(t, deploymentsResource, workload(template), workload(template))},
		"a changed template": {
			spec: "mutations: [" + label + "]", request: workloadRequest(t, deploymentsResource, workload(template), workload(otherYAML)), wantDecision: DecisionMutate,
			want: workload("{metadata: {name: ignored, labels: {app: web, team: shop}}, spec: {containers: [{name: web, image: latest}]}}"),
		},
		"another field of metadata": {
			spec: "mutations: [" + rename + "]", request: create, wantDecision: DecisionError,
			wantDenied: "WebhookPolicy 'p' denied request: spec.template: spec.mutations[0]: metadata.name" + outside,
		},
		"another field": {
			spec: "mutations: [" + status + "]", request: create, wantDecision: DecisionError,
			wantDenied: "WebhookPolicy 'p' denied request: spec.template: spec.mutations[0]: status" + outside,
		},
		"another field, Ignore": {
			spec: "failurePolicy: Ignore\nmutations: [" + status + ", " + label + "]", request: create, wantDecision: DecisionError,
			want: workload("{metadata: {name: ignored, labels: {app: web, team: shop}}, spec: {containers: [{name: web, image: latest}]}}"),
		},
		"the request": {
			spec:    "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {\"of\": request.kind.kind + \" \" + request.name}}}'}}]",
			request: create, wantDecision: DecisionMutate, want: workload("{metadata: {name: ignored, labels: {app: web}, annotations: {of: Deployment web}}, spec: {containers: [{name: web, image: latest}]}}"),
		},
		"two templates": {
			spec: "mutations: [" + label + "]\n" + twoTemplates, request: workloadRequest(t, rolloutsResource, rollout("{app: web}", "{app: web}"), ""), wantDecision: DecisionMutate,
			want: rollout("{app: web, team: shop}", "{app: web, team: shop}"),
		},
		"one of two templates changes": {
			spec: "mutations: [" + label + "]\n" + twoTemplates, request: workloadRequest(t, rolloutsResource, rollout("{app: web}", "{app: web}"), rollout("{app: web}", "{app: db}")), wantDecision: DecisionMutate,
			want: rollout("{app: web}", "{app: web, team: shop}"),
		},
		"an unknown field": {
			spec:    "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/spec/hostNetwrk\", value: true}]'}}]",
			request: create, wantDecision: DecisionError,
			wantDenied: "WebhookPolicy 'p' denied request: spec.template: spec.mutations[0]: the result is no valid Pod: strict decoding error: unknown field \"spec.hostNetwrk\"",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Observe = observeInto(decisions)
			spec := tc.spec
			if !strings.Contains(spec, "podTemplates") {
				spec += "\npodTemplates: {}"
			}
			resp := mutate(t, templateGroupFrom(t, map[string]string{"p": spec}), tc.request, host)
			denied := ""
			if !resp.Allowed {
				denied = resp.Result.Message
			}
			if denied != tc.wantDenied || decisions["p"] != tc.wantDecision {
				t.Errorf("message = %q, want %q; decision = %q, want %q", denied, tc.wantDenied, decisions["p"], tc.wantDecision)
			}
			if tc.want == "" {
				if resp.Patch != nil {
					t.Errorf("patch = %s, want none", resp.Patch)
				}
				return
			}
			patch, err := jsonpatch.DecodePatch(resp.Patch)
			if err != nil {
				t.Fatal(err)
			}
			text, err := patch.Apply(tc.request.Object.Raw)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateMutationsAreChecked(t *testing.T) {
	const outside = " cannot be changed in a pod template: controllers use its spec and its metadata.labels, metadata.annotations, metadata.finalizers; change it in a policy without podTemplates"
	patch := func(expression string) string {
		return "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '" + expression + "'}}]"
	}
	apply := func(expression string) string {
		return "mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '" + expression + "'}}]"
	}
	tests := map[string]struct{ spec, want string }{
		"spec and labels":           {spec: apply(`Object{spec: Object.spec{hostNetwork: false}, metadata: Object.metadata{labels: {"a": "b"}}}`)},
		"paths":                     {spec: patch(`[JSONPatch{op: "add", path: "/metadata/annotations/a", value: "b"}, JSONPatch{op: "remove", path: "/spec/hostNetwork"}]`)},
		"status":                    {spec: apply(`Object{status: Object.status{message: "m"}}`), want: "status" + outside},
		"the name":                  {spec: apply(`Object{metadata: Object.metadata{generateName: "n"}}`), want: "metadata.generateName" + outside},
		"the path of the namespace": {spec: patch(`true ? [JSONPatch{op: "add", path: "/metadata/namespace", value: "n"}] : []`), want: "metadata.namespace" + outside},
		"the path of the metadata":  {spec: patch(`[JSONPatch{op: "replace", path: "/metadata", value: {}}]`), want: "metadata" + outside},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, errs := sharedCompiler.Compile(policyFrom(t, "p", tc.spec)); len(errs) > 0 {
				t.Fatalf("without podTemplates: %v", errs)
			}
			_, errs := sharedCompiler.Compile(policyFrom(t, "p", tc.spec+"\npodTemplates: {}"))
			switch {
			case tc.want == "" && len(errs) > 0:
				t.Errorf("errors %v, want none", errs)
			case tc.want != "" && (len(errs) != 1 || !strings.HasSuffix(errs[0].Detail, tc.want)):
				t.Errorf("errors %v, want %q", errs, tc.want)
			}
		})
	}
}
