package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/ostiary/ostiary/test/controlplane"
)

const waitTimeout = "--timeout=60s" // of kubectl wait

var errManagerEnded = errors.New("the manager ended by itself")

// demo is a running control plane and what is shown on it.
type demo struct {
	progress
	cp      *controlplane.ControlPlane
	kubectl kubectl
}

// run gives the demo. However it ends, nothing of it is left.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	d := demo{progress: progress{out: out, start: time.Now()}}
	d.say("Starting a Kubernetes control plane")
	if d.cp, err = controlplane.Start(ctx, controlplane.Options{Dir: o.dir, Log: d}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cp.Stop()) }()
	d.kubectl = kubectl{path: d.cp.Kubectl(), kubeconfig: d.cp.Kubeconfig(), home: filepath.Join(d.cp.Dir(), "kubectl")}
	if err := d.install(ctx); err != nil {
		return err
	}
	manager, err := d.startManager(ctx, o.manager)
	if err != nil {
		return err
	}
	err = d.show(ctx, manager, o.once)
	d.say("Stopping everything")
	return errors.Join(err, manager.Stop())
}

// show does so while the manager lives, and says what its log says if that fails.
func (d demo) show(ctx context.Context, manager *controlplane.Running, once bool) error {
	showing, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-manager.Done():
			end(errManagerEnded)
		case <-showing.Done():
		}
	}()
	err := d.perform(showing)
	if err == nil && !once {
		err = d.stay(showing)
	}
	if err != nil && !errors.Is(err, errManagerEnded) && ctx.Err() == nil { // else its end is reported with the log
		err = fmt.Errorf("%w\nThe manager's log ends with:\n%s", err, manager.LogTail())
	}
	return err
}

func (d demo) install(ctx context.Context) error {
	d.say("Applying config/crd and config/namespace")
	return d.kubectl.do(ctx,
		[]string{"apply", "-k", "config/crd"},
		[]string{"apply", "-k", "config/namespace"},
		[]string{"wait", "--for=condition=Established", "crd/webhookpolicies.admission.ostiary.dev", waitTimeout},
	)
}

func (d demo) startManager(ctx context.Context, path string) (*controlplane.Running, error) {
	d.say("Starting the manager, outside of the cluster")
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("finding the manager: %w", err)
	}
	return d.cp.Run(ctx, controlplane.Program{
		Name: "ostiary", Path: path, Ports: 2,
		Args: func(ports []int) []string {
			webhook := fmt.Sprintf("127.0.0.1:%d", ports[0])
			return []string{
				"--kubeconfig=" + d.cp.Kubeconfig(),
				"--webhook-address=" + webhook, "--webhook-url=https://" + webhook,
				fmt.Sprintf("--health-address=127.0.0.1:%d", ports[1]), "--metrics-address=0",
				"--log-format=console",
				"--drain-min=100ms", // no other replica takes over
			}
		},
		Probes: func(ports []int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[1])} },
	})
}

// perform puts the samples into force and shows what they do.
func (d demo) perform(ctx context.Context) error {
	d.say("Applying config/samples, and waiting until every policy is Ready")
	err := d.kubectl.do(ctx,
		[]string{"apply", "-k", "config/samples"},
		[]string{"wait", "--for=condition=Ready", "webhookpolicies", "--all", waitTimeout},
	)
	if err != nil {
		return err
	}
	for _, s := range shows() {
		d.say("%s", s.title)
		if err := s.await(ctx, d.kubectl); err != nil {
			return err
		}
		if err := s.perform(ctx, d.kubectl, d.out); err != nil {
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

The manager's log is %s
`, d.kubectl.kubeconfig, d.kubectl.home, d.kubectl.path, d.cp.LogFile("ostiary"))
	d.say("Ready. Ctrl-C stops everything and removes it")
	<-ctx.Done()
	if err := context.Cause(ctx); errors.Is(err, errManagerEnded) {
		return err
	}
	return nil
}
