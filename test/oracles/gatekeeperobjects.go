package oracles

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ostiary/ostiary/internal/load"
)

//go:embed testdata/gatekeeper/objects.yaml
var gatekeeperObjectsText []byte

// PublicLibrary returns the templates of a folder for which there are parameters.
func PublicLibrary(ctx context.Context, folder string) (out []PublicTemplate, err error) {
	known := parametersOf(NewAuthor(0, 0))
	err = filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "template.yaml" {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading a template: %w", err)
		}
		objects, err := load.Text(ctx, name, text)
		if err != nil {
			return fmt.Errorf("reading a template: %w", err)
		}
		for i := range objects {
			var o object
			if err := json.Unmarshal(objects[i].Raw, &o); err != nil {
				return fmt.Errorf("decoding the template %s: %w", name, err)
			}
			kind, _ := valueAt(o, path{"spec", "crd", "spec", "names", "kind"}).(string)
			version, _ := valueAt(o, path{"metadata", "annotations", "metadata.gatekeeper.sh/version"}).(string)
			if _, ok := known[kind]; ok {
				out = append(out, PublicTemplate{Name: kind + " " + version, Kind: kind, Object: o})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the library %s: %w", folder, err)
	}
	return out, nil
}

// GatekeeperObjects returns the objects that requests are made of, by kind.
func GatekeeperObjects(ctx context.Context) (map[string][]map[string]any, error) {
	out, err := Objects(ctx)
	if err != nil {
		return nil, err
	}
	more, err := load.Text(ctx, "objects.yaml", gatekeeperObjectsText)
	if err != nil {
		return nil, fmt.Errorf("reading the objects: %w", err)
	}
	for i := range more {
		var o object
		if err := json.Unmarshal(more[i].Raw, &o); err != nil {
			return nil, fmt.Errorf("decoding the objects: %w", err)
		}
		out[more[i].Kind] = append(out[more[i].Kind], o)
	}
	return out, nil
}
