package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stamp identifies the sources of a program. The Go linker writes it into the program, so
// it always matches the file.
type stamp struct {
	path, version       string
	goVersion, platform string
	cgo, trimpath       string
}

func hostStamp(c command, version string) stamp {
	return stamp{
		path: c.path, version: version,
		goVersion: runtime.Version(), platform: runtime.GOOS + "/" + runtime.GOARCH,
		cgo: "0", trimpath: "true",
	}
}

func readStamp(file string) (stamp, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return stamp{}, fmt.Errorf("reading the build information: %w", err)
	}
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	return stamp{
		path: info.Path, version: info.Main.Version,
		goVersion: info.GoVersion, platform: setting["GOOS"] + "/" + setting["GOARCH"],
		cgo: setting["CGO_ENABLED"], trimpath: setting["-trimpath"],
	}, nil
}

// moduleVersions returns the versions of the needed modules from go.mod.
func moduleVersions(ctx context.Context, wanted []command) (map[string]string, error) {
	args := []string{"list", "-mod=readonly", "-m", "-f", "{{.Path}} {{.Version}}"}
	for _, c := range wanted {
		if !slices.Contains(args, c.module) {
			args = append(args, c.module)
		}
	}
	out, err := goCommand(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("reading module versions (is the working directory hack/kubernetes?): %w", err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(out) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[path] = version
	}
	return versions, nil
}

// build builds the program under a temporary name, and renames it when it is complete and
// has the expected version.
func build(ctx context.Context, c command, want stamp, target string) error {
	temporary := filepath.Join(filepath.Dir(target), "."+c.name+".building")
	defer os.Remove(temporary)
	flags, err := linkerFlags(c.module, want.version)
	if err != nil {
		return err
	}
	if _, err := goCommand(ctx, "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", temporary, c.path); err != nil {
		return fmt.Errorf("building %s %s: %w", c.name, want.version, err)
	}
	have, err := readStamp(temporary)
	if err != nil {
		return fmt.Errorf("building %s: %w", c.name, err)
	}
	if have != want {
		return fmt.Errorf("building %s: got %+v, want %+v: is a Go environment variable in the way?", c.name, have, want)
	}
	if err := os.Rename(temporary, target); err != nil {
		return fmt.Errorf("building %s: %w", c.name, err)
	}
	return nil
}

// linkerFlags sets the version of Kubernetes, with the variables of a release build. Without
// them the API server reports v0.0.0.
func linkerFlags(module, version string) (string, error) {
	const strip = "-s -w"
	if module != kubernetesModule {
		return strip, nil
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, ok := strings.Cut(rest, ".")
	if !ok || major == "" || minor == "" {
		return "", fmt.Errorf("version %q of %s is not vMAJOR.MINOR.PATCH: mend go.mod", version, module)
	}
	const base, client = "k8s.io/component-base/version.", "k8s.io/client-go/pkg/version."
	return strings.Join([]string{strip,
		"-X", base + "gitVersion=" + version, "-X", base + "gitMajor=" + major, "-X", base + "gitMinor=" + minor,
		"-X", client + "gitVersion=" + version,
	}, " "), nil
}

// goCommand runs the go tool and returns its output, or an error of one line.
func goCommand(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// An interrupted go build stops its compilers and removes its work folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, complaint(stderr.String()))
	}
	return stdout.String(), nil
}

// complaint joins the last lines of the output of the go tool, without its progress.
func complaint(stderr string) string {
	const most = 5
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(stderr), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "go: downloading ") || strings.HasPrefix(line, "# ")
	})
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[max(0, len(lines)-most):], "; ")
}

// lock locks a folder. A second build waits, and then finds the programs.
func lock(ctx context.Context, dir string, stdout io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the output folder: %w", err)
	}
	for said := false; ; said = true {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
		}
		if !said {
			fmt.Fprintf(stdout, "waiting for another build into %s\n", dir)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
