// Command ostiary is the manager: it registers the webhooks that WebhookPolicies
// ask for, keeps their certificates, and answers the admission calls.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

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
	if len(args) > 0 {
		if run := task(args[0]); run != nil {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, args[1:])
		}
	}
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
	log, err := newLogger(o)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	limitMemory(memlimit.FromCgroup, log)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o, log)
}

// version is set by the linker.
var version = "dev"
