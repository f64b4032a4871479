package audit

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
)

// TestWorkload: the workloads whose new Pods a policy denies are known from their templates and their Pods.
func TestWorkload(t *testing.T) {
	const (
		latest  = "\nvalidations: [{expression: '!object.spec.containers.exists(c, c.image.endsWith(\":latest\"))'}]"
		guarded = "\nmatchConditions: [{name: g, expression: 'request.operation == \"CREATE\" || object.spec != oldObject.spec'}]" + latest
		pod     = "{apiVersion: v1, kind: Pod, metadata: {name: web-5d8-x, namespace: shop, labels: {pod-template-hash: 5d8}%s}," +
			" spec: {containers: [{name: c, image: 'i:latest'}]}, status: {phase: Running}}"
		owner = ", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: web-5d8, uid: u, controller: true}]"
		job   = "{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: shop}," +
			" spec: {template: {spec: {containers: [{name: c, image: 'i:latest'}]}}}, status: {conditions: [{type: %s, status: 'True'}]}}"
	)
	onAll := strings.Replace(rulesWith(onPods, ""), "[CREATE]", "[CREATE, UPDATE]", 1)
	ownedBy := func(kind string) string {
		return strings.Replace(pod, "%s", strings.Replace(owner, "%s", kind, 1), 1)
	}
	tests := map[string]struct{ spec, object, want string }{
		"a Pod of a Deployment": {spec: onAll + latest, object: ownedBy("ReplicaSet"), want: "Deployment shop/web"},
		"of a ReplicaSet": {
			spec:   onAll + latest,
			object: strings.Replace(ownedBy("ReplicaSet"), "pod-template-hash", "hash", 1),
			want:   "ReplicaSet shop/web-5d8",
		},
		"of a StatefulSet":     {spec: onAll + latest, object: ownedBy("StatefulSet"), want: "StatefulSet shop/web-5d8"},
		"of a node":            {spec: onAll + latest, object: ownedBy("Node")},
		"of a Job":             {spec: onAll + latest, object: ownedBy("Job"), want: "Job shop/web-5d8"},
		"of a Job, finished":   {spec: onAll + latest, object: strings.Replace(ownedBy("Job"), "Running", "Succeeded", 1)},
		"without a controller": {spec: onAll + latest, object: strings.Replace(pod, "%s", "", 1)},
		"only new Pods":        {spec: rulesWith(onPods, "") + latest, object: ownedBy("ReplicaSet"), want: "Deployment shop/web"},
		"only changed Pods":    {spec: strings.Replace(onAll, "CREATE, ", "", 1) + latest, object: ownedBy("ReplicaSet")},
		"new and changed Pods": {spec: onAll + guarded, object: ownedBy("ReplicaSet"), want: "Deployment shop/web"},
		"ratcheting": {
			spec:   "ratchet: true\n" + onAll + latest,
			object: ownedBy("ReplicaSet"),
			want:   "Deployment shop/web",
		},
		"audited Pods": {
			spec:   onAll + latest + "\nbindings: [{name: b, validationActions: [Audit]}]",
			object: ownedBy("ReplicaSet"),
		},
		"good Pods":  {spec: onAll + latest, object: strings.Replace(ownedBy("ReplicaSet"), "latest", "1", 1)},
		"a template": {spec: "podTemplates: {}\n" + onAll + guarded, object: deployment, want: "Deployment shop/web"},
		"a ratcheting template": {
			spec:   "podTemplates: {}\nratchet: true\n" + onAll + guarded,
			object: deployment,
			want:   "Deployment shop/web",
		},
		"a warning about the template": {
			spec:   "podTemplates: {validationActions: [Warn]}\n" + onAll + guarded,
			object: deployment,
			want:   "Deployment shop/web",
		},
		"audited Pods of a template": {
			spec: "podTemplates: {validationActions: [Deny]}\n" + onAll + guarded +
				"\nbindings: [{name: b, validationActions: [Audit]}]",
			object: deployment,
		},
		"a good template":                {spec: "podTemplates: {}\n" + onAll + guarded, object: strings.Replace(deployment, "latest", "1", 1)},
		"a Deployment without templates": {spec: onAll + guarded, object: deployment},
		"a Job": {
			spec:   "podTemplates: {}\n" + onAll + guarded,
			object: strings.Replace(job, "%s", "Suspended", 1),
			want:   "Job shop/once",
		},
		"a finished Job": {spec: "podTemplates: {}\n" + onAll + guarded, object: strings.Replace(job, "%s", "Complete", 1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, tt.spec)
			compiled, errs := policy.NewCompiler().Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			o := objectFrom(t, tt.object)
			if got := NewEvaluator(p, compiled, nil).Evaluate(t.Context(), o, environment()); got.Workload != tt.want {
				t.Errorf("workload %q, want %q: %s %+v", got.Workload, tt.want, got.Operation, got.Audited)
			}
		})
	}
}
