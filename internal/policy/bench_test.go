package policy

import (
	"context"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/bench"
)

func loadSet(tb testing.TB, name string) []*v1alpha1.WebhookPolicy {
	tb.Helper()
	policies, err := bench.Policies(name)
	if err != nil {
		tb.Fatal(err)
	}
	return policies
}

func loadReview(tb testing.TB, pod string) *admissionv1.AdmissionRequest {
	tb.Helper()
	request, err := bench.Request(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return request
}

func groupOf(tb testing.TB, policies []*v1alpha1.WebhookPolicy) *Group {
	tb.Helper()
	var compiled []*Compiled
	for _, p := range policies {
		c, errs := sharedCompiler.Compile(p)
		if len(errs) > 0 {
			tb.Fatal(errs.ToAggregate())
		}
		compiled = append(compiled, c)
	}
	return NewGroup(compiled)
}

func BenchmarkEvaluate(b *testing.B) {
	for _, set := range []string{"A", "B", "C", "D", "R", "V"} {
		group := groupOf(b, loadSet(b, set))
		for _, review := range []string{"ok", "bad"} {
			request := loadReview(b, review)
			b.Run(fmt.Sprintf("set=%s/pod=%s", set, review), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					resp, err := group.Validate(b.Context(), request, Environment{Now: time.Now})
					if err != nil || resp.Allowed != (review == "ok") {
						b.Fatalf("Evaluate() = %+v, %v", resp, err)
					}
				}
			})
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	policies := loadSet(b, "B")
	b.Run("fresh", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			p := policies[i%len(policies)].DeepCopy()
			for j := range p.Spec.Validations { // an expression that nothing shares
				p.Spec.Validations[j].Expression += fmt.Sprintf(" // %d", i)
			}
			if _, errs := sharedCompiler.Compile(p); len(errs) > 0 {
				b.Fatal(errs)
			}
		}
	})
	b.Run("shared", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, errs := sharedCompiler.Compile(policies[i%len(policies)]); len(errs) > 0 {
				b.Fatal(errs)
			}
		}
	})
}

var sharedCompiler = NewCompiler()

// BenchmarkMany is one policy with many params or bindings, each of which is
// evaluated for each request.
func BenchmarkMany(b *testing.B) {
	const spec = "validations: [{expression: 'object.spec.containers.all(c, c.name != params.data.max)', message: m}, {expression: 'params.metadata.name != request.name'}]\n"
	params := func(n int) *world {
		objects := make([]runtime.Object, n)
		for i := range objects {
			objects[i] = paramConfigMap("shop", fmt.Sprintf("p%04d", i), "a", fmt.Sprint(i))
		}
		many := *testWorld
		many.params = map[admissionregistrationv1.ParamKind]paramObjects{configMaps: {scope: meta.RESTScopeNamespace, objects: objects}}
		return &many
	}
	bindings := func(n int, ref string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("{name: b%d, %s}", i, ref)
		}
		return bound(list...)
	}
	for _, n := range []int{64, MaxParams} {
		cases := map[string]struct {
			spec  string
			world *world
		}{
			"params":                 {ofConfigMaps + spec + bound("{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}"), params(n)},
			"bindings to a param":    {ofConfigMaps + spec + bindings(n, "paramRef: {name: p0001, parameterNotFoundAction: Deny}"), params(2)},
			"bindings with a match":  {"validations: [{expression: 'object.spec.containers.all(c, c.name != request.name)'}]\n" + bindings(n, "matchResources: {objectSelector: {matchLabels: {team: shop}}}"), testWorld},
			"params, then mutations": {ofConfigMaps + mutations(label("a", "params.data.max")) + bound("{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}"), params(n)},
		}
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			tc := cases[name]
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				p := policyFrom(b, "p", tc.spec)
				group := groupOf(b, []*v1alpha1.WebhookPolicy{p})
				request, host := podInput(b, admission.Create).review(b), tc.world.host()
				found, err := tc.world.Params(b.Context(), &configMaps, &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}}, "shop")
				if err != nil {
					b.Fatal(err)
				}
				host.Params = paramsFunc(func(ref *admissionregistrationv1.ParamRef) []runtime.Object { // as a cache has them
					if ref.Name != "" {
						return found[:1]
					}
					return found
				})
				call := group.Validate
				if len(p.Spec.Mutations) > 0 {
					call = group.Mutate
				}
				b.ReportAllocs()
				for b.Loop() {
					if resp, err := call(b.Context(), request, host); err != nil || !resp.Allowed {
						b.Fatalf("answer = %+v, %v", resp, err)
					}
				}
			})
		}
	}
}

// BenchmarkLater is 20 policies that need more than the objects and the request, in the batch and alone.
func BenchmarkLater(b *testing.B) {
	const count = 20
	const rest = "validations: [{expression: 'object.spec.containers.all(c, c.name != %s && c.image != \"\")', message: m}]\n"
	byName := bound("{name: b, paramRef: {name: first, parameterNotFoundAction: Deny}}")
	specs := map[string]string{
		"nothing more": fmt.Sprintf(rest, "request.name"),
		"params":       ofConfigMaps + fmt.Sprintf(rest, "params.data.max") + byName,
		"namespace":    fmt.Sprintf(rest, "namespaceObject.metadata.name"),
		"annotation":   "auditAnnotations: [{key: a, valueExpression: 'string(object.metadata.name)'}]\n" + fmt.Sprintf(rest, "request.name"),
		"authorizer": "validations: [{expression: 'object != null || authorizer.path(\"/\").check(\"get\").allowed()'}, " +
			strings.TrimPrefix(fmt.Sprintf(rest, "request.name"), "validations: ["),
	}
	request, host := podInput(b, admission.Create).review(b), testWorld.host()
	params := []runtime.Object{&unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"max": "2"}}}}
	host.Params = paramsFunc(func(*admissionregistrationv1.ParamRef) []runtime.Object { return params })
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		for _, path := range []string{"batch", "alone"} {
			b.Run(name+"/"+path, func(b *testing.B) {
				var policies []*Compiled
				for i := range count {
					p := mustCompile(b, sharedCompiler, policyFrom(b, fmt.Sprintf("p%02d", i), specs[name]))
					if path == "alone" {
						p.quick = nil
					}
					policies = append(policies, p)
				}
				group := NewGroup(policies)
				b.ReportAllocs()
				for b.Loop() {
					if resp, err := group.Validate(b.Context(), request, host); err != nil || !resp.Allowed {
						b.Fatalf("answer = %+v, %v", resp, err)
					}
				}
			})
		}
	}
}

type paramsFunc func(*admissionregistrationv1.ParamRef) []runtime.Object

func (f paramsFunc) Params(_ context.Context, _ *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, _ string) ([]runtime.Object, error) {
	return f(ref), nil
}

// BenchmarkMutate is several policies in one call, each with one mutation.
func BenchmarkMutate(b *testing.B) {
	for _, n := range []int{1, 5, 20} {
		for kind, mutation := range map[string]func(int) string{
			"apply": func(i int) string { return label(fmt.Sprintf("a%d", i), `"b"`) },
			"patch": func(i int) string { return patching(op("add", fmt.Sprintf("/metadata/labels/a%d", i), `"b"`)) },
			"none":  func(int) string { return label("team", `"shop"`) },
		} {
			b.Run(fmt.Sprintf("%s/policies=%d", kind, n), func(b *testing.B) {
				specs := map[string]string{}
				for i := range n {
					specs[fmt.Sprintf("p%d", i)] = mutations(mutation(i))
				}
				group, request, host := groupFrom(b, specs), podInput(b, admission.Create).review(b), testWorld.host()
				b.ReportAllocs()
				for b.Loop() {
					if resp, err := group.Mutate(b.Context(), request, host); err != nil || !resp.Allowed || (len(resp.Patch) > 0) != (kind != "none") {
						b.Fatalf("answer = %+v, %v", resp, err)
					}
				}
			})
		}
	}
}

// BenchmarkMemory reports what compiled policies keep in memory, each with an
// expression of its own.
func BenchmarkMemory(b *testing.B) {
	for _, variables := range []bool{false, true} {
		policies := loadSet(b, "P1000")
		name := "variables=none"
		if variables {
			policies, name = policies[:50], "variables=1"
			for i, p := range policies {
				v := &p.Spec.Validations[0]
				p.Spec.Variables = []admissionregistrationv1.Variable{{Name: fmt.Sprintf("probe%d", i%7), Expression: fmt.Sprintf("object.metadata.?labels.probe.orValue('none%d')", i)}}
				v.Expression = strings.ReplaceAll(v.Expression, "object.metadata.?labels.probe.orValue('')", "variables."+p.Spec.Variables[0].Name)
			}
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				compiler := NewCompiler()
				before := heapInUse()
				compiled := make([]*Compiled, len(policies))
				for i, p := range policies {
					compiled[i] = mustCompile(b, compiler, p)
				}
				b.ReportMetric(float64(heapInUse()-before)/float64(len(policies)), "heap-B/policy")
				goruntime.KeepAlive(compiled)
				goruntime.KeepAlive(compiler)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(policies)), "µs/policy")
		})
	}
}

func heapInUse() int64 {
	goruntime.GC()
	goruntime.GC() // cleanups of the first run may free more
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
