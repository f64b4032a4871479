package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// kubectl runs the real kubectl with the demo's control plane. Its cache is in the
// temporary directory, and it does not read the user's settings.
type kubectl struct {
	path string
	// plugin is kubectl-ostiary, which kubectl runs if its folder is in the PATH.
	plugin, kubeconfig, home string
}

// folders are those of kubectl and its plugin, for the PATH.
func (k kubectl) folders() string {
	var out []string
	for _, program := range []string{k.path, k.plugin} {
		if absolute, err := filepath.Abs(program); err == nil { // else the step that needs it says what is not found
			out = append(out, filepath.Dir(absolute))
		}
	}
	return strings.Join(out, ":")
}

// result is the exit status and output of a kubectl command.
type result struct {
	exit           int
	stdout, stderr string
}

// run runs kubectl. It returns an error only if kubectl could not be started or was interrupted.
func (k kubectl) run(ctx context.Context, args ...string) (result, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, k.path, args...)
	cmd.Env = []string{"PATH=" + k.folders() + ":" + os.Getenv("PATH"), "HOME=" + k.home, "KUBECONFIG=" + k.kubeconfig}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us to handle
	err := cmd.Run()
	if ctx.Err() != nil {
		return result{}, context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return result{}, fmt.Errorf("running kubectl: %w", err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, nil
}

// do runs commands in order, and returns an error if one fails.
func (k kubectl) do(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		r, err := k.run(ctx, args...)
		if err != nil {
			return err
		}
		if r.exit != 0 {
			return fmt.Errorf("%s: exit status %d:\n%s", commandLine(args), r.exit, strings.TrimSpace(r.stderr+r.stdout))
		}
	}
	return nil
}

// commandLine returns the command line for a shell.
func commandLine(args []string) string {
	line := "kubectl"
	for _, arg := range args {
		switch {
		case strings.Contains(arg, `"`):
			arg = "'" + arg + "'"
		case strings.ContainsAny(arg, "' "):
			arg = `"` + arg + `"`
		}
		line += " " + arg
	}
	return line
}
