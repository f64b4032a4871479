//go:build linux

// Command cluster runs a real Kubernetes node on a Debian machine, as root: the
// kubelet, containerd, a bridge for Pods and kube-proxy, with its own control plane.
//
//	cluster up            start a node, and wait until it is ready
//	cluster load-image F  load an image (tar file) onto the node
//	cluster restart P     restart kubelet or containerd
//	cluster down          stop the node, and remove everything that it created
//
// Everything runs in separate mount, PID, network and UTS namespaces. When they end, the
// kernel removes their interfaces, iptables rules, mounts and processes. Outside of them
// are one folder and the control groups of the Pods. The containerd of the machine is not
// used.
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
  load-image FILE    load an image (tar file) onto the node
  restart PROGRAM    restart kubelet or containerd
  down               stop the node, and remove everything that it created
`

// cluster is one cluster on this machine, by name.
type cluster struct {
	name string
	out  io.Writer
}

// home is the parent of the folders of all clusters.
const home = "/var/lib/ostiary-cluster"

func (c cluster) file(elements ...string) string {
	return filepath.Join(append([]string{home, c.name}, elements...)...)
}

// link returns the name of the host's interface to the node: at most 15 bytes.
func (c cluster) link() string { return "ost-" + c.name }

// controlGroup returns the parent of the control groups of Pods.
func (c cluster) controlGroup() string { return "/ostiary-cluster-" + c.name }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Parse returns its errors
	name := flags.String("name", "dev", "name of the cluster, if there are several")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		return nil
	case err != nil:
		return fmt.Errorf("%w: see -help", err)
	case !regexp.MustCompile(`^[a-z0-9]{1,11}$`).MatchString(*name):
		return fmt.Errorf("-name %q: use 1 to 11 lower-case letters and digits", *name)
	}
	return cluster{name: *name, out: out}.command(ctx, flags.Args())
}

func (c cluster) command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("no command: see -help")
	}
	command, args := args[0], args[1:]
	wanted, known := map[string]int{"up": -1, "load-image": 1, "restart": 1, "down": 0, initCommand: 1, superviseCommand: 1}[command]
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
		return c.runInit(args[0])
	default:
		return c.supervise(ctx, args[0])
	}
}
