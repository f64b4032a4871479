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
		fmt.Fprintf(&b, "  # %s: %d policies.\n  %s: {enabled: %t}\n", c.title, len(c.policies), c.name, !isOptional(c.name))
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

const libraryReadmeText = `<!-- Written by ` + "`make manifests`" + ` from Chart.yaml and the policies in library: do not edit. -->

# Policy library of Ostiary

%[1]s

` + "```sh" + `
helm install %[2]s oci://ghcr.io/ostiary/charts/%[2]s --version %[3]s --namespace ostiary-system
kubectl get webhookpolicies -l app.kubernetes.io/instance=%[2]s
` + "```" + `

Install [Ostiary](%[4]s/blob/main/docs/operations/install.md) of the same version first: it evaluates the policies.

- [The library](%[4]s/blob/main/docs/policies/library.md): enforcing policies, excluding namespaces and users, changing params
- [Catalogue](%[4]s/blob/main/docs/reference/library.md): all policies, with severity and standard
- [Verifying signatures](%[4]s/blob/main/SECURITY.md#supply-chain)

## Categories

| category | title | policies | enabled |
|---|---|---|---|
%[5]s
## Values

Helm rejects unknown values, and those that do not fit the schema. Settings of a policy precede those of its category, and these precede
` + "`actions`" + `. Entries of all ` + "`exclude`" + ` add up.

| value | default | meaning |
|---|---|---|
| ` + "`actions` | `[Audit]`" + ` | What happens to requests that violate a policy: Audit, Warn or Deny. Mutations have no actions. |
| ` + "`exclude.namespaces` | `[]`" + ` | Names of namespaces to which no policy applies. |
| ` + "`exclude.users` | `[]`" + ` | Names of users to whom no policy applies. |
| ` + "`exclude.groups` | `[]`" + ` | Groups of users to whom no policy applies. |
| ` + "`categories.CATEGORY.enabled`" + ` | see above | Whether its policies are installed. |
| ` + "`categories.CATEGORY.actions`" + ` |  | The actions of its policies. |
| ` + "`categories.CATEGORY.exclude`" + ` |  | Further namespaces, users and groups. |
| ` + "`policies.POLICY.enabled`" + ` |  | Whether the policy is installed. |
| ` + "`policies.POLICY.actions`" + ` |  | Its actions. |
| ` + "`policies.POLICY.exclude`" + ` |  | Further namespaces, users and groups. |
`

// libraryReadme is the page of the chart of the library in catalogues of charts.
func libraryReadme(m chartMetadata, categories []policyCategory) string {
	var rows, params strings.Builder
	for _, c := range categories {
		enabled := "yes"
		if isOptional(c.name) {
			enabled = "no"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %d | %s |\n", c.name, c.title, len(c.policies), enabled)
		for _, p := range c.policies {
			if p.params != nil {
				fmt.Fprintf(&params, "| `policies.%s.params` | %s | %s |\n", p.Name, cell(code(p.Spec.Variables[0].Expression)), cell(text(p.about)))
			}
		}
	}
	return fmt.Sprintf(libraryReadmeText, m.Description, m.Name, m.Version, m.Home, rows.String()) + params.String()
}
