package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// process is a manager that was started.
type process struct {
	webhook, metrics, health string // addresses
	replica                  string // identity

	reviews bool // policies, when they are applied

	cmd  *exec.Cmd
	log  string // file
	done chan struct{}
	err  error // once done is closed
}

// manager gives the shared manager, running, ready and leading.
func (c *cluster) manager(t *testing.T) *process {
	t.Helper()
	if c.shared == nil || c.shared.ended() {
		c.releaseLease(t)
		c.shared = c.start(t, c.webhook)
	}
	m := c.shared
	c.explain(t, m)
	m.awaitReady(t)
	c.awaitLeader(t)
	return m
}

// reviewing gives the shared manager with or without the webhook for policies.
// Without, what cannot be enforced can be stored, as while no manager runs.
func (c *cluster) reviewing(t *testing.T, on bool) *process {
	t.Helper()
	if c.shared == nil || c.shared.ended() || c.shared.reviews != on {
		c.restarted(t, fmt.Sprintf("%s=%t", reviewFlag, on))
	}
	m := c.manager(t)
	await(t).Eventually(func() error {
		err := c.Create(t.Context(), newPolicy("reviewed", "nowhere", saying("nonsense")), client.DryRunAll)
		if apierrors.IsInvalid(err) != on {
			return fmt.Errorf("policies are reviewed: %t; want %t: %w", !on, on, err)
		}
		return nil
	}).Should(Succeed())
	return m
}

const reviewFlag = "--policy-webhook"

// restarted gives the shared manager started anew, and perhaps not ready yet. It
// reviews policies as the one before did, unless a flag says otherwise. One that differs
// from what other tests expect ends with the test: the next one starts another.
func (c *cluster) restarted(t *testing.T, flags ...string) *process {
	t.Helper()
	if c.shared != nil {
		flags = append([]string{fmt.Sprintf("%s=%t", reviewFlag, c.shared.reviews)}, flags...)
		c.shared.kill()
	}
	c.releaseLease(t)
	m := c.start(t, c.webhook, flags...)
	c.shared = m
	c.explain(t, m)
	if !m.reviews || slices.ContainsFunc(flags, func(f string) bool { return !strings.HasPrefix(f, reviewFlag) }) {
		t.Cleanup(func() {
			if m.kill(); c.shared == m {
				c.shared = nil
			}
		})
	}
	return m
}

// start starts a manager that answers on address. One that is started again at
// the address is the same replica.
func (c *cluster) start(t *testing.T, address string, flags ...string) *process {
	t.Helper()
	return c.startAs(t, "manager-"+strings.NewReplacer(".", "-", ":", "-").Replace(address), address, flags...)
}

// startAs starts a manager as a replica with an identity.
func (c *cluster) startAs(t *testing.T, replica, address string, flags ...string) *process {
	t.Helper()
	m := &process{
		webhook: address,
		metrics: cptest.FreeAddress(),
		health:  cptest.FreeAddress(),
		replica: replica,
		done:    make(chan struct{}),
		reviews: true,
	}
	for _, flag := range flags {
		if value, ok := strings.CutPrefix(flag, reviewFlag+"="); ok {
			m.reviews = value == "true"
		}
	}
	out, err := os.CreateTemp(c.dir, "manager-*.log")
	must(t, err)
	defer out.Close()
	m.log = out.Name()
	m.cmd = exec.Command(c.program, append([]string{
		"--kubeconfig=" + c.kubeconfig,
		"--namespace=" + systemNamespace,
		"--webhook-url=https://" + c.webhook,
		"--webhook-address=" + address,
		"--metrics-address=" + m.metrics, "--metrics-auth=false",
		"--health-address=" + m.health,
		"--drain-min=100ms",
		"--audit-interval=0", // its tests enable the audit; others count writes of statuses
		"--permitted-backend-addresses=127.0.0.0/8",
	}, flags...)...)
	m.cmd.Env = append(os.Environ(), "POD_NAME="+m.replica)
	m.cmd.Stdout, m.cmd.Stderr = out, out
	m.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the child ends with the thread that started it
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.err = m.cmd.Wait()
			close(m.done)
		}
	}()
	must(t, <-started)
	return m
}

// explain has a failed test show the end of the manager's log, and a race that
// the manager reports fail the test.
func (c *cluster) explain(t *testing.T, m *process) {
	t.Cleanup(func() {
		log, err := m.output()
		if err != nil {
			t.Error(err)
		}
		for _, sign := range []string{"WARNING: DATA RACE", "\npanic: "} {
			if strings.Contains(log, sign) {
				t.Errorf("the manager's log has %q", sign)
			}
		}
		if t.Failed() {
			t.Logf("the log of manager %s ends with:\n%s", filepath.Base(m.log), log[max(0, len(log)-8<<10):])
		}
	})
}

// output is all that the manager has logged.
func (m *process) output() (string, error) {
	log, err := os.ReadFile(m.log)
	return string(log), err
}

func (m *process) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// kill ends the manager as a crash would.
func (m *process) kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
}

// terminate asks the manager to end.
func (m *process) terminate(t *testing.T) {
	t.Helper()
	must(t, m.cmd.Process.Signal(syscall.SIGTERM))
}

// get reads a URL of the manager over HTTP.
func (m *process) get(ctx context.Context, address, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// ready is nil when the manager says that it is.
func (m *process) ready(ctx context.Context) error {
	if m.ended() {
		return fmt.Errorf("the manager has ended: %w", m.err)
	}
	code, body, err := m.get(ctx, m.health, "/readyz?verbose")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("not ready: %d: %s", code, body)
	}
	return err
}

func (m *process) awaitReady(t *testing.T) {
	t.Helper()
	await(t).Eventually(func(g Gomega) {
		if m.ended() {
			StopTrying("the manager has ended").Wrap(errors.Join(m.err)).Now()
		}
		g.Expect(m.ready(t.Context())).To(Succeed())
	}).Should(Succeed())
}

// series reads one value of the manager's metrics: the name with its labels as
// they are printed. Absent is 0.
func (m *process) series(t *testing.T, name string) float64 {
	t.Helper()
	_, text, err := m.get(t.Context(), m.metrics, "/metrics")
	must(t, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			must(t, err)
			return number
		}
	}
	return 0
}

// another gives a further manager beside the shared one, running and ready.
func (c *cluster) another(t *testing.T, flags ...string) *process {
	t.Helper()
	m := c.startAnother(t, flags...)
	m.awaitReady(t)
	return m
}

// startAnother starts a further manager, which ends with the test: a Lease that is left
// would have every later leader wait for it.
func (c *cluster) startAnother(t *testing.T, flags ...string) *process {
	t.Helper()
	m := c.start(t, cptest.FreeAddress(), flags...)
	c.explain(t, m)
	t.Cleanup(func() { c.end(m) })
	return m
}

// end ends a manager, together with what Kubernetes would remove with its Pod.
func (c *cluster) end(m *process) {
	m.kill()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: replicas.LeaseName(m.replica)}}
	_ = c.Delete(context.Background(), lease)
}

const leaseName = "ostiary-leader"

func (c *cluster) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, c.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: leaseName}, lease)
}

// releaseLease takes the lease from a manager that was killed, so that the next need
// not wait until it runs out.
func (c *cluster) releaseLease(t *testing.T) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: leaseName}}
	must(t, client.IgnoreNotFound(c.Delete(t.Context(), lease)))
}

func (c *cluster) awaitLeader(t *testing.T) string {
	t.Helper()
	var holder string
	await(t).Eventually(func() error {
		lease, err := c.lease(t.Context())
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("no replica leads")
		}
		holder = *lease.Spec.HolderIdentity
		return nil
	}).Should(Succeed())
	return holder
}
