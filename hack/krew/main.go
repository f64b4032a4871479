// Command krew builds kubectl-ostiary for six platforms, and writes an archive for each, their
// checksums, and the manifest with which krew installs them. Equal input gives equal bytes.
//
//	go run . [flags]
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	// plugin is the name with which krew and kubectl know the program.
	plugin  = "ostiary"
	program = "kubectl-" + plugin
	// maxBinary is the maximum of bytes of the program.
	maxBinary = 80 << 20
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// release is what to make.
type release struct {
	source  string // folder of the module
	pkg     string // main package in it
	out     string // folder to write
	version string
	url     string // folder from which krew downloads the archives
	created time.Time
}

// platform is an operating system and an architecture, as Go and krew name them.
type platform struct{ os, arch string }

func platforms() []platform {
	return []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}
}

// binary is the name of the program's file.
func (p platform) binary() string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

// archive is the name of the archive.
func (p platform) archive() string {
	extension := ".tar.gz"
	if p.os == "windows" {
		extension = ".zip"
	}
	return program + "_" + p.os + "_" + p.arch + extension
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	r, err := parse(args, stdout)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	var sums strings.Builder
	checksums := map[platform]string{}
	for _, p := range platforms() {
		size, sum, err := r.make(ctx, p)
		if err != nil {
			return fmt.Errorf("making %s: %w", p.archive(), err)
		}
		checksums[p] = sum
		fmt.Fprintf(&sums, "%s  %s\n", sum, p.archive())
		fmt.Fprintf(stdout, "%s: the program has %.1f MB\n", filepath.Join(r.out, p.archive()), float64(size)/1e6)
	}
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o600); err != nil {
		return fmt.Errorf("writing the checksums: %w", err)
	}
	manifest := filepath.Join(r.out, plugin+".yaml")
	if err := os.WriteFile(manifest, []byte(r.manifest(checksums)), 0o600); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	fmt.Fprintln(stdout, manifest)
	return nil
}

func parse(args []string, stdout io.Writer) (*release, error) {
	r := &release{}
	flags := flag.NewFlagSet("krew", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.StringVar(&r.source, "source", filepath.Join("..", ".."), "folder of the Go module, with the file LICENSE")
	flags.StringVar(&r.pkg, "package", "./cmd/"+program, "main package to build, in the module")
	flags.StringVar(&r.out, "out", filepath.Join("..", "..", "dist", "cli"), "folder to write")
	flags.StringVar(&r.version, "version", "unknown", "version of the program")
	flags.StringVar(&r.url, "url", "", "folder of the archives for krew; default: that of the release of the version")
	created := flags.Int64("created", 0, "time of the files in the archives, in seconds since 1970: that of the commit")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see -help", flags.Arg(0))
	}
	if r.url == "" {
		r.url = homepage + "/releases/download/" + r.version
	}
	r.created = time.Unix(*created, 0).UTC()
	return r, nil
}

// make builds the program for a platform and writes its archive. It returns the size of the
// program and the checksum of the archive.
func (r *release) make(ctx context.Context, p platform) (size int, sum string, err error) {
	folder, err := os.MkdirTemp("", program)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	built := filepath.Join(folder, p.binary())
	if err := r.build(ctx, p, built); err != nil {
		return 0, "", err
	}
	binary, err := os.ReadFile(built)
	if err != nil {
		return 0, "", err
	}
	if len(binary) > maxBinary {
		return 0, "", fmt.Errorf("the program has %d bytes, at most %d are allowed", len(binary), maxBinary)
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return 0, "", err
	}
	content, err := pack(p, []file{{name: p.binary(), mode: 0o755, content: binary}, {name: "LICENSE", mode: 0o644, content: license}}, r.created)
	if err != nil {
		return 0, "", err
	}
	return len(binary), fmt.Sprintf("%x", sha256.Sum256(content)), os.WriteFile(filepath.Join(r.out, p.archive()), content, 0o600)
}

func (r *release) build(ctx context.Context, p platform, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", target, r.pkg)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
	// An interrupted go build stops its compilers and removes its work folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of %s: %w: %s", r.pkg, err, strings.TrimSpace(string(out)))
	}
	return nil
}

const homepage = "https://github.com/ostiary/ostiary"

// semantic is a version as krew accepts it.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// manifest returns the manifest for krew. A version between releases has the name of its
// commit.
func (r *release) manifest(checksums map[platform]string) string {
	version := r.version
	if !semantic.MatchString(version) {
		version = "v0.0.0-g" + regexp.MustCompile(`[^0-9A-Za-z-]`).ReplaceAllString(version, "-")
	}
	var out strings.Builder
	fmt.Fprintf(&out, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: %s
spec:
  version: %s
  homepage: %s
  shortDescription: Test, lint and explain admission policies
  description: |
    Tests, checks, evaluates and explains WebhookPolicies of Ostiary from files, without
    a cluster; replays audit logs; and finds faults of all webhook configurations of a
    cluster, those of other operators included.
  platforms:
`, plugin, version, homepage)
	for _, p := range platforms() {
		fmt.Fprintf(&out, `  - selector: {matchLabels: {os: %s, arch: %s}}
    uri: %s/%s
    sha256: %s
    bin: %s
`, p.os, p.arch, strings.TrimSuffix(r.url, "/"), p.archive(), checksums[p], p.binary())
	}
	return out.String()
}
