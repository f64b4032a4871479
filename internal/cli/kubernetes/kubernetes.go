// Package kubernetes has what API servers of the supported Kubernetes versions serve. The
// files are written by hack/discovery.
package kubernetes

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/policy"
)

//go:embed resources-*.json.gz
var files embed.FS

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
