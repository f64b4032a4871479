package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/selftest"
	"github.com/ostiary/ostiary/controllers/uninstall"
	"github.com/ostiary/ostiary/internal/options"
)

// task is what the program does instead of serving, by its name; nil if that is
// no task. Jobs run them from the manager's image, in which there is nothing else.
func task(name string) func(context.Context, []string) error {
	switch name {
	case "self-test":
		return selfTest
	case "withdraw":
		return withdraw
	}
	return nil
}

// selfTest proves that a policy refuses a request.
func selfTest(ctx context.Context, args []string) error {
	flags := newTaskFlags("self-test")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait for the proof")
	config, err := flags.parse(args)
	if config == nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("adding to the scheme: %w", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	report, err := selftest.Run(ctx, c)
	if err != nil {
		return err
	}
	fmt.Println(report)
	return nil
}

// withdraw takes back everything that is registered with API servers.
func withdraw(ctx context.Context, args []string) error {
	flags := newTaskFlags("withdraw")
	o := uninstall.Options{}
	flags.StringVar(&o.Namespace, "namespace", options.DefaultNamespace, "Ostiary's own namespace")
	flags.StringVar(&o.Deployment, "deployment", "ostiary", "Deployment of the manager, which is scaled to 0")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait for the manager to end")
	config, err := flags.parse(args)
	if config == nil {
		return err
	}
	if o.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	removed, err := uninstall.Run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("Ostiary is withdrawn: its Deployment is scaled to 0, and %d webhook configurations are deleted. Policies are kept and not in force\n", removed)
	return nil
}

// taskFlags are those of a task.
type taskFlags struct {
	*pflag.FlagSet
	kubeconfig string
}

func newTaskFlags(name string) *taskFlags {
	f := &taskFlags{FlagSet: pflag.NewFlagSet("ostiary "+name, pflag.ContinueOnError)}
	f.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file to use outside of a cluster; default: $KUBECONFIG, then the pod's own account")
	return f
}

// parse gives no configuration where there is nothing to do.
func (f *taskFlags) parse(args []string) (*rest.Config, error) {
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil, nil
	case err != nil:
		return nil, err
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see --help", f.Arg(0))
	}
	ctrl.SetLogger(logr.Discard()) // what matters is in the error
	klog.SetLogger(logr.Discard())
	return restConfig(f.kubeconfig)
}
