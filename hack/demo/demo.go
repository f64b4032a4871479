package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/manager"
)

const waitTimeout = "--timeout=60s" // of kubectl wait

var errManagerEnded = errors.New("the manager exited unexpectedly")

// demo is a running control plane with Ostiary.
type demo struct {
	progress
	cp      *controlplane.ControlPlane
	kubectl kubectl
	metrics string // URL
}

// run runs the demo, and removes everything that it created.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	d := demo{progress: newProgress(out)}
	d.printf("Starting a Kubernetes control plane")
	if d.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: o.dir, Log: d, Audit: true}); err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, d.cp.Stop()) }()
	d.kubectl = kubectl{path: d.cp.Kubectl(), plugin: o.cli, kubeconfig: d.cp.Kubeconfig(), home: filepath.Join(d.cp.Dir(), "kubectl")}
	if err := d.install(ctx); err != nil {
		return err
	}
	running, err := d.startManager(ctx, o.manager)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	d.metrics = manager.MetricsURL(running)
	err = d.runWith(ctx, running, o.once)
	d.printf("Stopping everything")
	return errors.Join(err, running.Stop())
}

// unlessEnded returns err, or only the cause if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// runWith runs the steps, and waits for Ctrl-C unless once is set. It returns an error with
// the end of the manager's log if a step fails, and an error if the manager exits.
func (d demo) runWith(ctx context.Context, running *controlplane.Running, once bool) error {
	stepCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-running.Done():
			end(errManagerEnded)
		case <-stepCtx.Done():
		}
	}()
	err := d.runSteps(stepCtx)
	if err == nil {
		fmt.Fprint(d.out, nextSteps)
	}
	if err == nil && !once {
		err = d.waitForInterrupt(stepCtx)
	}
	if err != nil && !errors.Is(err, errManagerEnded) && ctx.Err() == nil { // errManagerEnded comes with the log
		err = fmt.Errorf("%w\nThe manager's log ends with:\n%s", err, running.LogTail())
	}
	return err
}

func (d demo) install(ctx context.Context) error {
	d.printf("Applying config/crd, config/namespace and config/rbac")
	return d.kubectl.do(ctx,
		[]string{"apply", "-k", "config/crd"},
		[]string{"apply", "-k", "config/namespace"},
		[]string{"apply", "-k", "config/rbac"},
		[]string{"wait", "--for=condition=Established", "crd/webhookpolicies.admission.ostiary.dev", waitTimeout},
	)
}

func (d demo) startManager(ctx context.Context, path string) (*controlplane.Running, error) {
	d.printf("Starting the manager outside of the cluster, with the permissions of its ServiceAccount")
	kubeconfig := filepath.Join(d.cp.Dir(), "ostiary.kubeconfig")
	if err := d.cp.WriteKubeconfig(kubeconfig, "system:serviceaccount:ostiary-system:ostiary"); err != nil {
		return nil, err
	}
	return manager.Start(ctx, d.cp, manager.Options{Path: path, Kubeconfig: kubeconfig, Args: []string{
		"--log-format=console",
		"--drain-max=100ms", // the API server keeps its idle connections for longer than a user waits
	}})
}

// runSteps applies the samples and runs the steps.
func (d demo) runSteps(ctx context.Context) error {
	d.printf("Creating a Pod, and then the policies of config/samples; waiting until those without an external webhook are Ready")
	err := d.kubectl.do(ctx,
		[]string{"run", "before", "--image=nginx:1.29"},
		[]string{"apply", "-k", "config/samples"},
		[]string{"wait", "--for=condition=Ready", "webhookpolicies", "--selector=!example.com/needs", waitTimeout},
	)
	if err != nil {
		return err
	}
	for _, s := range steps() {
		d.printf("%s", s.title)
		if err := s.setAction(ctx, d.kubectl, d.progress); err != nil {
			return err
		}
		if err := s.await(ctx, d.kubectl); err != nil {
			return err
		}
		if err := s.run(ctx, d.kubectl, d.progress, d.cp.AuditLog(0)); err != nil {
			return err
		}
	}
	return nil
}

const nextSteps = `Next steps:

  docs/tutorials/first-policy.md        install Ostiary on a cluster and write a policy
  docs/tutorials/idea-to-ci.md          test policies without a cluster
  docs/tutorials/enforcing-safely.md    bring a policy to a cluster that others use
  docs/cookbook, docs/policies          policies to copy

`

// waitForInterrupt prints commands to try, and waits until ctx ends.
func (d demo) waitForInterrupt(ctx context.Context) error {
	fmt.Fprintf(d.out, `The manager's log is %s
The audit log of the API server is %s
The metrics of the manager are %s

In another terminal, enter

  export KUBECONFIG=%q KUBECACHEDIR=%q
  export PATH=%q:$PATH

and try three commands:

`, d.cp.LogFile(manager.Name), d.cp.AuditLog(0), d.metrics, d.kubectl.kubeconfig, d.kubectl.home, d.kubectl.folders())
	for _, command := range []string{
		"kubectl create deployment shop --image=nginx:1.29 --replicas=9",
		"kubectl ostiary explain pod/before",
		"kubectl ostiary violations --heat-map",
	} {
		fmt.Fprintf(d.out, "  %s\n", output.Paint(d.style, output.Cyan, command))
	}
	fmt.Fprintln(d.out)
	d.printf("Ready. Ctrl-C stops everything and removes it")
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, errManagerEnded) {
		return err
	}
	return nil
}
