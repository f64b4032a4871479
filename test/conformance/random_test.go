package conformance

import (
	"flag"
	"testing"
	"time"
)

// The number of generated cases is what continuous integration runs; a longer
// run is `make conformance N=5000 SEED=...`.
var (
	number = flag.Int("n", 100, "number of generated cases")
	seed   = flag.Uint64("seed", 1, "seed of the generated cases")
	first  = flag.Int("first", 0, "number of the first generated policy")
	most   = flag.Int("reports", 20, "how many disagreements to report in full")
)

// TestRandom compares the engines over policies and requests made at random,
// until n requests have been put to policies that are enforced.
func TestRandom(t *testing.T) {
	count := newOutcomeCounts()
	start := time.Now()
	policies := *first
	for count.requests < *number {
		batch := Generate(*seed, policies, min(1+(*number-count.requests)/requestsPerPolicy, 500))
		policies += len(batch)
		err := suite.Run(t.Context(), batch, func(v *Verdict) {
			count.add(v)
			if v.Diff != "" && count.disagreements <= *most {
				t.Errorf("disagreement; repeat with -n=1 -seed=%d -first=%d\n%s", *seed, v.Case.number(), v.Report())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("Kubernetes 1.%d, seed %d: %d policies, %d cases: %d agreements, %d disagreements in %s", suite.minor, *seed,
		policies-*first, count.requests,
		count.requests-count.disagreements, count.disagreements, time.Since(start).Round(time.Second))
	t.Logf("answers %v, codes %v, known differences %v", count.outcomes, count.codes, count.known)
	if count.disagreements > *most {
		t.Errorf("%d more disagreements are not shown", count.disagreements-*most)
	}
	t.Logf("exceptions let something pass in %d cases", count.excepted)
	if *number >= 400 && count.excepted*100 < *number {
		t.Errorf("exceptions let something pass in %d of %d cases: the generator should make more of them", count.excepted, *number)
	}
	// A generator that only makes policies which match nothing proves nothing.
	for _, outcome := range []string{"allowed", "denied", "failed", "warned", "audited"} {
		if *number >= 400 && count.outcomes[outcome]*50 < *number {
			t.Errorf("%d of %d cases were %s: the generator should make more of them", count.outcomes[outcome], *number, outcome)
		}
	}
}
