package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func parsePlatforms(list string) ([]v1.Platform, error) {
	if list == "" {
		return []v1.Platform{{OS: "linux", Architecture: runtime.GOARCH}}, nil
	}
	var out []v1.Platform
	for text := range strings.SplitSeq(list, ",") {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS == "" || p.Architecture == "" || p.Variant != "" {
			return nil, fmt.Errorf("-platforms %q: %q is not OS/ARCHITECTURE, such as linux/arm64", list, text)
		}
		out = append(out, *p)
	}
	return out, nil
}

// build compiles the program for a platform. The binary depends only on the source and the
// version of Go: it contains no paths of this machine, no C, and no state of the repository.
func (r *request) build(ctx context.Context, p v1.Platform, target string) error {
	target, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", target, r.pkg)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+p.OS, "GOARCH="+p.Architecture)
	cmd.Stderr = &stderr
	// An interrupted go build stops its compilers and removes its work folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build of %s for %s: %w: %s", r.pkg, p, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
