package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The used parts of an in-toto statement with the provenance of SLSA 1.0:
// https://slsa.dev/spec/v1.0/provenance
type (
	statement struct {
		Type          string     `json:"_type"`
		Subject       []resource `json:"subject"`
		PredicateType string     `json:"predicateType"`
		Predicate     provenance `json:"predicate"`
	}
	resource struct {
		Name   string            `json:"name,omitempty"`
		URI    string            `json:"uri,omitempty"`
		Digest map[string]string `json:"digest"`
	}
	provenance struct {
		Definition buildDefinition `json:"buildDefinition"`
		Details    runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		Type       string            `json:"buildType"`
		Parameters map[string]string `json:"externalParameters"`
		Resolved   []resource        `json:"resolvedDependencies"`
	}
	runDetails struct {
		Builder builder `json:"builder"`
	}
	builder struct {
		ID string `json:"id"`
	}
)

const sourceURI = "git+https://github.com/ostiary/ostiary"

// writeProvenance writes how the files and the artifacts were built. It has no time, so two
// builds give the same statement.
func (r *release) writeProvenance(artifacts map[string]v1.Hash) error {
	s := statement{
		Type:          "https://in-toto.io/Statement/v1",
		PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: provenance{
			Definition: buildDefinition{
				Type:       "https://github.com/ostiary/ostiary/blob/main/docs/operations/releases.md",
				Parameters: map[string]string{"version": r.version},
				Resolved:   []resource{{URI: sourceURI + "@refs/tags/" + r.version, Digest: map[string]string{"gitCommit": r.revision}}},
			},
			Details: runDetails{Builder: builder{ID: r.builder}},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(artifacts)) {
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": artifacts[name].Hex}})
	}
	names, err := r.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == provenanceFile {
			continue
		}
		sum, err := sumOf(r.path(name))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return writeJSON(r.path(provenanceFile), s)
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return writeFile(path, append(text, '\n'))
}

// names reports whether the statement is about an artifact with a digest.
func (s statement) names(artifact string, digest v1.Hash) bool {
	return slices.ContainsFunc(s.Subject, func(r resource) bool { return r.Name == artifact && r.Digest["sha256"] == digest.Hex })
}

// readProvenance returns the statement of a release.
func readProvenance(path string) (statement, error) {
	var s statement
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("reading the provenance: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading the provenance: %w", err)
	}
	return s, nil
}
