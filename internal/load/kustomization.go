package load

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxKustomizations is the maximum number of kustomizations that one includes.
const maxKustomizations = 1000

// kustomizationChecker checks what kustomizations name before a program renders them:
// kustomize reads files only below each kustomization, but folders anywhere, and it fetches
// with HTTP and git.
type kustomizationChecker struct {
	options Options
	seen    map[string]bool
}

// check checks the kustomization of a folder, and those that it includes.
func (k *kustomizationChecker) check(folder string) error {
	if k.seen[folder] {
		return nil // kustomize reports cycles
	}
	if len(k.seen) == maxKustomizations {
		return &Error{Position: Position{File: folder}, Text: fmt.Sprintf("more than %d kustomizations include each other", maxKustomizations)}
	}
	k.seen[folder] = true
	for _, name := range kustomizationNames() {
		path := filepath.Join(folder, name)
		if _, err := k.options.stat(path); err != nil {
			continue // kustomize reports it, if there is none
		}
		if err := k.file(path); err != nil {
			return err
		}
	}
	return nil
}

func kustomizationNames() []string {
	return []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}
}

func (k *kustomizationChecker) file(path string) error {
	l := loader{options: k.options}
	if err := l.file(path); err != nil {
		return err
	}
	documents, err := split(path, l.files[0].text)
	if err != nil {
		return err
	}
	for _, d := range documents {
		raw, err := d.toJSON()
		if err != nil {
			return err
		}
		if err := k.document(d, raw); err != nil {
			return err
		}
	}
	return nil
}

// document checks the fields of a kustomization. Their names are not case-sensitive.
func (k *kustomizationChecker) document(d *document, raw []byte) error {
	var fields map[string]any
	if raw == nil || json.Unmarshal(raw, &fields) != nil {
		return nil //nolint:nilerr // kustomize reports what is no kustomization
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		var err error
		switch strings.ToLower(field) {
		case "apiversion", "kind", "metadata", "nameprefix", "namesuffix", "namespace", "labels", "commonlabels", "commonannotations",
			"images", "replicas", "vars", "generatoroptions", "buildmetadata", "sortoptions":
		case "generators", "transformers", "validators":
			if !k.options.AllowRemote || k.options.Root != "" {
				err = d.refuse([]string{field}, "the configuration of a plugin can name remote files: "+fixOfRemote)
			}
		case "resources", "bases", "components":
			err = k.value(d, []string{field}, fields[field], k.include)
		default:
			err = k.value(d, []string{field}, fields[field], k.reference)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value calls check for all texts of a value, except those of literals.
func (k *kustomizationChecker) value(d *document, path []string, value any, check func(d *document, path []string, text string) error) error {
	in := func(name string, value any) error { return k.value(d, append(slices.Clone(path), name), value, check) }
	switch v := value.(type) {
	case string:
		return check(d, path, v)
	case []any:
		for i := range v {
			if err := in(strconv.Itoa(i), v[i]); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name == "literals" {
				continue
			}
			if err := in(name, v[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

const fixOfRemote = "render the kustomization yourself and name its output, or use --allow-remote of test, lint, eval, explain or replay"

func (d *document) refuse(path []string, text string) error {
	return &Error{Position: d.find(path), Text: joinField(path) + ": " + text}
}

// Forms of remote files and repositories. Kustomize clones what begins with a host that it
// knows, even if there is a folder with this name.
var (
	remoteFile   = regexp.MustCompile(`(?i)^([^=]*=)?\s*https?:`)
	remoteFolder = regexp.MustCompile(`(?i)[:@?]|^\s*github\.com|_git/|\.git(/|$)`)
)

// reference checks what can name a file.
func (k *kustomizationChecker) reference(d *document, path []string, text string) error {
	if !k.options.AllowRemote && remoteFile.MatchString(text) {
		return d.refuse(path, fmt.Sprintf("%q is remote: %s", text, fixOfRemote))
	}
	return nil
}

// include checks what names a file or a folder with a kustomization.
func (k *kustomizationChecker) include(d *document, path []string, text string) error {
	if remoteFile.MatchString(text) || remoteFolder.MatchString(text) {
		if k.options.AllowRemote {
			return nil
		}
		return d.refuse(path, fmt.Sprintf("%q is remote: %s", text, fixOfRemote))
	}
	folder := filepath.Join(filepath.Dir(d.file), text)
	if filepath.IsAbs(text) {
		folder = filepath.Clean(text)
	}
	if k.options.Root != "" {
		if _, err := k.options.Root.stat(folder); err != nil {
			return d.refuse(path, err.Error())
		}
	}
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return k.check(folder)
	}
	return nil
}

// checkLinks refuses links out of a folder: helm follows them.
func checkLinks(folder string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return fmt.Errorf("reading %s: %w", folder, err)
	}
	defer func() { _ = root.Close() }() // nothing is written
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if entry.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		name, err := filepath.Rel(folder, path)
		if err == nil {
			_, err = root.Stat(name)
		}
		if err != nil {
			return &Error{Position: Position{File: path}, Text: "the link leads out of the chart: replace it with the file"}
		}
		return nil
	})
}
