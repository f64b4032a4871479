package registration

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		r := rand.New(rand.NewPCG(1, 8))
		policies := randomPolicies(r, n)
		var entries []Entry
		for _, policy := range policies {
			entries = append(entries, Prepare(policy))
		}
		b.Run(fmt.Sprintf("%d policies", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Build(Input{Policies: policies, Endpoint: testService})
			}
		})
		b.Run(fmt.Sprintf("%d entries", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Build(Input{Entries: entries, Endpoint: testService})
			}
		})
	}
}

func BenchmarkSameGroup(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		var entries []Entry
		for _, policy := range samePolicies(n, "pods", "services", "secrets", "configmaps", "nodes", "*") {
			entries = append(entries, Prepare(policy))
		}
		plan := Build(Input{Entries: entries, Endpoint: testService})
		observed := observe(plan)
		b.Run(fmt.Sprintf("Build %d", n), func(b *testing.B) {
			for b.Loop() {
				Build(Input{Entries: entries, Endpoint: testService})
			}
		})
		b.Run(fmt.Sprintf("Diff %d", n), func(b *testing.B) {
			for b.Loop() {
				Diff(plan, observed)
			}
		})
		b.Run(fmt.Sprintf("Registered %d", n), func(b *testing.B) {
			for b.Loop() {
				view := NewView(plan, observed)
				for _, entry := range entries {
					view.Registered(entry)
				}
			}
		})
	}
}
