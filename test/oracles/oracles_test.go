package oracles_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/oracles"
)

// root is the folder of the repository.
const root = "../.."

// The Makefile builds the engines; a longer run is `make migration-oracle N=100000 SEED=...`.
var (
	number  = flag.Int("n", 2000, "number of requests about generated policies")
	seed    = flag.Uint64("seed", 1, "seed of the generated policies")
	first   = flag.Uint64("first", 0, "number of the first generated policy")
	most    = flag.Int("reports", 10, "how many disagreements to report in full")
	only    = flag.String("case", "", "compare only the written policies whose name has this text")
	kyverno = flag.String("kyverno", "", "program with the engine of Kyverno")
	folder  = flag.String("kyverno-policies", "testdata/kyverno", "folder with policies, such as those of other people, which TestKyvernoPolicies compares")
)

// requestsPerPolicy is how many requests are about each generated policy.
const requestsPerPolicy = 20

// newComparer starts an engine.
func newComparer(t *testing.T, program string, differences []oracles.Difference) *oracles.Comparer {
	t.Helper()
	if program == "" {
		t.Skip("make migration-oracle builds the engine, and runs this test")
	}
	oracle, err := oracles.StartOracle(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = oracle.Close() }) // the context has ended it
	return &oracles.Comparer{
		Oracle:      oracle,
		Requests:    newRequests(t),
		Differences: differences,
	}
}

func newRequests(t *testing.T) *oracles.Requests {
	t.Helper()
	apis, err := offline.NewAPIs(policy.LatestEngine, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := oracles.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &oracles.Requests{APIs: apis, Objects: objects}
}

// compareRandom compares generated policies until there are n requests.
func compareRandom(t *testing.T, c *oracles.Comparer, next func(number uint64) *oracles.Case) {
	t.Helper()
	start := time.Now()
	found := 0
	for i := *first; c.Count.Requests < *number; i++ {
		made := next(i)
		a := oracles.NewAuthor(*seed, i)
		for _, o := range made.Objects {
			a.Words = append(a.Words, oracles.WordsOf(o)...)
		}
		requests, err := c.Requests.Make(a, made.Kinds, requestsPerPolicy)
		if err != nil {
			t.Fatal(err)
		}
		unlisted, err := c.Compare(t.Context(), made, requests)
		if err != nil {
			t.Fatal(err)
		}
		found += len(unlisted)
		report(t, unlisted, found)
	}
	t.Logf("seed %d: %d unlisted differences in %s", *seed, found, time.Since(start).Round(time.Second))
	logCounts(t, c)
}

// report reports the first disagreement about a policy.
func report(t *testing.T, unlisted []oracles.Disagreement, found int) {
	t.Helper()
	if len(unlisted) == 0 {
		return
	}
	if found-len(unlisted) < *most {
		t.Errorf("disagreement, one of %d about this policy:\n%s", len(unlisted), unlisted[0].Report())
		return
	}
	t.Errorf("disagreement: %s, %s", unlisted[0].Case.Name, unlisted[0].Effect)
}

func logCounts(t *testing.T, c *oracles.Comparer) {
	t.Helper()
	n := c.Count
	t.Logf("%d policies, of which %d are left out and the engine rejects %d; %d requests, of which the source denies %d "+
		"and changes %d; %d panics of the engine", n.Policies, n.LeftOut, n.Invalid, n.Requests, n.Denied, n.Changed, n.Panics)
	for row, times := range n.Known {
		t.Logf("listed: %d times %s", times, row)
	}
	for why, times := range n.Reasons {
		t.Logf("not compared: %d policies: %s", times, why)
	}
}

// TestDocumentedDifferences holds docs/migration/engine-differences.md to the lists.
func TestDocumentedDifferences(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/migration/engine-differences.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	_, tables, _ := strings.Cut(string(text), "\n## Kyverno\n")
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(strings.TrimSpace(cells[1]), "---") {
			continue
		}
		documented[strings.TrimSpace(cells[1])] = true
	}
	delete(documented, "subject") // the head of each table
	listed := map[string]bool{}
	for _, d := range slices.Concat(oracles.KyvernoDifferences(), oracles.GatekeeperDifferences()) {
		if listed[d.Row] = true; !documented[d.Row] {
			t.Errorf("the page has no row %q", d.Row)
		}
	}
	for row := range documented {
		if !listed[row] {
			t.Errorf("the page has a row %q that no list has", row)
		}
	}
	const mostRows = 25
	if len(documented) > mostRows {
		t.Errorf("the page has %d rows, want at most %d: mend a difference", len(documented), mostRows)
	}
}
