package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestModuleVersionsAreThoseOfGoMod(t *testing.T) {
	versions, err := moduleVersions(t.Context(), commands())
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if line := c.module + " " + versions[c.module]; versions[c.module] == "" || !bytes.Contains(goMod, []byte("\t"+line)) {
			t.Errorf("go.mod has no %q", line)
		}
	}
}

func TestModuleVersionsElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := moduleVersions(t.Context(), commands())
	wantError(t, err, "is the working directory hack/kubernetes?")
}

func TestLinkerFlags(t *testing.T) {
	tests := map[string]struct {
		module, version string
		want            string
		wantErr         string
	}{
		"etcd knows its version": {module: etcdModule, version: "v3.6.8", want: "-s -w"},
		"KUBERNETES is set": {
			module: kubernetesModule, version: "v1.36.3",
			want: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" +
				" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
				" -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
		},
		"not a version": {module: kubernetesModule, version: "master", wantErr: `version "master" of k8s.io/kubernetes`},
		"no version":    {module: kubernetesModule, wantErr: `version "" of k8s.io/kubernetes`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := linkerFlags(tt.module, tt.version)
			wantError(t, err, tt.wantErr)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestComplaint(t *testing.T) {
	tests := map[string]struct{ stderr, want string }{
		"nothing":              {},
		"progress is left out": {stderr: "go: downloading k8s.io/api v0.36.3\n# k8s.io/x\nx.go:1: oops\n", want: "x.go:1: oops"},
		"only the end":         {stderr: "1\n2\n3\n4\n5\n\t6\n7", want: "3; 4; 5; 6; 7"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := complaint(tt.stderr); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// This builds a program that takes no time: the build itself, what counts as up
// to date, and what does not.
func TestBuild(t *testing.T) {
	c, version := smallCommand(t)
	want, target := hostStamp(c, version), filepath.Join(t.TempDir(), c.name)
	if err := build(t.Context(), c, want, target); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change   func(*stamp)
		spoil    bool
		wantSame bool
	}{
		"the same":         {change: func(*stamp) {}, wantSame: true},
		"a new version":    {change: func(s *stamp) { s.version = "v9.9.9" }},
		"another Go":       {change: func(s *stamp) { s.goVersion = "go1.1" }},
		"another platform": {change: func(s *stamp) { s.platform = "plan9/mips" }},
		"half a file":      {change: func(*stamp) {}, spoil: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := target
			if tt.spoil {
				file = firstBytes(t, target, 1000)
			}
			want := want
			tt.change(&want)
			have, err := readStamp(file)
			if same := err == nil && have == want; same != tt.wantSame {
				t.Errorf("up to date is %v (%+v, %v), want %v", same, have, err, tt.wantSame)
			}
		})
	}
}

func TestBuildLeavesNothingOnFailure(t *testing.T) {
	c, version := smallCommand(t)
	tests := map[string]struct {
		path, version string
		wantErr       string
	}{
		"no such package": {path: c.module + "/nothing-here", version: version, wantErr: "building small " + version + ": go build: "},
		"not as asked":    {path: c.path, version: "v9.9.9", wantErr: "building small: got "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir, c := t.TempDir(), c
			c.path = tt.path
			err := build(t.Context(), c, hostStamp(c, tt.version), filepath.Join(dir, c.name))
			wantError(t, err, tt.wantErr)
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestLockWaits(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(t.Context(), dir, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var out bytes.Buffer
	if _, err := lock(ctx, dir, &out); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock gave %v, want to wait until the deadline", err)
	}
	if want := "waiting for another build into " + dir + "\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	unlock()
	again, err := lock(t.Context(), dir, &out)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// smallCommand is a command with no dependencies, of a module that go.mod has anyway.
func smallCommand(t *testing.T) (c command, version string) {
	t.Helper()
	const module = "github.com/cespare/xxhash/v2"
	c = command{name: "small", module: module, path: module + "/xxhsum"}
	versions, err := moduleVersions(t.Context(), []command{c})
	if err != nil {
		t.Fatal(err)
	}
	return c, versions[module]
}

func firstBytes(t *testing.T, file string, n int) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, content[:n], 0o755); err != nil {
		t.Fatal(err)
	}
	return short
}

// Each version has the tools of go.mod, and builds the version that its file names.
func TestVersions(t *testing.T) {
	files, err := filepath.Glob("*.mod")
	if err != nil || len(files) < 4 {
		t.Fatalf("got %q, %v, want a file for each version", files, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Setenv("GOFLAGS", "-modfile="+file)
			versions, err := moduleVersions(t.Context(), commands())
			if err != nil {
				t.Fatal(err)
			}
			minor := strings.TrimSuffix(strings.Replace(file, "go.mod", "1.36.mod", 1), ".mod")
			if version := versions[kubernetesModule]; !strings.HasPrefix(version, "v"+minor+".") {
				t.Errorf("got Kubernetes %s, want one of %s", version, minor)
			}
			checkTools(t)
		})
	}
}
