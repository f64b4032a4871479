package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// libraryValues is values.yaml of the chart of the library.
func libraryValues(categories []policyCategory) string {
	var b strings.Builder
	b.WriteString(`# Written by ` + "`make manifests`" + ` from the policies in library: do not edit.

# What happens to requests that violate a policy: Audit, Warn or Deny. Categories and
# policies can have actions of their own. Mutations have none.
actions: [Audit]

# Requests that no policy applies to. Those of categories and policies are added.
exclude:
  # Names of namespaces.
  namespaces: []
  # Names of users, as system:serviceaccount:argocd:argocd-application-controller.
  users: []
  # Groups of users.
  groups: []

# Categories have enabled, actions and exclude.
categories:
`)
	for _, c := range categories {
		fmt.Fprintf(&b, "  # %s: %d policies.\n  %s: {enabled: %t}\n", c.title, len(c.policies), c.name, c.name != mutationCategory)
	}
	b.WriteString("\n# Policies have enabled (by default that of the category), actions, exclude and, if one is shown, params.\npolicies:\n")
	for _, c := range categories {
		fmt.Fprintf(&b, "\n  # %s\n\n", c.title)
		for _, p := range c.policies {
			for _, line := range wrap(p.annotation("title")+": "+p.annotation("description"), 96) {
				fmt.Fprintf(&b, "  # %s\n", line)
			}
			if p.params == nil {
				fmt.Fprintf(&b, "  %s: {}\n", p.Name)
				continue
			}
			fmt.Fprintf(&b, "  %s:\n", p.Name)
			for _, line := range wrap(p.about, 94) {
				fmt.Fprintf(&b, "    # %s\n", line)
			}
			fmt.Fprintf(&b, "    params: %s\n", p.Spec.Variables[0].Expression)
		}
	}
	return b.String()
}

// librarySchema is values.schema.json of the chart of the library.
func librarySchema(categories []policyCategory) (string, error) {
	byCategory, byPolicy := newObject(), newObject()
	for _, c := range categories {
		byCategory.set(c.name, schemaOf("category"))
		for _, p := range c.policies {
			schema := settings()
			if p.params != nil {
				params, err := paramsSchema(p.params)
				if err != nil {
					return "", fmt.Errorf("the params of %s: %w", p.Name, err)
				}
				schema.object("properties").set("params", params)
			}
			byPolicy.set(p.Name, schema)
		}
	}
	properties := newObject().
		set("actions", schemaOf("actions")).
		set("exclude", schemaOf("exclude")).
		set("categories", closed(byCategory)).
		set("policies", closed(byPolicy)).
		set("global", newObject().set("type", "object")) // of Helm
	definitions := newObject().set("category", settings()).set("actions", actionsSchema()).set("exclude", excludeSchema())
	return schemaFile(newObject().
		set("$schema", "https://json-schema.org/draft/2020-12/schema").
		set("type", "object").
		set("additionalProperties", false).
		set("properties", properties).
		set("$defs", definitions))
}

func schemaOf(definition string) *object { return newObject().set("$ref", "#/$defs/"+definition) }

func closed(properties *object) *object {
	return newObject().set("type", "object").set("additionalProperties", false).set("properties", properties)
}

// settings are those that categories and policies have.
func settings() *object {
	return closed(newObject().
		set("enabled", newObject().set("type", "boolean")).
		set("actions", schemaOf("actions")).
		set("exclude", schemaOf("exclude")))
}

func actionsSchema() *object {
	has := func(action string) any {
		return map[string]any{"contains": map[string]any{"const": action}}
	}
	return newObject().
		set("type", "array").
		set("minItems", 1).
		set("uniqueItems", true).
		set("items", newObject().set("enum", []any{"Audit", "Warn", "Deny"})).
		set("not", map[string]any{"allOf": []any{has("Warn"), has("Deny")}})
}

func excludeSchema() *object {
	list := func(pattern string) *object {
		return newObject().set("type", "array").set("items", newObject().set("type", "string").set("pattern", pattern))
	}
	return closed(newObject().
		set("namespaces", list(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)).
		set("users", list(`^.+$`)).
		set("groups", list(`^.+$`)))
}

// paramsSchema is the schema of params with the types of their defaults.
func paramsSchema(defaults map[string]any) (*object, error) {
	properties := newObject()
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		schema := newObject()
		switch defaults[name].(type) {
		case string:
			schema.set("type", "string")
		case float64:
			schema.set("type", "integer")
		case []any:
			schema.set("type", "array").set("items", newObject().set("type", "string"))
		default:
			return nil, fmt.Errorf("%s is a %T, want a string, an integer or a list of strings", name, defaults[name])
		}
		properties.set(name, schema)
	}
	return closed(properties), nil
}
