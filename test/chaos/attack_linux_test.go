package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// groupRoot is where control groups that limit memory are, of version 1 or 2.
func groupRoot() (root string, v1 bool) {
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		return "/sys/fs/cgroup/memory", true
	}
	return "/sys/fs/cgroup", false
}

func (m *member) group() string {
	root, _ := groupRoot()
	return filepath.Join(root, fmt.Sprintf("ostiary-chaos-%d-%s", os.Getpid(), m.name))
}

// limitMemory puts the process into a control group with a limit, as kubelet does
// for a container. It needs root.
func (m *member) limitMemory(limit int) error {
	root, v1 := groupRoot()
	file := "memory.limit_in_bytes"
	if !v1 {
		file = "memory.max"
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o600); err != nil {
			return fmt.Errorf("enabling limits of memory: %w", err)
		}
	}
	if err := os.Mkdir(m.group(), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a control group, which needs root: %w", err)
	}
	for name, value := range map[string]int{file: limit, "cgroup.procs": m.running.PID()} {
		if err := os.WriteFile(filepath.Join(m.group(), name), []byte(strconv.Itoa(value)), 0o600); err != nil {
			return fmt.Errorf("limiting the memory of %s: %w", m.name, err)
		}
	}
	return nil
}

// oomKills is how many processes the limit has ended, and freeGroup removes the
// control group of a process that has ended.
func (m *member) oomKills() int {
	_, v1 := groupRoot()
	file := "memory.events"
	if v1 {
		file = "memory.oom_control"
	}
	text, err := os.ReadFile(filepath.Join(m.group(), file))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "oom_kill ")
	n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest+"\n", "\n", 2)[0]))
	return n
}

func (m *member) freeGroup() { _ = os.Remove(m.group()) }
