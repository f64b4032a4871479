package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	folder = "/api/openapi-spec/v3/"
	suffix = "_openapi.json"
)

// schemas returns an archive with the OpenAPI document of each group version, as
// "apis/apps/v1". Documents have only what the type of a value depends on.
func schemas(archive string) ([]byte, error) {
	files, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.BestCompression) })
	found := 0
	for _, f := range files.File { // in the order of names
		if !strings.Contains(f.Name, folder) || !strings.HasSuffix(f.Name, suffix) {
			continue
		}
		name := strings.ReplaceAll(strings.TrimSuffix(path.Base(f.Name), suffix), "__", "/")
		if err := addSchemas(w, name, f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		found++
	}
	if found == 0 {
		return nil, fmt.Errorf("it has no files in %s", folder)
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// addSchemas adds a document, if it has schemas. Without a time, the archive depends on
// its content alone.
func addSchemas(w *zip.Writer, name string, f *zip.File) error {
	var document struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := decode(f, &document); err != nil {
		return err
	}
	if len(document.Components.Schemas) == 0 {
		return nil
	}
	for _, schema := range document.Components.Schemas {
		strip(schema)
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	to, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
	if err != nil {
		return err
	}
	_, err = to.Write(text)
	return err
}

// strip removes descriptions and defaults of a schema and of its parts. A property can have such a
// name.
func strip(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, item := range schema {
			strip(item)
		}
	case map[string]any:
		for name, value := range schema {
			properties, ok := value.(map[string]any)
			switch {
			case name == "properties" && ok:
				for _, property := range properties {
					strip(property)
				}
			case name == "description" || name == "default" || name == "example":
				delete(schema, name)
			default:
				strip(value)
			}
		}
	}
}
