package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// renderTimeout is how long a program may take.
	renderTimeout = 2 * time.Minute
	// maxStderr is the maximum of bytes of a program's errors in ours.
	maxStderr = 4 << 10
)

// renderer is a kind of directory that a program renders.
type renderer struct {
	what     string // in messages
	programs [][]string
}

// rendererOf returns the renderer of a directory, by its files.
func rendererOf(path string) (renderer, bool) {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if exists(filepath.Join(path, name)) {
			return renderer{what: "a kustomization", programs: [][]string{{"kustomize", "build"}, {"kubectl", "kustomize"}}}, true
		}
	}
	if exists(filepath.Join(path, "Chart.yaml")) {
		return renderer{what: "a Helm chart", programs: [][]string{{"helm", "template"}}}, true
	}
	return renderer{}, false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run runs the first program that is installed.
func (r renderer) run(ctx context.Context, path string) ([]byte, error) {
	var names []string
	for _, program := range r.programs {
		names = append(names, program[0])
		if found, err := exec.LookPath(program[0]); err == nil {
			return render(ctx, found, append(program[1:], path))
		}
	}
	return nil, &Error{Position: Position{File: path}, Text: fmt.Sprintf("the directory is %s: install %s, or render it yourself", r.what, strings.Join(names, " or "))}
}

func render(ctx context.Context, program string, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	out, problems := &limited{limit: maxFile}, &limited{limit: maxStderr, cut: true}
	command := exec.CommandContext(ctx, program, args...) //nolint:gosec // kustomize, kubectl or helm
	command.Stdout, command.Stderr = out, problems
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
