// Command docs writes what documents and the Helm chart say about the code:
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

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "definition":
		return rewrite(args[1], args[2], reference)
	case len(args) == 2 && args[0] == "flags":
		return os.WriteFile(args[1], []byte(flagReference(managerFlags())), 0o644)
	case len(args) == 2 && args[0] == "metrics":
		return rewrite(args[1], args[1], func(document []byte) (string, error) {
			found, err := metricsIn(os.DirFS("."), "internal", "controllers", "webhooks")
			if err != nil {
				return "", err
			}
			return intoMarks(string(document), metricTable(found))
		})
	case len(args) == 2 && args[0] == "packages":
		return rewrite(args[1], args[1], func(document []byte) (string, error) {
			table, err := packagesIn(os.DirFS("."), "api", "internal", "controllers", "webhooks")
			if err != nil {
				return "", err
			}
			return intoMarks(string(document), table)
		})
	case len(args) == 3 && args[0] == "chart":
		return chart(args[1], args[2])
	case len(args) == 2 && args[0] == "commands":
		return os.WriteFile(args[1], []byte(commandReference()), 0o644)
	case len(args) == 3 && args[0] == "policytest":
		return rewrite(args[1], args[2], policyTestReference)
	case len(args) == 3 && args[0] == "schema":
		return rewrite(args[1], args[2], policyTestSchema)
	case len(args) == 2 && args[0] == "plugins":
		return pages(args[1])
	}
	return errors.New("say what to write: definition DEFINITION DOCUMENT, flags DOCUMENT, metrics DOCUMENT, packages DOCUMENT, chart CHART DOCUMENT, commands DOCUMENT, policytest DEFINITION DOCUMENT, schema DEFINITION SCHEMA, or plugins FOLDER")
}

// rewrite makes a document of a file.
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

// reference is the document about a definition in YAML, which has one version.
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
