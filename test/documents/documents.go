// Package documents finds the policies that README.md, the documents and the samples show.
package documents

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Example is a policy in a document.
type Example struct {
	// Document is its path in the repository.
	Document string
	Policy   string
	// Nth counts the policies with the same name in the document, from 0.
	Nth int
	// Manifest is the policy in YAML.
	Manifest string
}

// IsSample reports whether a document is a sample.
func IsSample(document string) bool { return strings.HasPrefix(document, "config/samples/") }

// IsManifest reports whether a document is a sample or a policy of the library.
func IsManifest(document string) bool { return filepath.Ext(document) == ".yaml" }

// All returns the paths of README.md, all documents and all samples in a repository.
func All(root string) ([]string, error) {
	files := os.DirFS(root)
	samples, err := fs.Glob(files, "config/samples/[0-9]*.yaml")
	if err != nil {
		return nil, fmt.Errorf("finding samples: %w", err)
	}
	out := append([]string{"README.md"}, samples...)
	err = fs.WalkDir(files, "docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("finding documents: %w", err)
	}
	return out, nil
}

// Manifests returns the objects in the YAML blocks of a document, or in a sample.
func Manifests(root, document string) (out []string, err error) {
	raw, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		return nil, fmt.Errorf("reading a document: %w", err)
	}
	if IsManifest(document) {
		return strings.Split(string(raw), "\n---\n"), nil
	}
	for _, part := range strings.Split(string(raw), "\n```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```\n")
		out = append(out, strings.Split(block, "\n---\n")...)
	}
	return out, nil
}

// Examples returns the policies of a document.
func Examples(root, document string) ([]Example, error) {
	manifests, err := Manifests(root, document)
	if err != nil {
		return nil, err
	}
	var out []Example
	seen := map[string]int{}
	for _, manifest := range manifests {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(manifest), &o); err != nil {
			return nil, fmt.Errorf("%s: reading a YAML block: %w", document, err)
		}
		if o.Kind == "WebhookPolicy" {
			out = append(out, Example{Document: document, Policy: o.Name, Nth: seen[o.Name], Manifest: manifest})
			seen[o.Name]++
		}
	}
	return out, nil
}

// File is the path of a file with the example, for PolicyTests: "params/max-replicas.yaml" for
// the first policy max-replicas in docs/policies/bindings.md.
func (e *Example) File() string {
	name := e.Policy
	if e.Nth > 0 {
		name += fmt.Sprintf("-%d", e.Nth)
	}
	return filepath.Join(e.folder(), name+".yaml")
}

// folder is the name of the document in lower case; for the README of a folder below docs, it is
// the name of that folder.
func (e *Example) folder() string {
	page := strings.TrimSuffix(e.Document, ".md")
	if parent := filepath.Dir(page); parent != "." && filepath.Base(page) == "README" {
		page = parent
	}
	return strings.ToLower(filepath.Base(page))
}

// WriteTests writes the PolicyTests of the documents to a folder, with each policy at the path
// that the tests name. It returns the policies by path.
func WriteTests(root, folder string) (map[string]Example, error) {
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(root, "test", "documents", "tests"))); err != nil {
		return nil, fmt.Errorf("copying PolicyTests: %w", err)
	}
	all, err := All(root)
	if err != nil {
		return nil, err
	}
	out := map[string]Example{}
	for _, document := range all {
		if IsSample(document) {
			continue // config/samples/tests has their tests
		}
		examples, err := Examples(root, document)
		if err != nil {
			return nil, err
		}
		for _, e := range examples {
			if other, ok := out[e.File()]; ok {
				return nil, fmt.Errorf("%s and %s both show the policy %s: rename it in one of them", other.Document, e.Document, e.Policy)
			}
			out[e.File()] = e
			if err := e.write(folder); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (e *Example) write(folder string) error {
	path := filepath.Join(folder, e.File())
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(e.Manifest), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing a policy of %s: %w", e.Document, err)
	}
	return nil
}
