package oracles_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/ostiary/ostiary/test/oracles"
)

var (
	gatekeeper = flag.String("gatekeeper", "", "program with the engines of Gatekeeper")
	library    = flag.String("gatekeeper-library", "", "folder of Gatekeeper's public library")
)

func newGatekeeperComparer(t *testing.T) *oracles.Comparer {
	t.Helper()
	c := newComparer(t, *gatekeeper, oracles.GatekeeperDifferences())
	objects, err := oracles.GatekeeperObjects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Requests.Objects = objects
	return c
}

// TestGatekeeper compares generated mutators, and the match fields of constraints, with Gatekeeper's engines.
func TestGatekeeper(t *testing.T) {
	c := newGatekeeperComparer(t)
	compareRandom(t, c, func(number uint64) *oracles.Case { return oracles.GatekeeperCase(*seed, number) })
}

// TestGatekeeperLibrary compares generated constraints of the templates of the public library with their Rego.
// Each template has a tenth of the requests.
func TestGatekeeperLibrary(t *testing.T) {
	if *library == "" {
		t.Skip("the templates of the public library are not in this repository: name a folder with them")
	}
	templates, err := oracles.PublicLibrary(t.Context(), *library)
	if err != nil {
		t.Fatal(err)
	}
	c := newGatekeeperComparer(t)
	// API servers generate names before they call validating webhooks.
	c.Requests.Objects["Pod"] = slices.DeleteFunc(c.Requests.Objects["Pod"], func(o map[string]any) bool {
		metadata, _ := o["metadata"].(map[string]any)
		return metadata["name"] == nil
	})
	of := *number
	*number = of / 10
	t.Cleanup(func() { *number = of })
	for _, template := range templates {
		t.Run(template.Name, func(t *testing.T) {
			c.Count = oracles.Count{}
			compareRandom(
				t,
				c,
				func(number uint64) *oracles.Case { return oracles.PublicCase(*seed, number, template) },
			)
			if n := c.Count; n.LeftOut == n.Policies || n.Denied == 0 {
				t.Errorf("nothing is compared: %+v", n)
			}
		})
	}
}
