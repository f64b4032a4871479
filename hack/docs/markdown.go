package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// writer writes a section for each object of a schema. An object with the same
// fields as one before it refers to that one's section.
type writer struct {
	strings.Builder
	written map[string]string // the path of a section, by its body
}

func newWriter() *writer { return &writer{written: map[string]string{}} }

func (w *writer) title(spec apiextensionsv1.CustomResourceDefinitionSpec, v apiextensionsv1.CustomResourceDefinitionVersion) {
	fmt.Fprintf(w, "# %s\n\n", spec.Names.Kind)
	w.WriteString("<!-- Written by `make manifests` from the CustomResourceDefinition: do not edit. -->\n\n")
	fmt.Fprintf(w, "`apiVersion: %s/%s`, `kind: %s`; %s; short name `%s`.\n\n",
		spec.Group, v.Name, spec.Names.Kind, scope(spec.Scope), strings.Join(spec.Names.ShortNames, "`, `"))
	w.WriteString(text(v.Schema.OpenAPIV3Schema.Description) + "\n\n")
	w.WriteString("Fields in **bold** are required. Unset fields are not written into the object: defaults are computed.\n")
}

func scope(s apiextensionsv1.ResourceScope) string {
	if s == apiextensionsv1.ClusterScoped {
		return "cluster-scoped"
	}
	return "namespaced"
}

// sections writes the sections of a kind, without apiVersion, kind and metadata, which all
// kinds have.
func (w *writer) sections(root schema) {
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			w.section(name, root.Properties[name])
		}
	}
}

// section writes the section of an object, or of the objects in a list, and the sections of
// the objects in it.
func (w *writer) section(path string, node schema) {
	node, path = element(node, path)
	if len(node.Properties) == 0 {
		return
	}
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n", path, text(node.Description))
	body := rules(node) + "| field | type | |\n|---|---|---|\n"
	names := slices.Sorted(maps.Keys(node.Properties))
	for _, name := range names {
		body += row(name, node.Properties[name], slices.Contains(node.Required, name))
	}
	if same, found := w.written[body]; found {
		fmt.Fprintf(w, "As [%s](#%s).\n", same, anchor(same))
		return
	}
	w.written[body] = path
	w.WriteString(body)
	for _, name := range names {
		w.section(path+"."+name, node.Properties[name])
	}
}

// element returns the schema of the items of a list, for lists of any depth.
func element(node schema, path string) (items schema, pathOfItems string) {
	for node.Items != nil && node.Items.Schema != nil {
		node, path = *node.Items.Schema, path+"[]"
	}
	return node, path
}

// rules returns the messages of the rules of an object.
func rules(node schema) string {
	if len(node.XValidations) == 0 {
		return ""
	}
	out := "Rejected, with the message:\n\n"
	for _, r := range node.XValidations {
		field := strings.TrimPrefix(r.FieldPath, ".")
		if field != "" {
			field = code(field) + ": "
		}
		out += "- " + field + text(r.Message) + "\n"
	}
	return out + "\n"
}

func row(name string, node schema, required bool) string {
	shown := code(name)
	if required {
		shown = "**" + shown + "**"
	}
	description := text(node.Description)
	if len(node.Properties) == 0 || node.Type == "array" {
		for _, r := range node.XValidations {
			description += " Rejected with \u201c" + text(r.Message) + "\u201d."
		}
	}
	return fmt.Sprintf("| %s | %s | %s |\n", shown,
		cell(strings.Join(slices.Concat([]string{typeName(node)}, limits(node)), "; ")), cell(description))
}

// typeName returns the readable type of a field.
func typeName(node schema) string {
	switch {
	case node.Type == "array":
		return "list of " + plural(typeName(*node.Items.Schema))
	case node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil:
		return "map of " + plural(typeName(*node.AdditionalProperties.Schema))
	case node.Format == "date-time":
		return "time"
	}
	return node.Type
}

func plural(name string) string {
	if first, rest, found := strings.Cut(name, " of "); found {
		return plural(first) + " of " + rest
	}
	return name + "s"
}

// limits returns the limits of a field, and of the entries of a list or map.
func limits(node schema) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	between(add, node.MinItems, node.MaxItems, " entry", " entries")
	between(add, nil, node.MaxProperties, " entry", " entries")
	between(add, node.MinLength, node.MaxLength, " character", " characters")
	between(add, node.Minimum, node.Maximum, "", "")
	if node.XListType != nil && *node.XListType == "set" {
		add("each once")
	}
	if len(node.XListMapKeys) > 0 {
		add("each `%s` once", strings.Join(node.XListMapKeys, "` and `"))
	}
	var values []string
	for _, value := range node.Enum {
		values = append(values, code(strings.Trim(string(value.Raw), `"`)))
	}
	if len(values) > 0 {
		add("one of %s", strings.Join(values, ", "))
	}
	if node.Pattern != "" {
		add("matches %s", code(node.Pattern))
	}
	return append(out, limitsOfEntries(node)...)
}

func limitsOfEntries(node schema) []string {
	var entry *schema
	switch {
	case node.Items != nil:
		entry = node.Items.Schema
	case node.AdditionalProperties != nil:
		entry = node.AdditionalProperties.Schema
	}
	if entry == nil || len(entry.Properties) > 0 {
		return nil
	}
	var out []string
	if l := limits(*entry); len(l) > 0 {
		out = append(out, "each "+strings.Join(l, ", "))
	}
	for _, r := range entry.XValidations {
		out = append(out, "each rejected with \u201c"+text(r.Message)+"\u201d")
	}
	return out
}

func between[N int64 | float64](add func(string, ...any), from, to *N, one, many string) {
	of := func(n N) string {
		if n == 1 {
			return one
		}
		return many
	}
	switch {
	case from != nil && to != nil && *from != 0:
		add("%v to %v%s", *from, *to, of(*to))
	case from != nil && to != nil:
		add("0 to %v%s", *to, of(*to))
	case to != nil:
		add("at most %v%s", *to, of(*to))
	case from != nil:
		add("at least %v%s", *from, of(*from))
	}
}

// text escapes plain text for Markdown, on one line.
func text(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "[", `\[`, "_", `\_`).Replace(strings.Join(strings.Fields(s), " "))
}

// code returns inline code.
func code(s string) string { return "`" + s + "`" }

// cell escapes Markdown for a table.
func cell(markdown string) string { return strings.ReplaceAll(markdown, "|", `\|`) }

// anchor returns GitHub's anchor of a heading.
func anchor(heading string) string {
	return strings.ToLower(strings.NewReplacer(".", "", "[", "", "]", "").Replace(heading))
}
