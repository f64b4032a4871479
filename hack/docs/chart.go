package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/options"
)

// chart writes the manager's flags into the schema of a chart's values, and generates
// values.yaml, the chart's README and a document from the schema, so that each value has one
// description.
func chart(folder, document string) error {
	name := filepath.Join(folder, "values.schema.json")
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	schema := newObject()
	if err := json.Unmarshal(raw, schema); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	schema.object("properties").object("manager").set("properties", flagValues(managerFlags()))
	files := map[string]func(*object) (string, error){
		name:                                 schemaFile,
		filepath.Join(folder, "values.yaml"): valuesFile,
		filepath.Join(folder, "README.md"):   func(schema *object) (string, error) { return chartReadme(folder, schema) },
		document:                             valuesReference,
	}
	for path, write := range files {
		text, err := write(schema)
		if err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// flagValues returns the schema of the values for flags. They have no defaults: the chart
// does not pass unset values, so the default of the manager applies.
func flagValues(flags []*pflag.Flag) *object {
	out, constraints := newObject(), options.Constraints()
	for _, f := range flags {
		v, limit := newObject(), constraints[f.Name]
		switch kind := f.Value.Type(); kind {
		case "bool":
			v.set("type", "boolean")
		case "int", "int32", "int64", "uint":
			v.set("type", "integer")
			if limit.Maximum != 0 {
				v.set("minimum", limit.Minimum).set("maximum", limit.Maximum)
			}
		case "float64":
			v.set("type", "number")
		case "duration":
			v.set("type", "string").set("pattern", `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`)
		case "stringSlice", "stringArray":
			v.set("type", "array").set("items", constrained(limit))
		default:
			v = constrained(limit)
		}
		v.set("description", "--"+f.Name+": "+f.Usage)
		if example := exampleOf(f); example != nil {
			v.set("examples", []any{example})
		}
		out.set(camel(f.Name), v)
	}
	return out
}

// constrained returns the schema of a string.
func constrained(limit options.Constraint) *object {
	v := newObject().set("type", "string")
	if len(limit.Enum) > 0 {
		values := make([]any, len(limit.Enum))
		for i, value := range limit.Enum {
			values[i] = value
		}
		v.set("enum", values)
	}
	if limit.Pattern != "" {
		v.set("pattern", limit.Pattern)
	}
	return v
}

func exampleOf(f *pflag.Flag) any {
	switch f.Value.Type() {
	case "bool":
		return f.DefValue == "true"
	case "int", "int32", "int64", "uint", "float64":
		n, _ := strconv.ParseFloat(f.DefValue, 64)
		return n
	}
	if d := defaultOf(f); d != "" {
		return d
	}
	return nil
}

// camel converts the name of a flag to that of a value: drain-min to drainMin.
func camel(name string) string {
	return regexp.MustCompile("-[a-z0-9]").ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
}

func schemaFile(schema *object) (string, error) {
	var b strings.Builder
	err := schema.write(&b, "")
	return b.String() + "\n", err
}

func valuesFile(schema *object) (string, error) {
	var b strings.Builder
	b.WriteString("# Written by `make manifests` from values.schema.json: do not edit.\n# What is commented out has the default that is shown, or none.\n")
	err := writeValues(&b, schema, "")
	return b.String(), err
}

func writeValues(b *strings.Builder, schema *object, indent string) error {
	properties := schema.object("properties")
	for _, name := range properties.keys {
		value := properties.object(name)
		b.WriteString("\n")
		for _, line := range wrap(value.text("description"), 100-len(indent)) {
			fmt.Fprintf(b, "%s# %s\n", indent, line)
		}
		text, isSet, err := shown(value)
		switch {
		case err != nil:
			return err
		case len(value.object("properties").keys) > 0:
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			if err := writeValues(b, value, indent+"  "); err != nil {
				return err
			}
			if allUnset(value) {
				fmt.Fprintf(b, "%s  {}\n", indent)
			}
		case isSet:
			fmt.Fprintf(b, "%s%s: %s\n", indent, name, text)
		default:
			fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("%s# %s: %s", indent, name, text), " "))
		}
	}
	return nil
}

// allUnset reports whether values.yaml sets nothing in an object.
func allUnset(schema *object) bool {
	properties := schema.object("properties")
	for _, name := range properties.keys {
		value := properties.object(name)
		if _, isSet := value.fields["default"]; isSet || len(value.object("properties").keys) > 0 {
			return false
		}
	}
	return true
}

// shown returns the default of a value, or an example if it has none.
func shown(value *object) (text string, isDefault bool, err error) {
	if d, ok := value.fields["default"]; ok {
		text, err = plain(d)
		return text, true, err
	}
	if examples, ok := value.fields["examples"].([]any); ok && len(examples) > 0 {
		text, err = plain(examples[0])
	}
	return text, false, err
}

func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+len(word) >= width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

func valuesReference(schema *object) (string, error) {
	table, err := valueTable(schema)
	return "# Values of the Helm chart\n\n<!-- Written by `make manifests` from charts/ostiary/values.schema.json: do not edit. -->\n\n" + table, err
}

// chartMetadata is the used part of Chart.yaml.
type chartMetadata struct{ Name, Version, Description, Home string }

func readChart(root fs.FS) (m chartMetadata, err error) {
	raw, err := fs.ReadFile(root, "Chart.yaml")
	if err != nil {
		return m, err
	}
	if err := yaml.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	return m, nil
}

// chartReadme returns the page of the chart in catalogues of charts.
func chartReadme(folder string, schema *object) (string, error) {
	m, err := readChart(os.DirFS(folder))
	if err != nil {
		return "", err
	}
	table, err := valueTable(schema)
	return fmt.Sprintf(readme, m.Description, m.Name, m.Version, m.Home) + table, err
}

const readme = `<!-- Written by ` + "`make manifests`" + ` from Chart.yaml and values.schema.json: do not edit. -->

# Chart of Ostiary

%[1]s

` + "```sh" + `
helm install %[2]s oci://ghcr.io/ostiary/charts/%[2]s --version %[3]s --namespace ostiary-system --create-namespace
helm test %[2]s --namespace ostiary-system --logs
` + "```" + `

The second command runs a self-test, which checks one denial from end to end. Install the chart once per cluster.

- [Installing, upgrading and uninstalling](%[4]s/blob/main/docs/operations/install.md)
- [Writing policies](%[4]s/blob/main/docs/policies/README.md)
- [Verifying signatures](%[4]s/blob/main/SECURITY.md#supply-chain)

## Values

`

func valueTable(schema *object) (string, error) {
	var b strings.Builder
	b.WriteString("Helm rejects an unknown value, and one that does not fit the schema. The manager validates what a schema cannot express, such as limits\nthat depend on other flags, when it starts. Values without a default are left to the manager, or not rendered.\n\n")
	b.WriteString("| value | type | default | meaning |\n|---|---|---|---|\n")
	err := writeRows(&b, schema, "")
	return b.String(), err
}

func writeRows(b *strings.Builder, schema *object, path string) error {
	properties := schema.object("properties")
	for _, name := range properties.keys {
		value := properties.object(name)
		if len(value.object("properties").keys) > 0 {
			if err := writeRows(b, value, path+name+"."); err != nil {
				return err
			}
			continue
		}
		example, isDefault, err := shown(value)
		if err != nil {
			return err
		}
		if !isDefault && !strings.HasPrefix(path, "manager.") {
			example = ""
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", path, name, value.text("type"), quoted(cell(example)),
			cell(text(value.text("description"))))
	}
	return nil
}
