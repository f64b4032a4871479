// Command docs writes the reference of the API, in Markdown, from the
// CustomResourceDefinitions: every field with its type, its limits and its
// description, and the messages of the rules that it has to keep.
//
//	docs DEFINITION DOCUMENT
package main

import (
	"errors"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) != 2 {
		return errors.New("name the file of a CustomResourceDefinition and the document to write")
	}
	in, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	out, err := reference(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", files[0], err)
	}
	return os.WriteFile(files[1], []byte(out), 0o644)
}

// reference is the document about a definition in YAML, which has one version.
func reference(definition []byte) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return "", err
	}
	if n := len(crd.Spec.Versions); n != 1 {
		return "", fmt.Errorf("it has %d versions: write the document for one", n)
	}
	v := crd.Spec.Versions[0]
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return "", fmt.Errorf("version %s has no schema", v.Name)
	}
	w := newWriter()
	w.title(crd.Spec, v)
	w.sections(*v.Schema.OpenAPIV3Schema)
	return w.String(), nil
}
