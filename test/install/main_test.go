// Package install tests the parts of an installation around the manager: the manifests, the
// self-test, monitoring and uninstalling. Managers run as processes. Everything else is as in
// an installation.
package install

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

var (
	record = flag.String("record", "", "file to write what the dashboard shows to, for its picture")
	plane  *controlplane.ControlPlane
)

const (
	root      = "../.."
	namespace = "ostiary-system"
	deadline  = 3 * time.Minute
)

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	os.Exit(cptest.Main(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { plane = cp }))
}

// world is an installation.
type world struct {
	client.Client
	program  string
	webhook  string // where API servers call
	managers []*controlplane.Running
	metrics  []string // addresses
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{program: filepath.Join(t.TempDir(), "ostiary"), webhook: cptest.FreeAddress()}
	must(t, controlplane.BuildManager(t.Context(), root, w.program))
	scheme := clientgoscheme.Scheme
	must(t, v1alpha1.AddToScheme(scheme))
	var err error
	w.Client, err = client.New(plane.Config(), client.Options{Scheme: scheme})
	must(t, err)
	t.Cleanup(func() { w.stop(t) })
	return w
}

// start runs managers, of which API servers call the first.
func (w *world) start(t *testing.T, n int) {
	t.Helper()
	w.metrics = nil
	for i := range n {
		address := w.webhook
		if i > 0 {
			address = cptest.FreeAddress()
		}
		metrics, health := cptest.FreeAddress(), cptest.FreeAddress()
		running, err := plane.Run(t.Context(), controlplane.Program{
			Name: fmt.Sprintf("ostiary-%d", i), Path: w.program,
			Args: func([]int) []string {
				return w.flags(t, "--webhook-address="+address, "--metrics-address="+metrics, "--health-address="+health)
			},
			Probes: func([]int) []string { return []string{"http://" + health + "/readyz"} },
		})
		must(t, err)
		w.managers = append(w.managers, running)
		w.metrics = append(w.metrics, metrics)
	}
}

func (w *world) stop(t *testing.T) {
	t.Helper()
	for _, running := range w.managers {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	}
	w.managers = nil
}

// task runs the manager's program for something else than serving.
func (w *world) task(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	return run(exec.CommandContext(ctx, w.program, append(args, "--kubeconfig="+plane.Kubeconfig())...))
}

func kubectl(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), plane.Kubectl(), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig(), "KUBECACHEDIR="+plane.Dir())
	return run(command)
}

func newCommand(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), path, args...)
}

func run(command *exec.Cmd) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err = command.Run()
	return out.String(), errs.String(), err
}

func await(t *testing.T) Gomega {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(deadline)
	g.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	return g
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
}
