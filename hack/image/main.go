// Command image builds a Go program and puts it into an OCI image, a tar file,
// without a daemon and without a registry: one static binary on an empty base, with an
// unprivileged user. Equal input gives an equal digest.
//
//	go run . [flags]
//	go run . release [flags]
//	go run . publish [flags]
//	go run . registry [flags]
//
// The second completes a release: charts, provenance, checksums and their signature. The third
// pushes a release to a registry and signs it there. hack/release.sh runs them. The fourth serves
// a registry for tests.
//
// The first writes a bill of materials (SPDX) beside the tar file. The image contains the same as
// /sbom.spdx.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// request describes the image to build.
type request struct {
	source    string // folder of the module
	pkg       string // main package in it
	program   string // name of the file in the image
	reference name.Tag
	out       string
	version   string
	revision  string
	created   time.Time
	platforms []v1.Platform
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "release":
			return makeRelease(ctx, args[1:], stdout)
		case "publish":
			return publish(ctx, args[1:], stdout)
		case "registry":
			return serveRegistry(ctx, args[1:], stdout)
		}
	}
	r, err := parse(args, stdout)
	if err != nil || r == nil {
		return err
	}
	made, err := r.make(ctx)
	if err != nil {
		return fmt.Errorf("making the image %s: %w", r.reference, err)
	}
	fmt.Fprintf(stdout, "%s@%s\n%s: %d bytes\n", r.reference, made.digest, r.out, made.bytes)
	return nil
}

// parse returns nil without an error for -help.
func parse(args []string, stdout io.Writer) (*request, error) {
	r := &request{}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Parse returns its errors
	flags.StringVar(&r.source, "source", filepath.Join("..", ".."), "folder of the Go module")
	flags.StringVar(&r.pkg, "package", ".", "main package to build, in the module")
	flags.StringVar(&r.program, "program", "ostiary", "name of the program in the image")
	flags.StringVar(&r.out, "out", filepath.Join("..", "..", "dist", "ostiary.tar"), "file to write")
	flags.StringVar(&r.version, "version", "unknown", "version of the program")
	flags.StringVar(&r.revision, "revision", "", "commit that it is built from")
	reference := flags.String("name", "ostiary:dev", "name and tag of the image")
	created := flags.Int64("created", 0, "time of the image, in seconds since 1970: that of the commit")
	platforms := flags.String("platforms", "", "for example linux/amd64,linux/arm64; default: Linux on this machine's processor")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stdout, "usage: go run . [flags]")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil, nil //nolint:nilnil // said in the comment
	case err != nil:
		return nil, fmt.Errorf("%w: see -help", err)
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: every setting is a flag, see -help", flags.Arg(0))
	}
	var err error
	if r.reference, err = name.NewTag(*reference); err != nil {
		return nil, fmt.Errorf("-name %q: %w", *reference, err)
	}
	if r.program == "" || strings.ContainsAny(r.program, "/\\") {
		return nil, fmt.Errorf("-program %q: use the name of a file", r.program)
	}
	r.created = time.Unix(*created, 0).UTC()
	r.platforms, err = parsePlatforms(*platforms)
	return r, err
}
