package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of a chart in a registry: https://helm.sh/docs/topics/registries
const (
	chartConfigType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

func chartNames() []string { return []string{"ostiary", "ostiary-policies"} }

// chartVersion is the version of a chart: without v, as Helm wants it.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }

// packChart writes the archive of a chart, and the artifact of a registry that contains it.
// helm package is no alternative: it writes the current time into the archive.
func (r *release) packChart(name string, image v1.Hash) (v1.Hash, error) {
	metadata, files, err := r.chartFiles(name, image)
	if err != nil {
		return v1.Hash{}, err
	}
	var unzipped, zipped bytes.Buffer
	if err := writeTar(&unzipped, files, r.created); err != nil {
		return v1.Hash{}, err
	}
	compressed := gzip.NewWriter(&zipped)
	if _, err := compressed.Write(unzipped.Bytes()); err != nil {
		return v1.Hash{}, err
	}
	if err := compressed.Close(); err != nil {
		return v1.Hash{}, err
	}
	if err := writeFile(r.path(name+"-"+r.chartVersion()+".tgz"), zipped.Bytes()); err != nil {
		return v1.Hash{}, err
	}
	made, err := r.chartArtifact(metadata, zipped.Bytes())
	if err != nil {
		return v1.Hash{}, err
	}
	return r.writeArtifact(name, made)
}

// chartFiles returns the files of a chart, with the version of the release.
func (r *release) chartFiles(name string, image v1.Hash) (metadata map[string]any, files []file, err error) {
	folder := filepath.Join(r.charts, name)
	err = filepath.WalkDir(folder, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, at)
		if err != nil {
			return err
		}
		switch relative {
		case hubFile: // of the repository, not of the chart
			return nil
		case "Chart.yaml":
			metadata, content, err = r.chartMetadata(content, image)
		case "README.md":
			content, err = r.chartReadme(name, content)
		}
		files = append(files, file{name: path.Join(name, filepath.ToSlash(relative)), mode: 0o644, content: content})
		return err
	})
	if err == nil && metadata == nil {
		err = fmt.Errorf("%s has no Chart.yaml", folder)
	}
	return metadata, files, err
}

// chartMetadata sets the version of the release, and names the image for catalogues.
func (r *release) chartMetadata(text []byte, image v1.Hash) (map[string]any, []byte, error) {
	metadata := map[string]any{}
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, nil, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	metadata["version"], metadata["appVersion"] = r.chartVersion(), r.version
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations["artifacthub.io/prerelease"] = fmt.Sprint(strings.Contains(r.version, "-"))
	if metadata["name"] == "ostiary" {
		annotations["artifacthub.io/images"] = fmt.Sprintf("- name: ostiary\n  image: %s/ostiary:%s@%s\n", registryOfReleases, r.version, image)
	}
	metadata["annotations"] = annotations
	text, err := yaml.Marshal(metadata)
	return metadata, text, err
}

// chartReadme has the commands install the version of the release.
func (r *release) chartReadme(name string, text []byte) ([]byte, error) {
	command := "oci://" + registryOfReleases + "/charts/" + name + " --version "
	before, after, found := strings.Cut(string(text), command)
	_, after, ended := strings.Cut(after, " ")
	if !found || !ended {
		return nil, fmt.Errorf("README.md has no command with %q", command)
	}
	return []byte(before + command + r.chartVersion() + " " + after), nil
}

// chartArtifact returns a chart as Helm pushes it.
func (r *release) chartArtifact(metadata map[string]any, content []byte) (v1.Image, error) {
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	const of = "org.opencontainers.image."
	return newArtifact(chartConfigType, config, chartContentType, content, map[string]string{
		of + "title":       fmt.Sprint(metadata["name"]),
		of + "description": fmt.Sprint(metadata["description"]),
		of + "version":     r.chartVersion(),
		of + "revision":    r.revision,
		of + "source":      "https://github.com/ostiary/ostiary",
		of + "created":     r.created.Format("2006-01-02T15:04:05Z"),
	})
}

// writeArtifact writes an artifact as the archive of an OCI layout, and returns its digest.
func (r *release) writeArtifact(name string, made v1.Image) (v1.Hash, error) {
	work, err := os.MkdirTemp("", "ostiary-chart-*")
	if err != nil {
		return v1.Hash{}, fmt.Errorf("making a work folder: %w", err)
	}
	defer os.RemoveAll(work)
	into, err := layout.Write(work, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.chartVersion()})
	if err := into.AppendImage(made, named); err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout: %w", err)
	}
	if _, err := (&request{out: r.path(chartFile(name)), created: r.created}).writeArchive(work); err != nil {
		return v1.Hash{}, err
	}
	return made.Digest()
}

// chartFile is the archive with the artifact of a chart.
func chartFile(name string) string { return name + "-chart.tar" }

// newArtifact returns an artifact with one layer.
func newArtifact(configType types.MediaType, config []byte, contentType types.MediaType, content []byte, annotations map[string]string) (v1.Image, error) {
	image, err := mutate.Append(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), configType),
		mutate.Addendum{Layer: static.NewLayer(content, contentType), MediaType: contentType},
	)
	if err != nil {
		return nil, fmt.Errorf("making an artifact: %w", err)
	}
	return artifact{Image: mutate.Annotations(image, annotations).(v1.Image), config: config}, nil
}

// artifact has a configuration that is not that of an image.
type artifact struct {
	v1.Image
	config []byte
}

func (a artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

func (a artifact) ConfigName() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(a.config))
	return hash, err
}

func (a artifact) Manifest() (*v1.Manifest, error) {
	manifest, err := a.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	manifest.Config.Digest, err = a.ConfigName()
	manifest.Config.Size = int64(len(a.config))
	return manifest, err
}

func (a artifact) RawManifest() ([]byte, error) {
	manifest, err := a.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

func (a artifact) Digest() (v1.Hash, error) {
	raw, err := a.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	hash, _, err := v1.SHA256(bytes.NewReader(raw))
	return hash, err
}

func (a artifact) Size() (int64, error) {
	raw, err := a.RawManifest()
	return int64(len(raw)), err
}
