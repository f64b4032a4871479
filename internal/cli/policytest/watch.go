package policytest

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/ostiary/ostiary/internal/cli/load"
)

// pollInterval is the interval of checks for changed files.
const pollInterval = 500 * time.Millisecond

// watch runs the tests, and again after each change of their files, until ctx ends.
func (c *command) watch(ctx context.Context, paths []string) error {
	for {
		before := fingerprint(c.watched(ctx, paths))
		if err := c.execute(ctx, paths); err != nil && ctx.Err() == nil {
			if _, err := fmt.Fprintln(c.ErrOut, strings.TrimSpace(err.Error())); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
		for fingerprint(c.watched(ctx, paths)) == before {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pollInterval):
			}
		}
	}
}

// watched returns the paths of the tests and of the files that they name. Tests that cannot
// be read name none.
func (c *command) watched(ctx context.Context, paths []string) []string {
	out := append([]string(nil), paths...)
	objects, err := load.Objects(ctx, paths, load.Options{Select: isTest})
	if err != nil {
		return out
	}
	for i := range objects {
		var named struct {
			Files []string `json:"files"`
		}
		if objects[i].Read(&named) != nil {
			continue
		}
		file := objects[i].At("").File
		within, err := boundsOf(file, paths, c.loadOptions())
		if err != nil {
			continue
		}
		for _, name := range named.Files {
			if path := filepath.Join(filepath.Dir(file), name); within.files.Contains(path) {
				out = append(out, path)
			}
		}
	}
	return out
}

// fingerprint changes with the names, sizes and times of files.
func fingerprint(paths []string) string {
	var out strings.Builder
	for _, root := range paths {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error { // it never fails
			if err != nil {
				fmt.Fprintf(&out, "%s missing\n", path)
				return nil //nolint:nilerr // a file can be absent for a moment
			}
			if info, err := entry.Info(); err == nil {
				fmt.Fprintf(&out, "%s %d %s\n", path, info.Size(), info.ModTime())
			}
			return nil
		})
	}
	return out.String()
}
