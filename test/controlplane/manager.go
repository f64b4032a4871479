package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

// BuildManager builds the manager of the source tree at root into a file, as its
// image has it: without cgo, which only the race detector needs, with trimmed paths
// and without the traces of gRPC. The flags are further ones of go build;
// without any, OSTIARY_MANAGER may name a program that was built like this before.
func BuildManager(ctx context.Context, root, program string, flags ...string) error {
	if built := os.Getenv("OSTIARY_MANAGER"); built != "" && len(flags) == 0 {
		if err := os.Symlink(built, program); err != nil {
			return fmt.Errorf("using the manager %s: %w", built, err)
		}
		return nil
	}
	cgo := "CGO_ENABLED=0"
	if slices.Contains(flags, "-race") {
		cgo = "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go",
		slices.Concat([]string{"build", "-trimpath", "-tags=grpcnotrace", "-o", program}, flags, []string{"."})...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w: %s", err, out)
	}
	return nil
}
