package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFailureLeavesNothing(t *testing.T) {
	t.Chdir(filepath.Join("..", "..")) // where config and bin are
	manager := filepath.Join(t.TempDir(), "manager")
	if err := os.WriteFile(manager, []byte("#!/bin/sh\necho no manager at all\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err := run(t.Context(), options{once: true, manager: manager, dir: dir}, t.Output())
	for _, want := range []string{"starting ostiary: ", "exit status 3", "no manager at all"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	wantNothingLeft(t, dir)
}

func TestInterruptLeavesNothing(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	errInterrupt := errors.New("interrupt")
	ctx, interrupt := context.WithCancelCause(t.Context())
	out := writerFunc(func(line []byte) {
		if bytes.Contains(line, []byte("Applying config/crd")) {
			interrupt(errInterrupt)
		}
	})
	dir := t.TempDir()
	if err := run(ctx, options{dir: dir}, out); !errors.Is(err, errInterrupt) {
		t.Errorf("error %v, want %v", err, errInterrupt)
	}
	wantNothingLeft(t, dir)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// wantNothingLeft also finds processes: every one of them names its files.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if content, err := os.ReadFile(line); err == nil && bytes.Contains(content, []byte(dir)) {
			t.Errorf("still running: %q", content)
		}
	}
}

func TestKubectlErrors(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{path: shell, home: t.TempDir()}
	r, err := k.run(t.Context(), "-c", "echo out; echo err >&2; exit 7")
	if want := (result{7, "out\n", "err\n"}); err != nil || r != want {
		t.Errorf("got %v, %v, want %v", r, err, want)
	}
	err = k.do(t.Context(), []string{"-c", "true"}, []string{"-c", "echo told >&2; exit 7"}, []string{"-c", "touch " + k.home + "/never"})
	if err == nil || !strings.Contains(err.Error(), "exit status 7:\ntold") {
		t.Errorf("error %v, want the exit status and what was printed", err)
	}
	if _, err := os.Stat(filepath.Join(k.home, "never")); err == nil {
		t.Error("went on after a failure")
	}
	if _, err := (kubectl{path: filepath.Join(k.home, "none")}).run(t.Context()); err == nil {
		t.Error("no error for a kubectl that is not there")
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.printf("Doing %d things", 2)
	if n, err := io.WriteString(p, "etcd ready\n"); n != len("etcd ready\n") || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	lines := strings.SplitAfter(out.String(), "\n")
	if !strings.HasSuffix(lines[0], "s] Doing 2 things\n") || !strings.HasSuffix(lines[1], "s]   etcd ready\n") {
		t.Errorf("got %q", lines)
	}
}
