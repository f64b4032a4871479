package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// source writes a module with a small program.
func source(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example.com/small\n\ngo 1.26\n",
		"main.go": "package main\n\nvar version string\n\nfunc main() { println(version) }\n",
		"LICENSE": "a license\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func made(t *testing.T, version string) string {
	t.Helper()
	out := t.TempDir()
	if err := run(t.Context(), []string{"-source", source(t), "-package", ".", "-out", out, "-version", version, "-created", "1700000000"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out
}

// krew runs a program of krew.
func krew(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool"}, args...)...)
	cmd.Env = append(os.Environ(), append(environment, "KREW_NO_UPGRADE_CHECK=1", "GOFLAGS=-buildvcs=false")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Krew accepts the manifests of releases and of commits.
func TestKrewAcceptsManifests(t *testing.T) {
	for name, version := range map[string]string{"a release": "v1.2.3", "a candidate": "v1.2.3-rc.1", "a commit": "0123456-dirty", "after a release": "v1.2.3-4-gabcdef0"} {
		t.Run(name, func(t *testing.T) {
			r := release{version: version, url: homepage}
			checksums := map[platform]string{}
			for _, p := range platforms() {
				checksums[p] = strings.Repeat("0a", 32)
			}
			path := filepath.Join(t.TempDir(), plugin+".yaml")
			if err := os.WriteFile(path, []byte(r.manifest(checksums)), 0o600); err != nil {
				t.Fatal(err)
			}
			krew(t, nil, "validate-krew-manifest", "-skip-install", "-manifest", path)
		})
	}
}

// Krew installs the archive of each platform, with its checksum.
func TestKrewInstallsEachPlatform(t *testing.T) {
	const version = "v1.2.3"
	out := made(t, version)
	for _, p := range platforms() {
		t.Run(p.archive(), func(t *testing.T) {
			root := t.TempDir()
			krew(t, []string{"KREW_ROOT=" + root, "KREW_OS=" + p.os, "KREW_ARCH=" + p.arch}, "krew", "install",
				"--manifest="+filepath.Join(out, "ostiary.yaml"), "--archive="+filepath.Join(out, p.archive()))
			installed, err := filepath.Glob(filepath.Join(root, "store", plugin, version, "LICENSE"))
			if err != nil || len(installed) != 1 {
				t.Errorf("the license is not installed: %v %v", installed, err)
			}
			if p.os == runtime.GOOS && p.arch == runtime.GOARCH {
				got, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", program)).CombinedOutput()
				if err != nil || strings.TrimSpace(string(got)) != version {
					t.Errorf("%s writes %q, %v; want %q", program, got, err, version)
				}
			}
		})
	}
}

// Two builds of equal sources give equal bytes.
func TestEqualInputGivesEqualBytes(t *testing.T) {
	first, second := made(t, "v1.2.3"), made(t, "v1.2.3")
	for _, p := range platforms() {
		if !bytes.Equal(read(t, filepath.Join(first, p.archive())), read(t, filepath.Join(second, p.archive()))) {
			t.Errorf("%s differs", p.archive())
		}
	}
	sums := string(read(t, filepath.Join(first, "SHA256SUMS")))
	if strings.Count(sums, "\n") != len(platforms()) || sums != string(read(t, filepath.Join(second, "SHA256SUMS"))) {
		t.Errorf("the checksums are\n%s", sums)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
