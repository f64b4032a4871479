package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is an unprivileged user id. An empty base has no /etc/passwd with names.
const user = "65532:65532"

const (
	sbomName = "sbom.spdx.json"
	rootsDir = "etc/ssl/certs"
)

// result has the files and the digest of the image.
type result struct {
	digest v1.Hash
	bytes  int64
}

// make builds for every platform and writes the tar file and the bills of materials.
func (r *request) make(ctx context.Context) (result, error) {
	work, err := os.MkdirTemp("", "ostiary-image-*")
	if err != nil {
		return result{}, fmt.Errorf("making a work folder: %w", err)
	}
	defer os.RemoveAll(work)
	images := make([]v1.Image, 0, len(r.platforms))
	for i, p := range r.platforms {
		binary := filepath.Join(work, fmt.Sprintf("%d", i))
		if err := r.build(ctx, p, binary); err != nil {
			return result{}, err
		}
		bill, err := r.sbom(binary, p)
		if err != nil {
			return result{}, err
		}
		image, err := r.image(p, binary, bill)
		if err != nil {
			return result{}, err
		}
		images = append(images, image)
		if err := writeFile(r.sbomFile(p), bill); err != nil {
			return result{}, err
		}
	}
	return r.archive(filepath.Join(work, "layout"), images)
}

// sbomFile returns the path of the bill of materials, one for each platform.
func (r *request) sbomFile(p v1.Platform) string {
	base := strings.TrimSuffix(r.out, ".tar")
	if len(r.platforms) > 1 {
		base += "-" + p.OS + "-" + p.Architecture
	}
	return base + ".spdx.json"
}

// image returns an image with two layers: files that seldom change, and the program.
func (r *request) image(p v1.Platform, binary string, bill []byte) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("reading the license: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, content := range []struct {
		says  string
		files []file
	}{
		{"license and public certificate authorities", []file{
			{name: "LICENSE", mode: 0o644, content: license},
			{name: rootsDir + "/ca-certificates.crt", mode: 0o644, content: roots()},
		}},
		{"program and what it was built from", []file{
			{name: r.program, mode: 0o755, content: program},
			{name: sbomName, mode: 0o644, content: bill},
		}},
	} {
		layer, err := newLayer(content.files, r.created)
		if err != nil {
			return nil, err
		}
		added := mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{
			Created: v1.Time{Time: r.created}, CreatedBy: "hack/image", Comment: content.says,
		}}
		if image, err = mutate.Append(image, added); err != nil {
			return nil, fmt.Errorf("adding a layer: %w", err)
		}
	}
	return r.configure(image, p)
}

func (r *request) configure(image v1.Image, p v1.Platform) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = p.OS, p.Architecture
	config.Created = v1.Time{Time: r.created}
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/" + r.program},
		WorkingDir: "/",
		Labels:     r.labels(),
	}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// labels are those of the OCI image specification.
func (r *request) labels() map[string]string {
	const of = "org.opencontainers.image."
	labels := map[string]string{
		of + "title":         r.program,
		of + "description":   "Kubernetes admission operator: policies become webhooks, with their certificates",
		of + "source":        "https://github.com/ostiary/ostiary",
		of + "documentation": "https://github.com/ostiary/ostiary/tree/main/docs",
		of + "licenses":      "Apache-2.0",
		of + "version":       r.version,
		of + "created":       r.created.Format("2006-01-02T15:04:05Z"),
		of + "revision":      r.revision,
	}
	if r.revision == "" {
		delete(labels, of+"revision")
	}
	return labels
}

// roots are the public certificate authorities that Mozilla trusts. Ostiary probes external
// webhooks without a CA bundle with them, as an API server does with those of its host.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writes to memory
	}
	return out.Bytes()
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
