package policy

import (
	"context"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/lookups"
)

// BenchmarkLookups compares a policy with three lookups in 100,000 Ingresses with the same policy over constant lists. Added
// is the difference of their CPU time, in runs that alternate.
func BenchmarkLookups(b *testing.B) {
	const ingresses = 100_000
	constant := `[{"namespace": "shop", "name": "old"}]`
	spec := func(list func(name string) string, declared string) string {
		var terms []string
		for i := range 3 {
			terms = append(terms, list(fmt.Sprintf("same%d", i))+".all(o, o.namespace == request.namespace)")
		}
		return declared + "\nvalidations: [{expression: '" + strings.Join(terms, " && ") + "'}]"
	}
	var declared, variables []string
	for i := range 3 {
		name := fmt.Sprintf("same%d", i)
		declared = append(declared, strings.Replace(sameHost, "name: sameHost", "name: "+name, 1))
		variables = append(variables, fmt.Sprintf("{name: %s, expression: '%s'}", name, constant))
	}
	groups := map[string]*Group{
		"lookups": groupFrom(b, map[string]string{"p": forAll(spec(
			func(name string) string { return "lookups." + name }, "lookups: ["+strings.Join(declared, ", ")+"]"))}),
		"constant lists": groupFrom(b, map[string]string{"p": forAll(spec(
			func(name string) string { return "variables." + name }, "variables: ["+strings.Join(variables, ", ")+"]"))}),
	}
	x := lookups.NewIndex(lookups.Definition{Scope: "Cluster"}, lookups.Limits{})
	x.Update(func(c *lookups.Changes) {
		for i := range ingresses {
			ref := lookups.Ref{UID: fmt.Sprint(i), Namespace: "shop", Name: fmt.Sprintf("ingress-%d", i)}
			c.Put(ref, lookups.Entry{Keys: []string{fmt.Sprintf("host-%d.example.com", i)}})
		}
	})
	host := hostOf()
	host.Lookups = lookupsFunc(x.Find)
	review := storedReview(b, admission.Create, "ingresses", ingress("new", "", "host-7.example.com", "host-77.example.com"), "")
	for _, name := range []string{"lookups", "constant lists"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if resp, err := groups[name].Validate(context.Background(), review, host); err != nil || !resp.Allowed {
					b.Fatalf("answer = %+v, %v", resp, err)
				}
			}
		})
	}
	b.Run("added", func(b *testing.B) {
		run := func(name string) float64 {
			start := cpuTime(b)
			for range pairedRequests {
				if resp, err := groups[name].Validate(context.Background(), review, host); err != nil || !resp.Allowed {
					b.Fatalf("answer = %+v, %v", resp, err)
				}
			}
			return float64(cpuTime(b)-start) / pairedRequests
		}
		var differences []float64
		for b.Loop() {
			differences = append(differences, run("lookups")-run("constant lists"))
		}
		mean, half := interval(differences)
		b.ReportMetric(mean/1000, "µs-added/request")
		b.ReportMetric(half/1000, "±µs")
	})
}

// pairedRequests is the number of requests between two readings of the CPU time.
const pairedRequests = 500

// cpuTime is that of the process, in nanoseconds.
func cpuTime(tb testing.TB) int64 {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// interval returns the mean of differences and half of its 95 % interval.
func interval(differences []float64) (mean, half float64) {
	n := float64(len(differences))
	for _, d := range differences {
		mean += d / n
	}
	squares := 0.0
	for _, d := range differences {
		squares += (d - mean) * (d - mean)
	}
	return mean, 1.96 * math.Sqrt(squares/max(n-1, 1)/n)
}
