//go:build linux

// Command cluster runs a real Kubernetes node on a Debian machine, as root: the
// kubelet, containerd, a bridge for pods and kube-proxy, beside a control plane
// of its own.
//
//	cluster up            start it, and wait until the node is ready
//	cluster load-image F  give an image, a tar file, to the node
//	cluster restart P     restart kubelet or containerd, as an administrator would
//	cluster down          end it, and leave nothing behind
//
// Everything runs in mount, process, network and host name namespaces that are
// made for it, so that interfaces, iptables rules, mounts and processes go with
// them. What else there is are one folder and the control groups of the pods.
// The system's own containerd is not used, nor touched.
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
	"regexp"
	"syscall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

const usage = `usage: cluster [-name NAME] COMMAND
  up [-pause FILE]   start a node, and wait until it is ready
  load-image FILE    give an image, a tar file, to the node
  restart PROGRAM    restart kubelet or containerd
  down               end it, and leave nothing behind
`

// cluster is where one cluster is.
type cluster struct {
	name string
	out  io.Writer
}

// home is what all clusters of this machine are in.
const home = "/var/lib/ostiary-cluster"

func (c cluster) file(elements ...string) string {
	return filepath.Join(append([]string{home, c.name}, elements...)...)
}

// link is the interface of the host that leads to the node. The kernel allows 15 letters.
func (c cluster) link() string { return "ost-" + c.name }

// controlGroup is above those of the pods.
func (c cluster) controlGroup() string { return "/ostiary-cluster-" + c.name }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what Parse complains about is returned
	name := flags.String("name", "dev", "name of the cluster, if there are several")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return nil
	case err != nil:
		return fmt.Errorf("%w: see -help", err)
	case !regexp.MustCompile(`^[a-z0-9]{1,11}$`).MatchString(*name):
		return fmt.Errorf("-name %q: use 1 to 11 small letters and digits", *name)
	}
	return cluster{name: *name, out: out}.command(ctx, flags.Args())
}

func (c cluster) command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command: see -help")
	}
	command, args := args[0], args[1:]
	wanted, known := map[string]int{"up": -1, "load-image": 1, "restart": 1, "down": 0, initCommand: 1, keepCommand: 1}[command]
	switch {
	case !known:
		return fmt.Errorf("unknown command %q: see -help", command)
	case wanted >= 0 && len(args) != wanted:
		return fmt.Errorf("%s takes %d arguments, not %d: see -help", command, wanted, len(args))
	case os.Geteuid() != 0:
		return errors.New("a node needs namespaces, mounts and control groups: run this as root")
	}
	switch command {
	case "up":
		return c.up(ctx, args)
	case "load-image":
		return c.loadImage(ctx, args[0])
	case "restart":
		return c.restart(ctx, args[0])
	case "down":
		return c.down(ctx)
	case initCommand:
		return c.beInit(args[0])
	default:
		return c.keep(ctx, args[0])
	}
}
