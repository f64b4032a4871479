package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/policy"
)

// auditable returns evaluators for the policies of the library that are evaluated on stored objects.
func auditable(b *testing.B) (out []*Evaluator) {
	b.Helper()
	files, err := filepath.Glob("../../library/*/*/policy.yaml")
	if err != nil || len(files) == 0 {
		b.Fatalf("%d policies: %v", len(files), err)
	}
	compiler := policy.NewCompiler()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		p := &v1alpha1.WebhookPolicy{}
		if err := yaml.UnmarshalStrict(text, p); err != nil {
			b.Fatalf("%s: %v", file, err)
		}
		compiled, errs := compiler.Compile(p)
		if len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
		if Unaudited(&p.Spec, compiled) == "" {
			out = append(out, NewEvaluator(p, compiled, guard.ExemptNamespaces(nil)))
		}
	}
	return out
}

// BenchmarkEvaluateAnew evaluates the policy library on a stored object, in turn as an update
// alone and as the audit does. The ratio is the cost of the second evaluation.
func BenchmarkEvaluateAnew(b *testing.B) {
	const restricted = "securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, " +
		"seccompProfile: {type: RuntimeDefault}, capabilities: {drop: [ALL]}}, resources: {requests: {cpu: 1, memory: 1Gi}, " +
		"limits: {memory: 1Gi}}"
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, " +
		"spec: {nodeName: a, containers: [{name: c, image: 'registry.example.com/i:1', %s}]}, status: {phase: Running}}"
	objects := map[string]string{
		"restricted Pod": rulesWith(pod, restricted),
		"Pod":            rulesWith(pod, "ports: [{containerPort: 80}]"),
		"Deployment":     deployment,
		"ConfigMap":      configMap,
	}
	evaluators, host := auditable(b), environment()
	for name, text := range objects {
		b.Run(name, func(b *testing.B) {
			stored := objectFrom(b, text)
			var decoded Decoded
			evaluate := func(one func(*Evaluator, *Object)) time.Duration {
				o := *stored
				o.Decoded = &decoded
				decoded.Next()
				start := time.Now()
				for _, e := range evaluators {
					one(e, &o)
				}
				return time.Since(start)
			}
			var updates, both time.Duration
			for b.Loop() {
				updates += evaluate(func(e *Evaluator, o *Object) {
					only := host
					only.Stored = &decoded.updated
					e.auditor.Evaluate(b.Context(), o.update(), only)
				})
				both += evaluate(func(e *Evaluator, o *Object) { e.Evaluate(b.Context(), o, host) })
			}
			b.ReportMetric(float64(updates.Microseconds())/float64(b.N), "µs/update")
			b.ReportMetric(float64(both.Microseconds())/float64(b.N), "µs/both")
			b.ReportMetric(float64(both)/float64(updates), "ratio")
		})
	}
}
