package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is a file in a tar archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// newLayer returns a layer with files, owned by root, and their folders.
func newLayer(files []file, modified time.Time) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, files, modified); err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	return layer, nil
}

func writeTar(w io.Writer, files []file, modified time.Time) error {
	out := tar.NewWriter(w)
	made := map[string]bool{".": true}
	for _, f := range files {
		for _, folder := range missing(path.Dir(f.name), made) {
			header := &tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: modified, Format: tar.FormatUSTAR}
			if err := out.WriteHeader(header); err != nil {
				return err
			}
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)),
			ModTime: modified, Format: tar.FormatUSTAR,
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(f.content); err != nil {
			return err
		}
	}
	return out.Close()
}

// missing returns the parents of a file that made does not contain, and adds them to it.
func missing(folder string, made map[string]bool) []string {
	var out []string
	for ; !made[folder]; folder = path.Dir(folder) {
		made[folder] = true
		out = append(out, folder)
	}
	slices.Reverse(out)
	return out
}

// archive writes the images as an OCI layout, with their name: one image, or an index of the
// images of several platforms.
func (r *request) archive(dir string, images []v1.Image) (result, error) {
	named := layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.reference.TagStr(),
		"io.containerd.image.name":          r.fullName(),
	})
	into, err := layout.Write(dir, empty.Index)
	if err != nil {
		return result{}, fmt.Errorf("writing the layout: %w", err)
	}
	var made result
	if len(images) == 1 {
		if err := into.AppendImage(images[0], named, layout.WithPlatform(r.platforms[0])); err != nil {
			return result{}, fmt.Errorf("writing the layout: %w", err)
		}
		made.digest, err = images[0].Digest()
	} else {
		index := r.index(images)
		if err := into.AppendIndex(index, named); err != nil {
			return result{}, fmt.Errorf("writing the layout: %w", err)
		}
		made.digest, err = index.Digest()
	}
	if err != nil {
		return result{}, fmt.Errorf("reading the digest: %w", err)
	}
	made.bytes, err = r.writeArchive(dir)
	return made, err
}

// fullName returns the name that container runtimes give to a name without a registry.
func (r *request) fullName() string {
	registry := r.reference.RegistryStr()
	if registry == "index.docker.io" {
		registry = "docker.io"
	}
	return registry + "/" + r.reference.RepositoryStr() + ":" + r.reference.TagStr()
}

func (r *request) index(images []v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &r.platforms[i]}})
	}
	return index
}

// writeArchive writes the layout under a temporary name, and renames it when it is complete.
func (r *request) writeArchive(dir string) (int64, error) {
	var files []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, file{name: filepath.ToSlash(relative), mode: 0o644, content: content})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("reading the layout: %w", err)
	}
	var content bytes.Buffer
	if err := writeTar(&content, files, r.created); err != nil {
		return 0, fmt.Errorf("packing the layout: %w", err)
	}
	building := r.out + ".building"
	defer os.Remove(building)
	if err := writeFile(building, content.Bytes()); err != nil {
		return 0, err
	}
	return int64(content.Len()), os.Rename(building, r.out)
}
