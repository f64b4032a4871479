package oracles_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/test/oracles"
)

// TestKyverno compares generated policies with Kyverno's engine.
func TestKyverno(t *testing.T) {
	c := newComparer(t, *kyverno, oracles.KyvernoDifferences())
	compareRandom(t, c, func(number uint64) *oracles.Case { return oracles.KyvernoCase(*seed, number) })
}

// TestKyvernoCases compares the policies of the converter's tests with Kyverno's engine: with the
// objects of the cases, and with objects without each of their fields in turn.
func TestKyvernoCases(t *testing.T) {
	c := newComparer(t, *kyverno, oracles.KyvernoDifferences())
	cases, err := oracles.TableCases(t.Context(), root+"/internal/migrate/kyverno/classic/testdata")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, pattern := range []string{
		root + "/internal/cli/convert/testdata/cases/kyverno*/in/*.yaml",
		root + "/internal/cli/convert/testdata/cases/verify/in/rules.yaml",
		root + "/internal/cli/convert/testdata/cases/verify/in/policies.yaml",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	others, err := oracles.PolicyFiles(t.Context(), files...)
	if err != nil {
		t.Fatal(err)
	}
	compareWritten(t, c, append(cases, others...))
}

// TestKyvernoPolicies compares the policies of a folder with Kyverno's engine: of that one of policies that were converted
// wrongly once, unless another one is named.
func TestKyvernoPolicies(t *testing.T) {
	c := newComparer(t, *kyverno, oracles.KyvernoDifferences())
	cases, unread, err := oracles.PolicyFolder(t.Context(), *folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range unread {
		t.Logf("not read: %v", why)
	}
	if len(cases) == 0 {
		t.Fatalf("%s has no policy that can be read", *folder)
	}
	compareWritten(t, c, cases)
}

// compareWritten compares written policies, by requests about their examples and random ones.
func compareWritten(t *testing.T, c *oracles.Comparer, cases []*oracles.Case) {
	t.Helper()
	found := 0
	for i, made := range cases {
		if !strings.Contains(made.Name, *only) {
			continue
		}
		a := oracles.NewAuthor(*seed, uint64(i))
		for _, o := range made.Objects {
			a.Words = append(a.Words, oracles.WordsOf(o)...)
		}
		requests, err := c.Requests.About(a, made)
		if err != nil {
			t.Fatal(err)
		}
		unlisted, err := c.Compare(t.Context(), made, requests)
		if err != nil {
			t.Error(err)
			continue
		}
		found += len(unlisted)
		report(t, unlisted, found)
	}
	logCounts(t, c)
}

// TestGeneratedPoliciesConvert converts generated policies without an engine: Ostiary accepts and
// evaluates the results, and enough of the policies are not left out for a comparison.
func TestGeneratedPoliciesConvert(t *testing.T) {
	const policies = 60
	requests, seen := newRequests(t), map[string]int{}
	for i := range uint64(policies) {
		made := oracles.KyvernoCase(1, i)
		if diff := cmp.Diff(made, oracles.KyvernoCase(1, i)); diff != "" {
			t.Fatalf("the same seed and number make another policy (-first +second):\n%s", diff)
		}
		converted, err := oracles.ConvertCase(t.Context(), requests.APIs, made)
		if err != nil {
			t.Fatalf("%s: %v", made.Name, err)
		}
		if len(converted.LeftOut) > 0 {
			seen["left out"]++
			for _, why := range converted.LeftOut {
				if strings.HasPrefix(why, oracles.Rejected) {
					t.Errorf("%s: %s", made.Name, why)
				}
			}
			continue
		}
		about, err := requests.Make(oracles.NewAuthor(1, i), made.Kinds, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range about {
			d, err := converted.Decide(t.Context(), r)
			if err != nil {
				t.Fatalf("%s: %v", made.Name, err)
			}
			seen[map[bool]string{true: "allowed", false: "denied"}[d.Allowed]]++
		}
	}
	t.Log(seen)
	if seen["left out"] > policies/2 || seen["allowed"] < policies || seen["denied"] < policies/2 {
		t.Errorf("%v: the generator does not exercise the converter", seen)
	}
}
