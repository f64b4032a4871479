// Package cptest runs a control plane for the length of a test, or of all tests of a package.
package cptest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/ostiary/ostiary/test/controlplane"
)

// Run starts a control plane that is stopped at the end of the test. A failed
// test shows the end of the components' logs.
func Run(t testing.TB, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	if o.Log == nil {
		o.Log = t.Output()
	}
	cp, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cp.LogTails())
		}
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// Runner runs tests and returns the exit code, as *testing.M does.
type Runner interface{ Run() int }

// Main is for TestMain: it starts one control plane for all tests of a package,
// hands it to use, runs the tests, stops it and returns the exit code.
//
//	func TestMain(m *testing.M) {
//		os.Exit(cptest.Main(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { config = cp.Config() }))
//	}
func Main(m Runner, o controlplane.Options, use func(*controlplane.ControlPlane)) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cp, err := controlplane.Start(ctx, o)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(cp)
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, cp.LogTails())
	}
	if err := cp.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
