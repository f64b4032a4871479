package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/manager"
)

const waitTimeout = "--timeout=60s" // of kubectl wait

var errManagerEnded = errors.New("the manager ended by itself")

// demo is a running control plane and what is shown on it.
type demo struct {
	progress
	cp      *controlplane.ControlPlane
	kubectl kubectl
	metrics string // URL
}

// run gives the demo. However it ends, nothing of it is left.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	d := demo{progress: progress{out: out, start: time.Now()}}
	d.say("Starting a Kubernetes control plane")
	if d.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: o.dir, Log: d, Audit: true}); err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, d.cp.Stop()) }()
	d.kubectl = kubectl{path: d.cp.Kubectl(), kubeconfig: d.cp.Kubeconfig(), home: filepath.Join(d.cp.Dir(), "kubectl")}
	if err := d.install(ctx); err != nil {
		return err
	}
	running, err := d.startManager(ctx, o.manager)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	d.metrics = manager.MetricsURL(running)
	err = d.show(ctx, running, o.once)
	d.say("Stopping everything")
	return errors.Join(err, running.Stop())
}

// unlessEnded returns err, or just why ctx ended: no log has to explain that.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// show does so while the manager lives, and says what its log says if that fails.
func (d demo) show(ctx context.Context, running *controlplane.Running, once bool) error {
	showing, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-running.Done():
			end(errManagerEnded)
		case <-showing.Done():
		}
	}()
	err := d.perform(showing)
	if err == nil && !once {
		err = d.stay(showing)
	}
	if err != nil && !errors.Is(err, errManagerEnded) && ctx.Err() == nil { // else its end is reported with the log
		err = fmt.Errorf("%w\nThe manager's log ends with:\n%s", err, running.LogTail())
	}
	return err
}

func (d demo) install(ctx context.Context) error {
	d.say("Applying config/crd, config/namespace and config/rbac")
	return d.kubectl.do(ctx,
		[]string{"apply", "-k", "config/crd"},
		[]string{"apply", "-k", "config/namespace"},
		[]string{"apply", "-k", "config/rbac"},
		[]string{"wait", "--for=condition=Established", "crd/webhookpolicies.admission.ostiary.dev", waitTimeout},
	)
}

func (d demo) startManager(ctx context.Context, path string) (*controlplane.Running, error) {
	d.say("Starting the manager outside of the cluster, with the permissions of its ServiceAccount")
	kubeconfig := filepath.Join(d.cp.Dir(), "ostiary.kubeconfig")
	if err := d.cp.WriteKubeconfig(kubeconfig, "system:serviceaccount:ostiary-system:ostiary"); err != nil {
		return nil, err
	}
	return manager.Start(ctx, d.cp, manager.Options{Path: path, Kubeconfig: kubeconfig, Args: []string{
		"--log-format=console",
		"--drain-max=100ms", // the API server keeps its idle connections for longer than a user waits
	}})
}

// perform puts the samples into force and shows what they do.
func (d demo) perform(ctx context.Context) error {
	d.say("Applying config/samples, and waiting until every policy is Ready, except those that need an external webhook")
	err := d.kubectl.do(ctx,
		[]string{"apply", "-k", "config/samples"},
		[]string{"wait", "--for=condition=Ready", "webhookpolicies", "--selector=!example.com/needs", waitTimeout},
	)
	if err != nil {
		return err
	}
	for _, s := range shows() {
		d.say("%s", s.title)
		if err := s.prepare(ctx, d.kubectl, d.out); err != nil {
			return err
		}
		if err := s.await(ctx, d.kubectl); err != nil {
			return err
		}
		if err := s.perform(ctx, d.kubectl, d.out, d.cp.AuditLog(0)); err != nil {
			return err
		}
	}
	return nil
}

// stay keeps everything running until its user has enough, which is no error.
func (d demo) stay(ctx context.Context) error {
	fmt.Fprintf(d.out, `To try more, in another terminal:

  export KUBECONFIG=%q KUBECACHEDIR=%q
  alias kubectl=%q
  kubectl get webhookpolicies
  kubectl create deployment shop --image=nginx:1.29 --replicas=9
  kubectl explain webhookpolicy.spec
  curl -s %s | grep ^ostiary_policy

The manager's log is %s
The audit log of the API server is %s
`, d.kubectl.kubeconfig, d.kubectl.home, d.kubectl.path, d.metrics, d.cp.LogFile(manager.Name), d.cp.AuditLog(0))
	d.say("Ready. Ctrl-C stops everything and removes it")
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, errManagerEnded) {
		return err
	}
	return nil
}
