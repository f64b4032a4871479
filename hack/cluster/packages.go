//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// pluginFolder is Debian's folder of the network plugins.
const pluginFolder = "/usr/lib/cni"

// needed returns the programs from Debian's packages, by package.
func needed() map[string][]string {
	return map[string][]string{
		"containerd":                  {"containerd", "ctr"},
		"runc":                        {"runc"},
		"containernetworking-plugins": {pluginFolder + "/bridge", pluginFolder + "/host-local", pluginFolder + "/portmap"},
		"iptables":                    {"iptables"},
		"iproute2":                    {"ip"},
		"mount":                       {"mount"},
	}
}

// installPackages installs missing packages. They stay installed.
func installPackages(ctx context.Context, out io.Writer) error {
	missing := missingPackages(exec.LookPath)
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is not Debian: install %s by other means", strings.Join(missing, ", "))
	}
	fmt.Fprintf(out, "installing %s\n", strings.Join(missing, ", "))
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	if err := aptGet(ctx, install); err != nil {
		// The package lists can be missing or old.
		if err := aptGet(ctx, []string{"update"}); err != nil {
			return err
		}
		if err := aptGet(ctx, install); err != nil {
			return err
		}
	}
	if missing := missingPackages(exec.LookPath); len(missing) > 0 {
		return fmt.Errorf("%s: installed, but its programs are missing", strings.Join(missing, ", "))
	}
	return nil
}

func missingPackages(look func(string) (string, error)) []string {
	var missing []string
	for _, name := range []string{"containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "mount"} {
		for _, program := range needed()[name] {
			if _, err := look(program); err != nil && !errors.Is(err, exec.ErrDot) {
				missing = append(missing, name)
				break
			}
		}
	}
	return missing
}

func aptGet(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, text[max(0, len(text)-1000):])
	}
	return nil
}
