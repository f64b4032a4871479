package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// TestDocumentedCommands renders the charts with the values of each command of Helm in the
// documents.
func TestDocumentedCommands(t *testing.T) {
	commands := documentedCommands(t)
	if len(commands) < 4 {
		t.Errorf("the documents have %d commands of Helm", len(commands))
	}
	for _, command := range commands {
		t.Run(command, func(t *testing.T) { testCommand(t, strings.Fields(command)) })
	}
}

// documentedCommands are the lines of README.md and all documents that install or upgrade a
// release, each once.
func documentedCommands(t *testing.T) (out []string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(?:\$ )?(helm (?:install|upgrade) (?:.*\\\n)*.*)$`)
	read := func(path string) error {
		text, err := os.ReadFile(path)
		for _, match := range line.FindAllStringSubmatch(string(text), -1) {
			out = append(out, strings.Join(strings.Fields(strings.ReplaceAll(match[1], "\\\n", " ")), " "))
		}
		return err
	}
	err := read("../../README.md")
	if err == nil {
		err = filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".md" {
				return err
			}
			return read(path)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func testCommand(t *testing.T, fields []string) {
	values := object{}
	for i, field := range fields {
		if strings.HasPrefix(field, "--set") {
			if field != "--set" || i+1 == len(fields) {
				t.Fatalf("%q: this test reads --set NAME=VALUE", field)
			}
			if err := strvals.ParseInto(strings.Trim(fields[i+1], "'"), values); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	switch chart := fields[3]; chart {
	case "oci://ghcr.io/ostiary/charts/ostiary", "charts/ostiary":
		_, err = render(t, namespace, string(text))
	case "oci://ghcr.io/ostiary/charts/ostiary-policies":
		_, err = policiesOf(t, string(text))
	default:
		t.Errorf("the chart is %q, want one of this repository", chart)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestGitOpsManifests decodes the Kustomization of docs/operations/gitops.md with the types of Flux, and
// validates the ConfigMap of Argo CD, whose check TestHealthOfArgoCD executes.
func TestGitOpsManifests(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(name string) string {
		all := blocks(string(text), name)
		if len(all) != 1 {
			t.Fatalf("the document shows %s %d times", name, len(all))
		}
		return all[0]
	}
	var policies kustomizev1.Kustomization
	if err := yaml.UnmarshalStrict([]byte(manifest("flux.yaml")), &policies); err != nil {
		t.Fatal(err)
	}
	if got, want := policies.GroupVersionKind(), kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind); got != want {
		t.Errorf("the object is a %s, want %s", got, want)
	}
	if s := policies.Spec; !s.Wait || !s.Prune || s.Interval.Duration <= 0 || s.SourceRef.Kind == "" || len(s.DependsOn) != 1 {
		t.Errorf("the Kustomization does not wait for policies and their definition: %+v", s)
	}
	for _, problem := range loadSchemas(t).problems(t, parse(t, manifest("argocd-cm.yaml"))) {
		t.Error(problem)
	}
}
