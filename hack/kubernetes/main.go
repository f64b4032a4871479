// Command kubernetes builds the parts of a Kubernetes control plane from their
// Go modules. Tests, benchmarks and the demo then run with the real programs on a machine
// that has only Go.
//
//	go run . [-out DIR] [names...]
//
// Without names it builds a control plane into bin/k8s of the repository; the
// programs of a node (kubelet, kube-proxy, kube-scheduler) are built when they
// are named. It keeps existing programs of the same version of go.mod and of Go. If
// KUBEBUILDER_ASSETS is set, it uses the programs in that folder and does not build them.
//
// go.mod has one version of Kubernetes. Each other version has its own file:
// GOFLAGS=-modfile=1.37.mod. `make` does so for KUBERNETES=1.37.
//
// To add a command: `go get -tool <import path>` here for each file, and a line in
// commands. To add a version: copy a file, replace the versions of k8s.io/kubernetes
// and its staging modules, and run `go mod tidy -modfile=1.38.mod`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := untilInterrupted(); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func untilInterrupted() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer) error {
	flags := flag.NewFlagSet("kubernetes", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what Parse complains about is returned
	out := flags.String("out", filepath.Join("..", "..", "bin", "k8s"), "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		usage(stdout)
		return nil
	case err != nil:
		return fmt.Errorf("%w: see -help", err)
	}
	wanted, err := selectCommands(flags.Args())
	if err != nil {
		return err
	}
	if assets := getenv(assetsVariable); assets != "" {
		if wanted, err = withoutAssets(wanted, assets, stdout); err != nil {
			return err
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return buildAll(ctx, wanted, *out, stdout)
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "usage: go run . [-out DIR] [names...]\n"+
		"builds the named ones of %s into DIR (default: bin/k8s of the repository)\n"+
		"without names: %s\n", strings.Join(names(commands()), ", "), strings.Join(names(controlPlane()), ", "))
}

// selectCommands returns the commands of these names, a control plane for none.
func selectCommands(wanted []string) ([]command, error) {
	if len(wanted) == 0 {
		return controlPlane(), nil
	}
	all := commands()
	for _, name := range wanted {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("unknown name %q: use %s", name, strings.Join(names(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c command) bool { return !slices.Contains(wanted, c.name) }), nil
}

// buildAll brings every command in dir up to date, one line of progress each.
func buildAll(ctx context.Context, wanted []command, dir string, stdout io.Writer) error {
	versions, err := moduleVersions(ctx, wanted)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, dir, stdout)
	if err != nil {
		return err
	}
	defer unlock()
	for _, c := range wanted {
		want := hostStamp(c, versions[c.module])
		fmt.Fprintf(stdout, "%-24s %-8s ", c.name, want.version)
		if err := bringUpToDate(ctx, c, want, dir, stdout); err != nil {
			fmt.Fprintln(stdout, "failed")
			return err
		}
	}
	return nil
}

func bringUpToDate(ctx context.Context, c command, want stamp, dir string, stdout io.Writer) error {
	target := filepath.Join(dir, c.name)
	if have, err := readStamp(target); err == nil && have == want {
		fmt.Fprintln(stdout, "up to date")
		return nil
	}
	fmt.Fprintf(stdout, "building (about %d min the first time) ... ", c.minutes)
	start := time.Now()
	if err := build(ctx, c, want, target); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "done in %s\n", time.Since(start).Round(time.Second))
	return nil
}
