package main

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// editorSchema returns the schema of a kind for editors, from the definition that controller-gen
// writes. A field that it does not have is an error, as in kubectl-ostiary.
func editorSchema(definition []byte) (string, error) {
	root, err := policyTestRoot(definition)
	if err != nil {
		return "", err
	}
	var crd struct {
		Spec struct {
			Group    string `json:"group"`
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(definition, &crd); err != nil {
		return "", err
	}
	raw, err := json.Marshal(root)
	if err != nil {
		return "", err
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return "", err
	}
	strict(tree)
	tree["$schema"] = "http://json-schema.org/draft-07/schema#"
	tree["title"] = crd.Spec.Names.Kind
	if properties, ok := tree["properties"].(map[string]any); ok {
		properties["apiVersion"] = map[string]any{"const": crd.Spec.Group + "/" + crd.Spec.Versions[0].Name}
		properties["kind"] = map[string]any{"const": crd.Spec.Names.Kind}
		properties["metadata"] = map[string]any{
			"type":       "object",
			"required":   []any{"name"},
			"properties": map[string]any{"name": map[string]any{"type": "string", "minLength": 1}},
		}
	}
	out, err := json.MarshalIndent(tree, "", "  ")
	return string(out) + "\n", err
}

// policyTestReference returns the document of the fields of PolicyTests.
func policyTestReference(definition []byte) (string, error) {
	root, err := policyTestRoot(definition)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, name)
	}
	w := newWriter()
	w.WriteString("# PolicyTest\n\n<!-- Written by `make manifests` from the code: do not edit. -->\n\n`apiVersion: test.ostiary.dev/v1alpha1`, `kind: PolicyTest`. `kubectl ostiary test` reads it from files. " +
		"[The schema](policytest.schema.json) is for editors.\n\nFields in **bold** are required.\n")
	w.section("PolicyTest", root)
	return w.String(), nil
}

func policyTestRoot(definition []byte) (schema, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return schema{}, err
	}
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Schema == nil || crd.Spec.Versions[0].Schema.OpenAPIV3Schema == nil {
		return schema{}, fmt.Errorf("want one version with a schema")
	}
	return *crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil
}

// strict forbids fields that are not in the schema, and removes extensions of Kubernetes.
func strict(node any) {
	switch node := node.(type) {
	case map[string]any:
		_, named := node["properties"].(map[string]any)
		if _, open := node["x-kubernetes-preserve-unknown-fields"]; named && !open {
			node["additionalProperties"] = false
		}
		delete(node, "x-kubernetes-preserve-unknown-fields")
		for _, child := range node {
			strict(child)
		}
	case []any:
		for _, child := range node {
			strict(child)
		}
	}
}
