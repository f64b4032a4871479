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

// down ends the cluster and removes what it left. It is well if there is nothing.
func (c cluster) down(ctx context.Context) error {
	if _, err := os.Stat(c.file()); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, downTimeout, fmt.Errorf("not done after %s", downTimeout))
	defer cancel()
	lock, err := c.end(ctx)
	if err != nil {
		return fmt.Errorf("ending the cluster: %w", err)
	}
	defer lock.Close()
	if err := errors.Join(c.removeLink(ctx), c.removeControlGroups(ctx), c.restoreSettings()); err != nil {
		return err
	}
	return c.removeFolders()
}

// end kills the first process, and with it all others: the kernel sees to that
// before it lets go of the lock. While that is held, the process id is still its.
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
				return nil, fmt.Errorf("%s holds %q, which is no process", c.file(pidFile), content)
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

// removeLink does not wait for the kernel, which takes network namespaces apart
// when nothing has come for them for a while.
func (c cluster) removeLink(ctx context.Context) error {
	err := ip(ctx, []string{"link", "delete", c.link()})
	if _, missing := net.InterfaceByName(c.link()); missing == nil {
		return err
	}
	return nil
}

// removeControlGroups removes those of the pods, from the innermost.
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

// removeTree removes folders only: the files of control groups go with them.
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

// removeFolders removes our folder, unless something is mounted in it after all.
func (c cluster) removeFolders() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading what is mounted: %w", err)
	}
	if strings.Contains(string(mounts), " "+c.file()+"/") {
		return fmt.Errorf("something is still mounted below %s: unmount it and run this again", c.file())
	}
	made := c.madeFolders()
	if err := os.RemoveAll(c.file()); err != nil {
		return fmt.Errorf("removing the folder: %w", err)
	}
	if os.Remove(home) == nil { // there is no other cluster
		for _, folder := range made {
			_ = os.Remove(folder) // if it is empty
		}
	}
	return nil
}

func (c cluster) madeFolders() (made []string) {
	if content, err := os.ReadFile(c.file(madeFile)); err == nil {
		_ = json.Unmarshal(content, &made) // what is half written names nothing
	}
	return slices.DeleteFunc(made, func(folder string) bool { return !slices.Contains(ownFolders(), folder) })
}
