//go:build e2e

package e2e

import (
	"testing"
)

// guardedHere is the namespace that the load is in.
const guardedHere = "e2e-guarded"

// TestOstiary is one life of a cluster: the parts build on each other, and run in
// this order.
func TestOstiary(t *testing.T) {
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	w.makeNamespace(t, guardedHere, map[string]string{"e2e": "guarded"})
	var granted []permission
	t.Run("kustomize", func(t *testing.T) {
		w.applyManifests(t)
		w.guard(t)
		granted = w.granted(t)
		t.Run("self-test", w.selfTest)
		t.Run("pod security is enforced", w.wantRestricted)
		t.Run("samples", w.testSamples)
		t.Run("existing workloads", w.testExistingWorkloads)
		t.Run("metrics", w.testMetrics)
		t.Run("under load", w.testOperations)
		// Here, where the definition is minutes old: see below.
		t.Run("uninstall: the operator is dead", func(t *testing.T) {
			w.kill(t)
			w.uninstall(t, w.deleteAsDocumented)
		})
	})
	t.Run("Helm", func(t *testing.T) {
		t.Run("values that are wrong", w.testBadValues)
		w.installChart(t)
		t.Run("the first policy of the README", w.testFirstPolicy)
		if !testing.Short() {
			t.Run("under load", w.testChartUpgrade)
		}
		t.Run("uninstall: the chart first", func(t *testing.T) { w.uninstall(t, w.uninstallChart) })
	})
	t.Run("release", w.testRelease)
	t.Run("uninstall: the namespace first", func(t *testing.T) {
		t.Run("highly available", w.installProduction)
		w.guard(t)
		w.uninstall(t, func(t *testing.T) { w.do(t, "", "delete", "namespace", namespace, "--wait=false") })
	})
	// The definition has come and gone by now, more often than every 30 seconds, when the
	// garbage collector looks what there is: it may not know it, and Ostiary has to do alone.
	t.Run("uninstall: the definition of policies first", func(t *testing.T) {
		t.Run("the documents' commands install it", w.installAsDocumented)
		w.guard(t)
		w.uninstall(t, w.deleteDefinition)
	})
	t.Run("permissions", func(t *testing.T) { w.testPermissions(t, granted) })
}
