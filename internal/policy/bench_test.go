package policy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

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
	return NewSnapshot(map[GroupKey][]*Compiled{testGroup: compiled}).Group(testGroup)
}

func BenchmarkEvaluate(b *testing.B) {
	for _, set := range []string{"A", "B", "C", "D"} {
		group := groupOf(b, loadSet(b, set))
		for _, review := range []string{"ok", "bad"} {
			request := loadReview(b, review)
			b.Run(fmt.Sprintf("set=%s/pod=%s", set, review), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					resp, err := group.Validate(b.Context(), request, Host{Now: time.Now})
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
			compiler := &Compiler{environment: sharedCompiler.environment, compiler: sharedCompiler.compiler, programs: newProgramCache()}
			if _, errs := compiler.Compile(policies[i%len(policies)]); len(errs) > 0 {
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

// BenchmarkMemory reports what compiled policies keep in memory, each with an
// expression of its own.
func BenchmarkMemory(b *testing.B) {
	for _, variables := range []bool{false, true} {
		policies := loadSet(b, "P1000")
		name := "variables=none"
		if variables {
			policies, name = policies[:50], "variables=1"
			for _, p := range policies {
				v := &p.Spec.Validations[0]
				p.Spec.Variables = []admissionregistrationv1.Variable{{Name: "probe", Expression: "object.metadata.?labels.probe.orValue('')"}}
				v.Expression = strings.ReplaceAll(v.Expression, "object.metadata.?labels.probe.orValue('')", "variables.probe")
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
				runtime.KeepAlive(compiled)
				runtime.KeepAlive(compiler)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(policies)), "µs/policy")
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // cleanups of the first run may free more
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// testGroup is the one call group of a snapshot in tests.
var testGroup = GroupKey{Phase: PhaseValidate, Name: "g"}
