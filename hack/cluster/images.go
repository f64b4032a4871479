//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// loadImage loads an image into the node's containerd.
func (c cluster) loadImage(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("loading an image: %w", err)
	}
	if _, err := os.Stat(c.file(socketFile)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("loading %s: the cluster is not up: run `make cluster-up`", file)
	}
	cmd := exec.CommandContext(ctx, "ctr", "--address", c.file(socketFile), "--namespace", "k8s.io", "images", "import", file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("loading %s: %w: %s", file, err, strings.TrimSpace(string(out)))
	}
	fmt.Fprintf(c.out, "loaded %s\n", file)
	return nil
}
