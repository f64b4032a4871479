//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// nodeLink is the interface of the node in the veth pair with the host.
const nodeLink = "eth0"

// setUpNamespaces configures the namespaces of this process for a node: host name, mounts,
// control groups and network.
func (c cluster) setUpNamespaces(ctx context.Context, s subnet) error {
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := c.mountAll(); err != nil {
		return err
	}
	if err := c.makeControlGroups(); err != nil {
		return err
	}
	if err := awaitLink(ctx); err != nil {
		return err
	}
	if err := ip(ctx,
		[]string{"link", "set", "lo", "up"},
		[]string{"address", "add", withBits(s.node()), "dev", nodeLink},
		[]string{"link", "set", nodeLink, "up"},
		[]string{"route", "add", "default", "via", s.host()},
	); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		return fmt.Errorf("enabling IP forwarding: %w", err)
	}
	return nil
}

// mount is one mount of the node.
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// mountAll makes mounts private, and binds the folders that containerd and the kubelet
// always use to folders of the cluster.
func (c cluster) mountAll() error {
	const aside = "/run/cgroup"
	mounts := []mount{
		{target: "/", flags: syscall.MS_REC | syscall.MS_PRIVATE},
		{source: "tmpfs", target: "/run", kind: "tmpfs", data: "mode=755"},
		{source: "proc", target: "/proc", kind: "proc"},
		// /sys shows the interfaces of the namespace in which it was mounted.
		{source: cgroupMount, target: aside, flags: syscall.MS_BIND | syscall.MS_REC},
		{source: "sysfs", target: "/sys", kind: "sysfs"},
		{source: aside, target: cgroupMount, flags: syscall.MS_BIND | syscall.MS_REC},
	}
	for _, target := range append(ownFolders(), "/var/log") {
		own := c.file(filepath.Base(target) + "-folder")
		if err := os.Mkdir(own, 0o755); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
		mounts = append(mounts, mount{source: own, target: target, flags: syscall.MS_BIND})
	}
	for _, m := range mounts {
		if m.target == aside {
			if err := os.Mkdir(aside, 0o755); err != nil {
				return fmt.Errorf("making a folder: %w", err)
			}
		}
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.source, m.target, err)
		}
	}
	if err := syscall.Unmount(aside, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting %s: %w", aside, err)
	}
	// The kubelet needs shared mounts. This comes last: otherwise unmounting the temporary
	// folder would also unmount the copy.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts: %w", err)
	}
	return nil
}

// awaitLink waits for the veth interface, which the host creates after this process starts.
func awaitLink(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := net.InterfaceByName(nodeLink); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the interface %s: %w", nodeLink, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
