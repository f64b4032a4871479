//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const cgroupMount = "/sys/fs/cgroup"

// makeControlGroups creates the parent of the control groups of Pods: one in each
// hierarchy of version 1, or one in that of version 2.
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

// hierarchies returns the roots of the hierarchies of control groups. Version 2 has one.
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

// inheritSets copies the processors and the memory nodes of the parent to a new group. In
// version 1 they are empty, and no process could join. In version 2 the parent enables
// controllers for its children.
func inheritSets(parent, group string) error {
	if parent == cgroupMount {
		for _, controller := range []string{"cpu", "cpuset", "memory", "pids"} {
			if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+controller), 0o600); err != nil {
				return fmt.Errorf("enabling the controller %s for control groups below %s: %w", controller, parent, err)
			}
		}
		return nil
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, name))
		if errors.Is(err, os.ErrNotExist) {
			return nil // another hierarchy
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, name), value, 0o600)
		}
		if err != nil {
			return fmt.Errorf("setting processors and memory of a control group: %w", err)
		}
	}
	return nil
}
