// Command docs generates the parts of documents and of the Helm chart that describe the code:
//
//	docs definition DEFINITION DOCUMENT   every field of a CustomResourceDefinition
//	docs flags DOCUMENT                   every flag of the manager
//	docs metrics DOCUMENT                 every metric, between two marks of the document
//	docs packages DOCUMENT                every package, between two marks of the document
//	docs chart CHART DOCUMENT             the manager's flags into the chart's schema,
//	                                      its values.yaml, and every value
//	docs commands DOCUMENT                every command of kubectl-ostiary
//	docs policytest DEFINITION DOCUMENT   every field of a PolicyTest
//	docs schema DEFINITION SCHEMA         the schema of PolicyTests for editors
//	docs plugins FOLDER                   the configuration of every admission plugin,
//	                                      between two marks of its page
//	docs library                          kustomizations, chart and catalogue of the policies
//	                                      in the folder library
//
// It runs in the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// task is a subcommand, with its number of arguments.
type task struct {
	arguments int
	write     func(args []string) error
}

func tasks() map[string]task {
	return map[string]task{
		"definition": {2, func(args []string) error { return rewrite(args[0], args[1], reference) }},
		"flags": {1, func(args []string) error {
			return os.WriteFile(args[0], []byte(flagReference(managerFlags())), 0o644)
		}},
		"metrics":  {1, func(args []string) error { return rewrite(args[0], args[0], withMetrics) }},
		"packages": {1, func(args []string) error { return rewrite(args[0], args[0], withPackages) }},
		"chart":    {2, func(args []string) error { return chart(args[0], args[1]) }},
		"commands": {1, func(args []string) error {
			return os.WriteFile(args[0], []byte(commandReference()), 0o644)
		}},
		"policytest": {2, func(args []string) error { return rewrite(args[0], args[1], policyTestReference) }},
		"schema":     {2, func(args []string) error { return rewrite(args[0], args[1], editorSchema) }},
		"interplay":  {2, func(args []string) error { return rewrite(args[0], args[1], interplayDocument) }},
		"plugins":    {1, func(args []string) error { return pages(args[0]) }},
		"library":    {0, func([]string) error { return library() }},
	}
}

func run(args []string) error {
	if len(args) > 0 {
		if t, ok := tasks()[args[0]]; ok && len(args) == t.arguments+1 {
			return t.write(args[1:])
		}
	}
	return errors.New("say what to write: definition DEFINITION DOCUMENT, flags DOCUMENT, metrics DOCUMENT, packages DOCUMENT, " +
		"chart CHART DOCUMENT, commands DOCUMENT, policytest DEFINITION DOCUMENT, schema DEFINITION SCHEMA, " +
		"interplay PAIRS DOCUMENT, plugins FOLDER, or library")
}

func withMetrics(document []byte) (string, error) {
	found, err := metricsIn(os.DirFS("."), "internal", "controllers", "webhooks")
	if err != nil {
		return "", err
	}
	return intoMarks(string(document), metricTable(found))
}

func withPackages(document []byte) (string, error) {
	table, err := packagesIn(os.DirFS("."), "api", "internal", "controllers", "webhooks")
	if err != nil {
		return "", err
	}
	return intoMarks(string(document), table)
}

// rewrite converts a file to a document.
func rewrite(from, to string, change func([]byte) (string, error)) error {
	in, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	out, err := change(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", from, err)
	}
	return os.WriteFile(to, []byte(out), 0o644)
}

// reference returns the document of a definition in YAML, which has one version.
func reference(definition []byte) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return "", err
	}
	if n := len(crd.Spec.Versions); n != 1 {
		return "", fmt.Errorf("it has %d versions: write the document for one", n)
	}
	v := crd.Spec.Versions[0]
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return "", fmt.Errorf("version %s has no schema", v.Name)
	}
	w := newWriter()
	w.title(crd.Spec, v)
	w.sections(*v.Schema.OpenAPIV3Schema)
	return w.String(), nil
}
