package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	registryOfReleases = "ghcr.io/ostiary"
	imageFile          = "ostiary.tar"
	provenanceFile     = "provenance.intoto.json"
	sumsFile           = "SHA256SUMS"
	// devImage is the image of the manifests in config.
	devImage = registryOfReleases + "/ostiary:dev"
	// maxFile is the maximum of bytes of a file in a release.
	maxFile = 512 << 20
)

// release completes a folder that holds the image, the archives of kubectl-ostiary and the
// rendered manifests of a version.
type release struct {
	folder   string
	charts   string // folder of the charts
	version  string // such as v0.1.0
	revision string
	builder  string // URI of what runs the build
	created  time.Time
	signer   signer
}

// semantic is a version of a release.
var semantic = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

func makeRelease(ctx context.Context, args []string, stdout io.Writer) error {
	r := &release{}
	flags := flag.NewFlagSet("image release", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.StringVar(&r.folder, "folder", filepath.Join("..", "..", "dist", "release"), "folder of the release")
	flags.StringVar(&r.charts, "charts", filepath.Join("..", "..", "charts"), "folder of the charts")
	flags.StringVar(&r.version, "version", "", "version, such as v0.1.0")
	flags.StringVar(&r.revision, "revision", "", "commit that it is built from")
	flags.StringVar(&r.builder, "builder", "https://github.com/ostiary/ostiary/blob/main/hack/release.sh", "URI of what runs the build, for the provenance")
	created := flags.Int64("created", 0, "time of the files, in seconds since 1970: that of the commit")
	r.signer.bind(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case !semantic.MatchString(r.version):
		return fmt.Errorf("-version %q: give a semantic version with v, such as v0.1.0", r.version)
	case !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(r.revision):
		return fmt.Errorf("-revision %q: give the full name of a commit", r.revision)
	}
	r.created = time.Unix(*created, 0).UTC()
	if err := r.complete(ctx); err != nil {
		return fmt.Errorf("making the release %s: %w", r.version, err)
	}
	fmt.Fprintf(stdout, "%s: the release %s\n", r.folder, r.version)
	return nil
}

// complete adds what is made of the parts, then the provenance, which names all of them, then
// the checksums and their signature.
func (r *release) complete(ctx context.Context) error {
	image, err := openArchive(r.path(imageFile))
	if err != nil {
		return err
	}
	defer image.close()
	if err := r.pinManifests(image.digest); err != nil {
		return err
	}
	if err := r.describePrograms(); err != nil {
		return err
	}
	digests := map[string]v1.Hash{registryOfReleases + "/ostiary": image.digest}
	for _, name := range chartNames() {
		made, err := r.packChart(name, image.digest)
		if err != nil {
			return fmt.Errorf("packing the chart %s: %w", name, err)
		}
		digests[registryOfReleases+"/charts/"+name] = made
	}
	if err := r.writeProvenance(digests); err != nil {
		return err
	}
	if err := r.writeSums(); err != nil {
		return err
	}
	return r.signer.signFile(ctx, r.path(sumsFile))
}

func (r *release) path(name string) string { return filepath.Join(r.folder, name) }

// pinManifests gives the manifests the image of the release, by its digest.
func (r *release) pinManifests(digest v1.Hash) error {
	for _, name := range []string{"install.yaml", "self-test.yaml", "uninstall.yaml"} {
		text, err := os.ReadFile(r.path(name))
		if err != nil {
			return fmt.Errorf("reading the manifests: %w", err)
		}
		if n := bytes.Count(text, []byte(devImage)); n != 1 {
			return fmt.Errorf("%s has the image %s %d times, want once", name, devImage, n)
		}
		pinned := fmt.Sprintf("%s/ostiary:%s@%s", registryOfReleases, r.version, digest)
		if err := writeFile(r.path(name), bytes.ReplaceAll(text, []byte(devImage), []byte(pinned))); err != nil {
			return err
		}
	}
	return nil
}

var archiveName = regexp.MustCompile(`^(kubectl-ostiary)_([a-z]+)_([a-z0-9]+)(\.tar\.gz|\.zip)$`)

// describePrograms writes the bill of materials of each archive with a program.
func (r *release) describePrograms() error {
	names, err := r.names()
	if err != nil {
		return err
	}
	described := 0
	for _, name := range names {
		parts := archiveName.FindStringSubmatch(name)
		if parts == nil {
			continue
		}
		if err := r.describeProgram(name, parts[1], v1.Platform{OS: parts[2], Architecture: parts[3]}); err != nil {
			return fmt.Errorf("describing %s: %w", name, err)
		}
		described++
	}
	if described == 0 {
		return fmt.Errorf("%s has no archive of kubectl-ostiary", r.folder)
	}
	return nil
}

func (r *release) describeProgram(archive, program string, p v1.Platform) error {
	content, err := programIn(r.path(archive), program)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ostiary-release-*")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, program)
	if err := writeFile(binary, content); err != nil {
		return err
	}
	bill, err := (&request{program: program, version: r.version, created: r.created}).sbom(binary, p)
	if err != nil {
		return err
	}
	base := strings.TrimSuffix(strings.TrimSuffix(archive, ".zip"), ".tar.gz")
	return writeFile(r.path(base+".spdx.json"), bill)
}

// programIn returns the program in an archive of kubectl-ostiary.
func programIn(archive, program string) ([]byte, error) {
	if strings.HasSuffix(archive, ".zip") {
		files, err := zip.OpenReader(archive)
		if err != nil {
			return nil, err
		}
		defer files.Close()
		in, err := files.Open(program + ".exe")
		if err != nil {
			return nil, err
		}
		defer in.Close()
		return io.ReadAll(io.LimitReader(in, maxFile))
	}
	in, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", program, err)
		}
		if header.Name == program {
			return io.ReadAll(io.LimitReader(files, maxFile))
		}
	}
}

// names returns the files of the release in order, without those that are written last.
func (r *release) names() (names []string, err error) {
	entries, err := os.ReadDir(r.folder)
	if err != nil {
		return nil, fmt.Errorf("reading the release: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); entry.Type().IsRegular() && !strings.HasPrefix(name, sumsFile) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// writeSums writes the checksums of all files, in the format of sha256sum.
func (r *release) writeSums() error {
	names, err := r.names()
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range names {
		sum, err := sumOf(r.path(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	return writeFile(r.path(sumsFile), []byte(sums.String()))
}

func sumOf(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("summing: %w", err)
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", fmt.Errorf("summing %s: %w", path, err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
