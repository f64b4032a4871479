package main

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// signer signs with cosign. Without a path, nothing is signed.
type signer struct {
	cosign    string
	arguments string
}

func (s *signer) bind(flags *flag.FlagSet) {
	flags.StringVar(&s.cosign, "cosign", "", "path of cosign; empty: sign nothing")
	flags.StringVar(&s.arguments, "sign", "", "further arguments of cosign, separated by spaces, such as --key=cosign.key --tlog-upload=false")
}

// signFile writes the signature of a file beside it.
func (s signer) signFile(ctx context.Context, path string) error {
	return s.run(ctx, "sign-blob", "--new-bundle-format", "--bundle="+path+".sigstore.json", path)
}

func (s signer) run(ctx context.Context, command string, args ...string) error {
	if s.cosign == "" {
		return nil
	}
	args = append(append([]string{command, "--yes"}, strings.Fields(s.arguments)...), args...)
	cmd := exec.CommandContext(ctx, s.cosign, args...)
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cosign %s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// publication pushes a release to a registry, and signs what it pushed.
type publication struct {
	folder    string
	charts    string // folder of the charts
	version   string
	registry  string
	signer    signer
	statement statement
}

func publish(ctx context.Context, args []string, stdout io.Writer) error {
	p := &publication{}
	flags := flag.NewFlagSet("image publish", flag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.StringVar(&p.folder, "folder", filepath.Join("..", "..", "dist", "release"), "folder of the release")
	flags.StringVar(&p.charts, "charts", filepath.Join("..", "..", "charts"), "folder of the charts")
	flags.StringVar(&p.version, "version", "", "version of the release, such as v0.1.0")
	flags.StringVar(&p.registry, "registry", registryOfReleases, "registry, with the path below it")
	p.signer.bind(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case !semantic.MatchString(p.version):
		return fmt.Errorf("-version %q: give a semantic version with v, such as v0.1.0", p.version)
	}
	pushed, err := p.push(ctx)
	if err != nil {
		return fmt.Errorf("publishing %s to %s: %w", p.version, p.registry, err)
	}
	for _, reference := range pushed {
		fmt.Fprintln(stdout, reference)
	}
	return nil
}

// push pushes the image, then the charts, which refer to it.
func (p *publication) push(ctx context.Context) (pushed []string, err error) {
	if p.statement, err = readProvenance(filepath.Join(p.folder, provenanceFile)); err != nil {
		return nil, err
	}
	if made := p.statement.Predicate.Definition.Parameters["version"]; made != p.version {
		return nil, fmt.Errorf("%s has the release %q: run make release VERSION=%s", p.folder, made, p.version)
	}
	image, err := openArchive(filepath.Join(p.folder, imageFile))
	if err != nil {
		return nil, err
	}
	defer image.close()
	reference, err := p.pushArchive(ctx, image, "ostiary", p.version)
	if err != nil {
		return nil, err
	}
	if err := p.attestContents(ctx, image); err != nil {
		return nil, err
	}
	pushed = append(pushed, reference)
	for _, chart := range chartNames() {
		archive, err := openArchive(filepath.Join(p.folder, chartFile(chart)))
		if err != nil {
			return nil, err
		}
		reference, err := p.pushArchive(ctx, archive, "charts/"+chart, strings.TrimPrefix(p.version, "v"))
		archive.close()
		if err != nil {
			return nil, err
		}
		if err := p.pushSettings(ctx, chart); err != nil {
			return nil, err
		}
		pushed = append(pushed, reference)
	}
	return pushed, nil
}

// pushArchive pushes, signs and attests an artifact, and returns its name with the digest.
func (p *publication) pushArchive(ctx context.Context, a *archived, repository, tag string) (string, error) {
	reference, err := name.NewTag(p.registry + "/" + repository + ":" + tag)
	if err != nil {
		return "", fmt.Errorf("naming %s: %w", repository, err)
	}
	if !p.statement.names(registryOfReleases+"/"+repository, a.digest) {
		return "", fmt.Errorf("the provenance does not name %s with the digest %s: run make release again", repository, a.digest)
	}
	if err := a.push(reference, options(ctx)...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", reference, err)
	}
	digest := reference.Context().Digest(a.digest.String()).String()
	if err := p.signer.run(ctx, "sign", digest); err != nil {
		return "", err
	}
	return digest, p.attestProvenance(ctx, digest)
}

func options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// Artifact Hub reads the settings of a repository from a tag:
// https://artifacthub.io/docs/topics/repositories
const (
	hubTag                         = "artifacthub.io"
	hubFile                        = "artifacthub-repo.yml"
	hubConfigType  types.MediaType = "application/vnd.cncf.artifacthub.config.v1+yaml"
	hubContentType types.MediaType = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
)

// pushSettings pushes the settings of a chart's repository at Artifact Hub.
func (p *publication) pushSettings(ctx context.Context, chart string) error {
	content, err := os.ReadFile(filepath.Join(p.charts, chart, hubFile))
	if err != nil {
		return fmt.Errorf("reading the settings for Artifact Hub: %w", err)
	}
	settings, err := newArtifact(hubConfigType, []byte("{}"), hubContentType, content, nil)
	if err != nil {
		return err
	}
	reference, err := name.NewTag(p.registry + "/charts/" + chart + ":" + hubTag)
	if err == nil {
		err = remote.Write(reference, settings, options(ctx)...)
	}
	if err != nil {
		return fmt.Errorf("pushing the settings for Artifact Hub: %w", err)
	}
	return nil
}

// attestProvenance attaches the provenance of the release.
func (p *publication) attestProvenance(ctx context.Context, digest string) error {
	predicate, err := os.CreateTemp("", "ostiary-provenance-*.json")
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	defer os.Remove(predicate.Name())
	if err := errors.Join(predicate.Close(), writeJSON(predicate.Name(), p.statement.Predicate)); err != nil {
		return err
	}
	return p.signer.run(ctx, "attest", "--type=slsaprovenance1", "--predicate="+predicate.Name(), digest)
}

// attestContents attaches the bill of materials to the image of each platform.
func (p *publication) attestContents(ctx context.Context, image *archived) error {
	for _, m := range image.images {
		bill := filepath.Join(p.folder, "ostiary-"+m.Platform.OS+"-"+m.Platform.Architecture+".spdx.json")
		if err := p.signer.run(ctx, "attest", "--type=spdxjson", "--predicate="+bill, p.registry+"/ostiary@"+m.Digest.String()); err != nil {
			return err
		}
	}
	return nil
}

// archived is the artifact in the archive of an OCI layout.
type archived struct {
	folder string
	digest v1.Hash
	index  v1.ImageIndex // of several platforms, or nil
	image  v1.Image
	images []v1.Descriptor // of the index
}

func (a *archived) close() { _ = os.RemoveAll(a.folder) }

func (a *archived) push(to name.Tag, with ...remote.Option) error {
	if a.index != nil {
		return remote.WriteIndex(to, a.index, with...)
	}
	return remote.Write(to, a.image, with...)
}

// openArchive unpacks an archive of an OCI layout with one artifact.
func openArchive(path string) (*archived, error) {
	folder, err := os.MkdirTemp("", "ostiary-layout-*")
	if err != nil {
		return nil, fmt.Errorf("making a work folder: %w", err)
	}
	a := &archived{folder: folder}
	if err := unpackTar(path, folder); err != nil {
		a.close()
		return nil, fmt.Errorf("unpacking %s: %w", path, err)
	}
	if err := a.read(); err != nil {
		a.close()
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return a, nil
}

func (a *archived) read() error {
	root, err := layout.ImageIndexFromPath(a.folder)
	if err != nil {
		return err
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return err
	}
	if n := len(manifest.Manifests); n != 1 {
		return fmt.Errorf("the layout has %d artifacts, want one", n)
	}
	only := manifest.Manifests[0]
	a.digest = only.Digest
	if !only.MediaType.IsIndex() {
		a.image, err = root.Image(only.Digest)
		return err
	}
	if a.index, err = root.ImageIndex(only.Digest); err != nil {
		return err
	}
	if manifest, err = a.index.IndexManifest(); err != nil {
		return err
	}
	a.images = manifest.Manifests
	return nil
}

func unpackTar(path, folder string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	for files := tar.NewReader(in); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("%q is outside of the archive", header.Name)
		}
		content, err := io.ReadAll(io.LimitReader(files, maxFile))
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(folder, header.Name), content); err != nil {
			return err
		}
	}
}
