package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	libraryFolder    = "library"
	libraryChart     = "charts/ostiary-policies"
	libraryCatalogue = "docs/reference/library.md"

	libraryLabel      = v1alpha1.GroupName + "/library"
	libraryAnnotation = v1alpha1.GroupName + "/"

	// mutationCategory is the category whose policies have an effect from the start: it is
	// part of an installation only if it is named.
	mutationCategory = "mutations"
	// referenceCategory is the category whose policies read other objects, for which an
	// installation grants permissions and memory: it is named, too.
	referenceCategory = "references"
	paramsVariable    = "params"
)

// isOptional reports whether a category is part of an installation only if it is named.
func isOptional(category string) bool {
	return category == mutationCategory || category == referenceCategory
}

// libraryPolicy is one policy of the library.
type libraryPolicy struct {
	v1alpha1.WebhookPolicy
	category string
	text     string
	// params are the default settings; nil if there are none.
	params map[string]any
	// about describes the params.
	about string
}

func (p *libraryPolicy) annotation(name string) string { return p.Annotations[libraryAnnotation+name] }

// folder of the policy.
func (p *libraryPolicy) folder() string { return path.Join(libraryFolder, p.category, p.Name) }

// policyCategory is a folder of policies.
type policyCategory struct {
	name     string
	title    string
	policies []*libraryPolicy
}

// library writes everything that is made from the policies in the folder library: their
// kustomizations, the chart and the catalogue.
func library() error {
	files, err := libraryFiles(os.DirFS("."))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(path.Join(libraryChart, "files")); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// libraryFiles returns what library writes, by path.
func libraryFiles(root fs.FS) (map[string]string, error) {
	categories, err := readLibrary(root)
	if err != nil {
		return nil, err
	}
	out := map[string]string{libraryCatalogue: catalogue(categories)}
	var folders []string
	for _, c := range categories {
		var policies []string
		for _, p := range c.policies {
			policies = append(policies, p.Name)
			out[path.Join(p.folder(), "kustomization.yaml")] = component("resources", "policy.yaml")
			if len(p.Spec.Lookups) > 0 {
				out[path.Join(p.folder(), "kustomization.yaml")] = component("resources", "policy.yaml", "role.yaml")
				out[path.Join(p.folder(), "role.yaml")] = p.role()
			}
			out[path.Join(libraryChart, "files", c.name, p.Name+".yaml")] = p.text
		}
		out[path.Join(libraryFolder, c.name, "kustomization.yaml")] = component("components", policies...)
		if !isOptional(c.name) {
			folders = append(folders, c.name)
		}
	}
	out[path.Join(libraryFolder, "kustomization.yaml")] = component("components", folders...)
	out[path.Join(libraryChart, "values.yaml")] = libraryValues(categories)
	if out[path.Join(libraryChart, "values.schema.json")], err = librarySchema(categories); err != nil {
		return nil, err
	}
	chart, err := fs.Sub(root, libraryChart)
	if err != nil {
		return nil, err
	}
	metadata, err := readChart(chart)
	out[path.Join(libraryChart, "README.md")] = libraryReadme(metadata, categories)
	return out, err
}

func component(field string, entries ...string) string {
	return "# Written by `make manifests`: do not edit.\napiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" + field + ":\n- " + strings.Join(entries, "\n- ") + "\n"
}

// role is the ClusterRole that permits the lookups of the policy.
func (p *libraryPolicy) role() string {
	var rules []string
	for i := range p.Spec.Lookups {
		r := &p.Spec.Lookups[i].Resource
		rule := fmt.Sprintf("- {apiGroups: [%q], resources: [%s], verbs: [list, watch]}\n", r.Group, r.Resource)
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return "# Written by `make manifests`: do not edit.\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n" +
		"  name: ostiary-lookups-" + p.Name + "\n  labels:\n    " + v1alpha1.GroupName + "/aggregate-to-lookups: \"true\"\nrules:\n" +
		strings.Join(rules, "")
}

// readLibrary reads all policies, by category and name.
func readLibrary(root fs.FS) ([]policyCategory, error) {
	names, err := fs.Glob(root, libraryFolder+"/*/*/policy.yaml")
	if err != nil {
		return nil, err
	}
	byName := map[string]*policyCategory{}
	for _, name := range names {
		p, err := readPolicy(root, name)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		c := byName[p.category]
		if c == nil {
			c = &policyCategory{name: p.category, title: p.annotation("category")}
			byName[p.category] = c
		}
		if p.annotation("category") != c.title {
			return nil, fmt.Errorf("reading %s: its annotation category is %q, and that of others in the folder %q", name,
				p.annotation("category"), c.title)
		}
		c.policies = append(c.policies, p)
	}
	var out []policyCategory
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out, nil
}

func readPolicy(root fs.FS, name string) (*libraryPolicy, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	folder := path.Dir(name)
	p := &libraryPolicy{category: path.Base(path.Dir(folder)), text: string(text)}
	if err := yaml.UnmarshalStrict(text, &p.WebhookPolicy); err != nil {
		return nil, err
	}
	if want := path.Base(folder); p.Name != want {
		return nil, fmt.Errorf("the policy has the name %q, want that of its folder, %q", p.Name, want)
	}
	if p.Labels[libraryLabel] != p.category {
		return nil, fmt.Errorf("the label %s is %q, want %q", libraryLabel, p.Labels[libraryLabel], p.category)
	}
	for _, name := range []string{"title", "description", "category", "severity", "remediation"} {
		if p.annotation(name) == "" {
			return nil, fmt.Errorf("it has no annotation %s%s", libraryAnnotation, name)
		}
	}
	if severities := []string{"low", "medium", "high", "critical"}; !slices.Contains(severities, p.annotation("severity")) {
		return nil, fmt.Errorf("the severity is %q, want one of %s", p.annotation("severity"), strings.Join(severities, ", "))
	}
	err = p.readParams()
	return p, err
}

var aboutParams = regexp.MustCompile(`((?:  # .*\n)+)  - name: ` + paramsVariable + `\n`)

// readParams reads the first variable, if it has the params.
func (p *libraryPolicy) readParams() error {
	for i, v := range p.Spec.Variables {
		if v.Name != paramsVariable {
			continue
		}
		if i > 0 {
			return errors.New("move the variable params to the first place: patches name it by its index")
		}
		if err := json.Unmarshal([]byte(v.Expression), &p.params); err != nil {
			return fmt.Errorf("the variable params is no JSON, which the chart writes: %w", err)
		}
		about := aboutParams.FindStringSubmatch(p.text)
		if about == nil {
			return errors.New("describe the params in a comment before the variable params")
		}
		p.about = strings.Join(strings.Fields(strings.ReplaceAll(about[1], "  # ", "")), " ")
	}
	return nil
}

// catalogue is the document about all policies.
func catalogue(categories []policyCategory) string {
	var b strings.Builder
	count := 0
	for _, c := range categories {
		count += len(c.policies)
	}
	fmt.Fprintf(&b, "# Catalogue of the policy library\n\n<!-- Written by `make manifests` from the policies in library: do not edit. -->\n\n"+
		"The %d policies of [the library](../policies/library.md). PSS are the Pod Security Standards of Kubernetes 1.37, CIS is the CIS Kubernetes Benchmark, "+
		"NSA is the Kubernetes Hardening Guide of NSA and CISA.\n\n"+
		"Except for mutations, all policies have the action Audit: they report violations and deny no request. "+
		"[Change the action](../policies/library.md#enforce-policies) to Warn or Deny.\n", count)
	for _, c := range categories {
		what := "violations"
		if c.name == mutationCategory {
			what = "effect"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| policy | title | %s | severity | standard | params |\n|---|---|---|---|---|---|\n", c.title, what)
		for _, p := range c.policies {
			params := ""
			if p.params != nil {
				params = code(p.Spec.Variables[0].Expression)
			}
			fmt.Fprintf(&b, "| [%s](../../%s/policy.yaml) | %s | %s | %s | %s | %s |\n", p.Name, p.folder(), cell(text(p.annotation("title"))),
				cell(text(p.annotation("description"))), p.annotation("severity"), cell(text(p.annotation("standard"))), cell(params))
		}
	}
	return b.String()
}
