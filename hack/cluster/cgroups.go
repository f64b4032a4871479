//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const cgroupMount = "/sys/fs/cgroup"

// makeControlGroups makes the one that those of the pods go into: in every
// hierarchy of version 1, or in the one of version 2.
func (c cluster) makeControlGroups() error {
	for _, root := range hierarchies() {
		group := filepath.Join(root, c.controlGroup())
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("making a control group: %w", err)
		}
		if err := inheritSets(root, group); err != nil {
			return err
		}
	}
	return nil
}

// hierarchies lists where control groups are. A single file in their root says
// that all are in one hierarchy.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroupMount, "cgroup.controllers")); err == nil {
		return []string{cgroupMount}
	}
	found, _ := filepath.Glob(cgroupMount + "/*/cgroup.procs") // the pattern is good
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// inheritSets gives a new group the processors and the memory of its parent: in
// version 1 it has none, and no process could go into it. In version 2 it is its
// parent that has to hand controllers down.
func inheritSets(parent, group string) error {
	if parent == cgroupMount {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
			if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o600); err != nil {
				return fmt.Errorf("handing the controller %s to control groups below %s: %w", controller, parent, err)
			}
		}
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // not that hierarchy
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, name), value, 0o600)
		}
		if err != nil {
			return fmt.Errorf("handing processors and memory to a control group: %w", err)
		}
	}
	return nil
}
