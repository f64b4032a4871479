// Package kubernetes has what API servers of the supported Kubernetes versions serve. The
// files are written by hack/discovery.
package kubernetes

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/typecheck"
)

//go:embed resources-*.json.gz schemas-*.zip
var files embed.FS

// Schemas are the schemas of the kinds of a Kubernetes version. They are safe for
// concurrent use.
type Schemas struct{ archive *zip.Reader }

// NewSchemas returns the schemas of a version. They are decompressed when they are needed.
func NewSchemas(e policy.Engine) (*Schemas, error) {
	name := fmt.Sprintf("schemas-%s.zip", e)
	content, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the schemas of Kubernetes %s: %w", e, err)
	}
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", name, err)
	}
	return &Schemas{archive: archive}, nil
}

// Document returns the document of a group version; nil if the version has none.
func (s *Schemas) Document(gv schema.GroupVersion) (*typecheck.Document, error) {
	name := "apis/" + gv.String()
	if gv.Group == "" {
		name = "api/" + gv.Version
	}
	text, err := fs.ReadFile(s.archive, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || !fs.ValidPath(name):
		return nil, nil //nolint:nilnil // the version of a custom resource is no error
	case err != nil:
		return nil, fmt.Errorf("unpacking the schemas of %s: %w", gv, err)
	}
	return typecheck.ParseDocument(text)
}

// Resources returns the resources of a Kubernetes version with all of its APIs, also those
// that are off by default. Every call returns new lists.
func Resources(e policy.Engine) (apiresources.Lists, error) {
	name := fmt.Sprintf("resources-%s.json.gz", e)
	file, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the resources of Kubernetes %s: %w", e, err)
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", name, err)
	}
	var byVersion map[string]json.RawMessage
	if err := json.NewDecoder(unpacked).Decode(&byVersion); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", name, err)
	}
	out := apiresources.Lists{}
	for text, raw := range byVersion {
		gv, err := schema.ParseGroupVersion(text)
		if err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		list := out[gv]
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", name, err)
		}
		out[gv] = list
	}
	return out, nil
}
