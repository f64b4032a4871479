//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const downTimeout = time.Minute // ordinarily a second

// down stops the cluster and removes everything that it created. Without a cluster it does
// nothing.
func (c cluster) down(ctx context.Context) error {
	if _, err := os.Stat(c.file()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downTimeout, fmt.Errorf("not done after %s", downTimeout))
	defer cancel()
	lock, err := c.end(ctx)
	if err != nil {
		return fmt.Errorf("stopping the cluster: %w", err)
	}
	defer lock.Close()
	if err := errors.Join(c.removeLink(ctx), c.removeControlGroups(ctx), c.restoreSettings()); err != nil {
		return err
	}
	return c.removeFolders()
}

// end kills the first process of the PID namespace, and so all others. The kernel releases
// the lock after that. While the lock is held, the process id belongs to this process.
func (c cluster) end(ctx context.Context) (*os.File, error) {
	lock, err := os.OpenFile(c.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if content, err := os.ReadFile(c.file(pidFile)); err == nil {
			pid, err := strconv.Atoi(string(content))
			if err != nil || pid < 2 {
				lock.Close()
				return nil, fmt.Errorf("%s contains %q, which is not a process id", c.file(pidFile), content)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removeLink removes the link to the node without waiting for the kernel, which removes
// unused network namespaces after a delay.
func (c cluster) removeLink(ctx context.Context) error {
	err := ip(ctx, []string{"link", "delete", c.link()})
	if _, missing := net.InterfaceByName(c.link()); missing == nil {
		return err
	}
	return nil
}

// removeControlGroups removes the control groups of Pods, the innermost first.
func (c cluster) removeControlGroups(ctx context.Context) error {
	for _, root := range hierarchies() {
		for {
			err := removeTree(filepath.Join(root, c.controlGroup()))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("removing control groups: %w", err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// removeTree removes folders only, because the files of a control group cannot be removed.
func removeTree(root string) error {
	var folders []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return err
	})
	for _, folder := range slices.Backward(folders) {
		if removing := os.Remove(folder); removing != nil && !errors.Is(removing, fs.ErrNotExist) {
			err = errors.Join(err, removing)
		}
	}
	return err
}

// removeFolders removes the folder of the cluster, unless something is mounted in it.
func (c cluster) removeFolders() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading the mounts: %w", err)
	}
	if strings.Contains(string(mounts), " "+c.file()+"/") {
		return fmt.Errorf("something is still mounted below %s: unmount it and run this again", c.file())
	}
	made := c.madeFolders()
	if err := os.RemoveAll(c.file()); err != nil {
		return fmt.Errorf("removing the folder: %w", err)
	}
	if os.Remove(home) == nil { // no other cluster exists
		for _, folder := range made {
			_ = os.Remove(folder) // if it is empty
		}
	}
	return nil
}

func (c cluster) madeFolders() (made []string) {
	if content, err := os.ReadFile(c.file(madeFile)); err == nil {
		_ = json.Unmarshal(content, &made) // an incomplete file names no folder
	}
	return slices.DeleteFunc(made, func(folder string) bool { return !slices.Contains(ownFolders(), folder) })
}
