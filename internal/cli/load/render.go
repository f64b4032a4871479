package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// renderTimeout is how long a program may take.
	renderTimeout = 2 * time.Minute
	// maxStderr is the maximum of bytes of a program's errors in ours.
	maxStderr = 4 << 10
	// noProxy is a proxy that nothing listens on.
	noProxy = "http://127.0.0.1:9"
)

// renderer is a kind of directory that a program renders.
type renderer struct {
	what     string // in messages
	programs [][]string
	check    func(path string, o Options) error
}

// rendererOf returns the renderer of a directory, by its files.
func rendererOf(path string) (renderer, bool) {
	for _, name := range kustomizationNames() {
		if exists(filepath.Join(path, name)) {
			check := func(path string, o Options) error {
				k := kustomizationChecker{options: o, seen: map[string]bool{}}
				return k.check(path)
			}
			return renderer{what: "a kustomization", programs: [][]string{{"kustomize", "build"}, {"kubectl", "kustomize"}}, check: check}, true
		}
	}
	if exists(filepath.Join(path, "Chart.yaml")) {
		return renderer{what: "a Helm chart", programs: [][]string{{"helm", "template"}}, check: func(path string, _ Options) error { return checkLinks(path) }}, true
	}
	return renderer{}, false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs the first program that is installed. The programs take a path that begins with a
// dash for a flag, and one that begins with a host for a repository.
func (r renderer) run(ctx context.Context, path string, allowRemote bool) ([]byte, error) {
	argument := path
	if !filepath.IsAbs(path) {
		argument = "." + string(filepath.Separator) + path
	}
	var names []string
	for _, program := range r.programs {
		names = append(names, program[0])
		if found, err := exec.LookPath(program[0]); err == nil {
			return render(ctx, found, append(slices.Clone(program[1:]), argument), allowRemote)
		}
	}
	return nil, &Error{Position: Position{File: path}, Text: fmt.Sprintf("the directory is %s: install %s, or render it yourself", r.what, strings.Join(names, " or "))}
}

func render(ctx context.Context, program string, args []string, allowRemote bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	out, problems := &limited{limit: maxFile}, &limited{limit: maxStderr, cut: true}
	command := exec.CommandContext(ctx, program, args...) //nolint:gosec // kustomize, kubectl or helm
	command.Stdout, command.Stderr = out, problems
	if !allowRemote { // in addition to the checks of files
		command.Env = append(os.Environ(), "GIT_ALLOW_PROTOCOL=none", "HTTP_PROXY="+noProxy, "HTTPS_PROXY="+noProxy, "http_proxy="+noProxy, "https_proxy="+noProxy, "NO_PROXY=", "no_proxy=")
	}
	if err := command.Run(); err != nil {
		text := strings.TrimSpace(problems.String())
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("running %s %s: %w\n%s", program, strings.Join(args, " "), err, text)
	}
	return out.Bytes(), nil
}

// limited keeps a limited number of bytes. It ignores more if cut is set, and otherwise
// fails, so that the program ends.
type limited struct {
	bytes.Buffer
	limit int
	cut   bool
}

var errOutput = errors.New("the output is too large")

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	switch {
	case l.Len()+len(p) <= l.limit:
		return l.Buffer.Write(p)
	case !l.cut:
		return 0, errOutput
	}
	l.Buffer.Write(p[:l.limit-l.Len()])
	return len(p), nil
}
