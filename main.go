// Command ostiary runs the manager, which registers the webhooks of
// WebhookPolicies, rotates their certificates and answers admission calls. Its
// subcommands are run by Jobs from the same image.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
	"github.com/ostiary/ostiary/internal/manager"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/registration"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ostiary: "+registration.Conceal(err.Error()))
		os.Exit(1)
	}
}

func command(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 {
		switch args[0] {
		case "self-test":
			return selfTest(ctx, args[1:])
		case "uninstall":
			return uninstallManager(ctx, args[1:])
		}
	}
	return serve(ctx, args)
}

// serve runs the manager.
func serve(ctx context.Context, args []string) error {
	var o options.Options
	flags := pflag.NewFlagSet("ostiary", pflag.ContinueOnError)
	o.Bind(flags)
	showVersion := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: every setting is a flag, see --help", flags.Arg(0))
	case *showVersion:
		fmt.Println(version)
		return nil
	}
	if err := o.Validate(); err != nil {
		return err
	}
	log, err := manager.NewLogger(o)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	manager.LimitMemory(memlimit.FromCgroup, log)
	return manager.Run(ctx, o, version, log)
}

// version is set by the linker.
var version = "dev"

// selfTest applies a policy and checks that it denies a request.
func selfTest(ctx context.Context, args []string) error {
	flags := newCommandFlags("self-test")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait until the policy denies a request")
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

// uninstallManager stops the manager and deletes its webhook configurations.
func uninstallManager(ctx context.Context, args []string) error {
	flags := newCommandFlags("uninstall")
	o := uninstall.Options{}
	flags.StringVar(&o.Namespace, "namespace", options.DefaultNamespace, "namespace of the manager")
	flags.StringVar(&o.Deployment, "deployment", "ostiary", "Deployment of the manager; it is scaled to 0")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait until the manager has stopped")
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
	fmt.Printf("Deployment %s/%s is scaled to 0 and %d webhook configurations are deleted. WebhookPolicies are kept but not enforced\n", o.Namespace, o.Deployment, removed)
	return nil
}

// commandFlags are the flags of a subcommand.
type commandFlags struct {
	*pflag.FlagSet
	kubeconfig string
}

func newCommandFlags(name string) *commandFlags {
	f := &commandFlags{FlagSet: pflag.NewFlagSet("ostiary "+name, pflag.ContinueOnError)}
	f.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file to use outside of a cluster; default: $KUBECONFIG, then the pod's own account")
	return f
}

// parse returns nil and no error if the user asked for help.
func (f *commandFlags) parse(args []string) (*rest.Config, error) {
	switch err := f.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil, nil
	case err != nil:
		return nil, err
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see --help", f.Arg(0))
	}
	ctrl.SetLogger(logr.Discard()) // the error says everything
	klog.SetLogger(logr.Discard())
	return manager.RESTConfig(f.kubeconfig, version)
}
