//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// settings are values of sysctls, by file.
type settings map[string]string

// readSettings reads the sysctls that the kubelet changes. They apply to the whole machine.
func readSettings() settings {
	saved := settings{}
	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		file := filepath.Join("/proc/sys", name)
		if value, err := os.ReadFile(file); err == nil {
			saved[file] = string(value)
		}
	}
	return saved
}

// saveSettings stores the current values for restoreSettings.
func (c cluster) saveSettings() error {
	content, err := json.Marshal(readSettings())
	if err == nil {
		err = os.WriteFile(c.file(settingsFile), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving settings of the kernel: %w", err)
	}
	return nil
}

// restoreSettings restores changed values.
func (c cluster) restoreSettings() error {
	content, err := os.ReadFile(c.file(settingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil // the kubelet has not run
	}
	saved := settings{}
	if err == nil {
		err = json.Unmarshal(content, &saved)
	}
	now := readSettings()
	for file, value := range saved {
		if now[file] != value && err == nil {
			err = os.WriteFile(file, []byte(value), 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("restoring settings of the kernel: %w", err)
	}
	return nil
}
