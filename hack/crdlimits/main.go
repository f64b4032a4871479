// Command crdlimits amends the CustomResourceDefinitions that controller-gen
// wrote. They reuse Kubernetes' own types, and markers cannot reach the fields
// inside them; this step adds their limits, rules and descriptions from one table
// for each kind, and fails where a string, list or map is left without a limit.
//
//	crdlimits FILE...
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// maxCRDBytes keeps each definition small enough for client-side apply, which
// stores it a second time in an annotation of at most 256 KiB.
const maxCRDBytes = 200_000

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crdlimits:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		return errors.New("name at least one file with a CustomResourceDefinition")
	}
	for _, file := range files {
		if err := amendFile(file); err != nil {
			return fmt.Errorf("amending %s: %w", file, err)
		}
	}
	return nil
}

func amendFile(file string) error {
	in, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := amendCRD(in, tables())
	if err != nil {
		return err
	}
	return os.WriteFile(file, out, 0o644)
}

// amendCRD applies the table of its kind to every version of a definition in YAML.
func amendCRD(in []byte, byKind map[string][]amendment) ([]byte, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(in, &crd); err != nil {
		return nil, err
	}
	table, found := byKind[crd.Spec.Names.Kind]
	if !found {
		return nil, fmt.Errorf("there is no table for the kind %q: add one in tables", crd.Spec.Names.Kind)
	}
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return nil, fmt.Errorf("version %s has no schema", v.Name)
		}
		if err := errors.Join(amend(v.Schema.OpenAPIV3Schema, table)...); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
		if err := errors.Join(incomplete(v.Schema.OpenAPIV3Schema)...); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	out, err := toYAML(crd)
	if err != nil {
		return nil, err
	}
	if len(out) > maxCRDBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed: shorten descriptions", len(out), maxCRDBytes)
	}
	return out, nil
}

// toYAML writes a definition without its status, which the API server owns.
func toYAML(crd apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	raw, err := json.Marshal(crd)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	out, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), out...), nil
}
