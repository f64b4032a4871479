//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ostiary/ostiary/test/controlplane"
)

// Files in the folder of a cluster.
const (
	lockFile       = "lock"
	pidFile        = "pid"
	readyFile      = "ready"
	supervisorLog  = "supervisor.log"
	kubeconfigFile = "kubeconfig"
	auditFile      = "audit.json"
	socketFile     = "containerd.sock"
	controlFile    = "control.sock"
	settingsFile   = "kernel-settings.json"
	madeFile       = "made-folders.json"
)

// kubeletFolder is the folder in which the kubelet always has the sockets of plugins,
// independently of --root-dir.
const kubeletFolder = "/var/lib/kubelet"

// ownFolders are folders that programs always use. The node mounts its own folders there.
func ownFolders() []string { return []string{kubeletFolder, "/var/lib/cni"} }

const upTimeout = 10 * time.Minute // ordinarily half a minute

// nodePrograms are the programs of a node, without those of the control plane.
func nodePrograms() []string { return []string{"kube-scheduler", "kube-proxy", "kubelet"} }

func (c cluster) up(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	pause := flags.String("pause", filepath.Join("dist", "pause.tar"), "image of the pods' first container")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return fmt.Errorf("up: %w: see -help", errors.Join(err, errOfRest(flags)))
	}
	start := time.Now()
	for _, name := range nodePrograms() {
		if _, err := controlplane.Binary(name); err != nil {
			return err
		}
	}
	if _, err := os.Stat(*pause); err != nil {
		return fmt.Errorf("finding the pods' first image: %w: `make cluster-up` builds it", err)
	}
	if err := installPackages(ctx, c.out); err != nil {
		return err
	}
	lock, err := c.claim()
	if err != nil {
		return err
	}
	defer func() {
		lock.Close()
		if err != nil {
			err = errors.Join(err, c.down(context.WithoutCancel(ctx)))
		}
	}()
	if err := c.start(ctx, lock); err != nil {
		return err
	}
	if err := c.loadImage(ctx, *pause); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "the node is ready after %s. To use it:\n  export KUBECONFIG=%s\n",
		time.Since(start).Round(100*time.Millisecond), c.file(kubeconfigFile))
	return nil
}

func errOfRest(flags *flag.FlagSet) error {
	if flags.NArg() == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q", flags.Arg(0))
}

// claim creates the folder and takes its lock. The first process of the cluster inherits
// the lock and holds it until it exits.
func (c cluster) claim() (*os.File, error) {
	if err := os.MkdirAll(c.file(), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder: %w", err)
	}
	lock, err := os.OpenFile(c.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("cluster %q is running: stop it with `make cluster-down`, or use another -name", c.name)
	}
	entries, err := os.ReadDir(c.file())
	if err == nil && len(entries) > 1 {
		lock.Close()
		return nil, fmt.Errorf("cluster %q has exited without `make cluster-down`: run that first", c.name)
	}
	return lock, err
}

// start starts the first process of the cluster, creates the link, and waits.
func (c cluster) start(ctx context.Context, lock *os.File) error {
	if err := c.makeOwnFolders(); err != nil {
		return err
	}
	if err := c.saveSettings(); err != nil {
		return err
	}
	subnet, err := freeSubnet()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(c.file(supervisorLog), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("making the log: %w", err)
	}
	defer log.Close()
	cmd, err := c.startInit(subnet, lock, log)
	if err != nil {
		return fmt.Errorf("starting the first process in new namespaces: %w", err)
	}
	if err := os.WriteFile(c.file(pidFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("storing the id of the first process: %w", err)
	}
	if err := c.connect(ctx, subnet, cmd.Process.Pid); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return c.awaitReady(ctx, ended)
}

// makeOwnFolders creates missing mount points, and stores their names.
func (c cluster) makeOwnFolders() error {
	var made []string
	for _, folder := range ownFolders() {
		err := os.Mkdir(folder, 0o755)
		if err == nil {
			made = append(made, folder)
		} else if !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making a mount point: %w", err)
		}
	}
	content, err := json.Marshal(made)
	if err != nil {
		return fmt.Errorf("storing the names of the mount points: %w", err)
	}
	return os.WriteFile(c.file(madeFile), content, 0o600)
}

func (c cluster) startInit(s subnet, lock, log *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-name", c.name, initCommand, strconv.Itoa(s.number)) // without ctx: it continues after this process
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // Ctrl-C in this terminal does not stop it
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	err = cmd.Start()
	return cmd, err
}

// awaitReady shows the progress until the node is ready, or the first process has ended.
func (c cluster) awaitReady(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout, fmt.Errorf("the node is not ready after %s", upTimeout))
	defer cancel()
	log, err := os.Open(c.file(supervisorLog))
	if err != nil {
		return fmt.Errorf("reading the log: %w", err)
	}
	defer log.Close()
	for {
		_, _ = io.Copy(c.out, log) // up to the current end
		if _, err := os.Stat(c.file(readyFile)); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			_, _ = io.Copy(c.out, log)
			return fmt.Errorf("the cluster exited before it was ready: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// subnet is the /30 network of the link between host and node.
type subnet struct{ number int }

func (s subnet) host() string   { return fmt.Sprintf("10.241.%d.1", s.number) }
func (s subnet) node() string   { return fmt.Sprintf("10.241.%d.2", s.number) }
func withBits(ip string) string { return ip + "/30" }

// freeSubnet returns the first subnet that no interface of this machine uses.
func freeSubnet() (subnet, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return subnet{}, fmt.Errorf("reading the addresses of this machine: %w", err)
	}
	for s := (subnet{}); s.number < 256; s.number++ {
		taken := false
		for _, a := range addresses {
			network, ok := a.(*net.IPNet)
			taken = taken || ok && (network.Contains(net.ParseIP(s.node())) || network.IP.String() == s.host())
		}
		if !taken {
			return s, nil
		}
	}
	return subnet{}, errors.New("every subnet of 10.241.0.0/16 is in use on this machine")
}

// connect creates a veth pair between the host and the node's network namespace.
func (c cluster) connect(ctx context.Context, s subnet, pid int) error {
	return ip(ctx,
		[]string{"link", "add", c.link(), "type", "veth", "peer", "name", nodeLink, "netns", strconv.Itoa(pid)},
		[]string{"address", "add", withBits(s.host()), "dev", c.link()},
		[]string{"link", "set", c.link(), "up"},
	)
}

func ip(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
