package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// amendment is what to set on one or more nodes of a schema. Zero fields leave
// the node as it is.
type amendment struct {
	// at is the path of the node: field names joined by dots, [] for the items
	// of a list, {} for the values of a map, (a|b) for either name.
	at string

	description   string
	maxLength     int64
	minItems      int64
	maxItems      int64
	maxProperties int64
	pattern       string
	enum          []string
	required      []string
	rules         []apiextensionsv1.ValidationRule
}

// amend applies the table, and returns an error for each entry that does not
// fit the schema.
func amend(root *apiextensionsv1.JSONSchemaProps, table []amendment) []error {
	var errs []error
	for _, a := range table {
		for _, path := range alternatives(a.at) {
			if err := edit(root, steps(path), a.apply); err != nil {
				errs = append(errs, fmt.Errorf("table entry %s: %w", path, err))
			}
		}
	}
	return errs
}

// alternatives expands every (a|b) of a path.
func alternatives(path string) []string {
	before, rest, found := strings.Cut(path, "(")
	if !found {
		return []string{path}
	}
	names, after, _ := strings.Cut(rest, ")")
	var out []string
	for name := range strings.SplitSeq(names, "|") {
		out = append(out, alternatives(before+name+after)...)
	}
	return out
}

// steps splits a.b[].c{} into a, b, [], c, {}.
func steps(path string) []string {
	path = strings.ReplaceAll(path, "[]", ".[]")
	path = strings.ReplaceAll(path, "{}", ".{}")
	return strings.Split(path, ".")
}

// edit calls change with the node that the steps lead to. Properties are kept
// by value in their map, so each is written back after the change.
func edit(node *apiextensionsv1.JSONSchemaProps, path []string, change func(*apiextensionsv1.JSONSchemaProps) error) error {
	if len(path) == 0 {
		return change(node)
	}
	step, rest := path[0], path[1:]
	switch {
	case step == "[]" && node.Items != nil && node.Items.Schema != nil:
		return edit(node.Items.Schema, rest, change)
	case step == "{}" && node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil:
		return edit(node.AdditionalProperties.Schema, rest, change)
	}
	property, found := node.Properties[step]
	if !found {
		return fmt.Errorf("the schema has no %q there: remove the entry or mend its path", step)
	}
	if err := edit(&property, rest, change); err != nil {
		return err
	}
	node.Properties[step] = property
	return nil
}

// apply sets the fields of the amendment on a node, and refuses those that
// would have no effect on its type.
func (a amendment) apply(node *apiextensionsv1.JSONSchemaProps) error {
	textual := a.maxLength > 0 || a.pattern != "" || len(a.enum) > 0
	listed := a.minItems > 0 || a.maxItems > 0
	switch {
	case textual && node.Type != "string":
		return fmt.Errorf("maxLength, pattern and enum are for strings, the node is of type %s", node.Type)
	case listed && node.Type != "array":
		return fmt.Errorf("minItems and maxItems are for lists, the node is of type %s", node.Type)
	case a.maxProperties > 0 && (node.Type != "object" || !isMap(node)):
		return errors.New("maxProperties is for maps")
	}
	for _, name := range a.required {
		if _, found := node.Properties[name]; !found {
			return fmt.Errorf("required names %q, which is not a field of the node", name)
		}
	}
	a.set(node)
	return nil
}

func (a amendment) set(node *apiextensionsv1.JSONSchemaProps) {
	if a.description != "" {
		// One line: kubectl explain keeps line breaks and wraps the rest itself.
		node.Description = strings.Join(strings.Fields(a.description), " ")
	}
	if a.pattern != "" {
		node.Pattern = a.pattern
	}
	setLimit(&node.MaxLength, a.maxLength)
	setLimit(&node.MinItems, a.minItems)
	setLimit(&node.MaxItems, a.maxItems)
	setLimit(&node.MaxProperties, a.maxProperties)
	for _, value := range a.enum {
		node.Enum = append(node.Enum, apiextensionsv1.JSON{Raw: json.RawMessage(strconv.Quote(value))})
	}
	node.Required = slices.Compact(slices.Sorted(slices.Values(append(node.Required, a.required...))))
	node.XValidations = append(node.XValidations, a.rules...)
}

func setLimit(field **int64, value int64) {
	if value > 0 {
		*field = &value
	}
}

// incomplete returns an error for every string, list and map of a schema that
// has no limit, and every field without a description. The three fields of every object, at its top, are the API
// server's to check.
func incomplete(root *apiextensionsv1.JSONSchemaProps) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		if slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
			continue
		}
		errs = append(errs, incompleteBelow(root.Properties[name], name)...)
	}
	return errs
}

func incompleteBelow(node apiextensionsv1.JSONSchemaProps, path string) []error {
	var errs []error
	if missing := missingLimit(node); missing != "" {
		errs = append(errs, fmt.Errorf("%s has no %s: add one by a marker on the field or in the table of hack/crdlimits", path, missing))
	}
	if node.Items != nil && node.Items.Schema != nil {
		errs = append(errs, incompleteBelow(*node.Items.Schema, path+"[]")...)
	}
	if node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil {
		errs = append(errs, incompleteBelow(*node.AdditionalProperties.Schema, path+"{}")...)
	}
	for _, name := range slices.Sorted(maps.Keys(node.Properties)) {
		property := node.Properties[name]
		if property.Description == "" {
			errs = append(errs, fmt.Errorf("%s.%s has no description: say what the field is for", path, name))
		}
		errs = append(errs, incompleteBelow(property, path+"."+name)...)
	}
	return errs
}

// missingLimit names the limit that a node needs and lacks.
func missingLimit(node apiextensionsv1.JSONSchemaProps) string {
	switch {
	case node.Type == "string" && node.MaxLength == nil && len(node.Enum) == 0 && node.Format != "date-time":
		return "maxLength"
	case node.Type == "array" && node.MaxItems == nil:
		return "maxItems"
	case isMap(&node) && node.MaxProperties == nil:
		return "maxProperties"
	}
	return ""
}

func isMap(node *apiextensionsv1.JSONSchemaProps) bool {
	return node.AdditionalProperties != nil || (node.XPreserveUnknownFields != nil && *node.XPreserveUnknownFields)
}
