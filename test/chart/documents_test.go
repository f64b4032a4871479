package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/strvals"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestGitOpsManifests decodes the objects of Flux in docs/operations/gitops.md with its types, validates
// those of Argo CD with its schemas, and validates the ConfigMap, whose check TestHealthOfArgoCD executes.
func TestGitOpsManifests(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	manifests := func(name string) []string {
		all := blocks(string(text), name)
		if len(all) != 1 {
			t.Fatalf("the document shows %s %d times", name, len(all))
		}
		return strings.Split(all[0], "\n---\n")
	}
	testFlux(t, manifests("ostiary/release.yaml"), manifests("flux.yaml"))
	argo := argoSchemas(t)
	for _, name := range []string{"application.yaml", "applicationset.yaml"} {
		for _, problem := range argo.problems(t, parse(t, manifests(name)[0])) {
			t.Error(problem)
		}
	}
	for _, problem := range loadSchemas(t).problems(t, parse(t, manifests("argocd-cm.yaml")[0])) {
		t.Error(problem)
	}
}

// testFlux expects that the policies wait for the release, whose names agree.
func testFlux(t *testing.T, release, kustomizations []string) {
	t.Helper()
	var repository sourcev1.OCIRepository
	var chart helmv2.HelmRelease
	var ostiary, policies kustomizev1.Kustomization
	for _, m := range []struct {
		manifest string
		object   runtime.Object
		want     schema.GroupVersionKind
	}{
		{release[0], &repository, sourcev1.GroupVersion.WithKind("OCIRepository")},
		{release[1], &chart, helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind)},
		{kustomizations[0], &ostiary, kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind)},
		{kustomizations[1], &policies, kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind)},
	} {
		if err := yaml.UnmarshalStrict([]byte(m.manifest), m.object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.want, m.object.GetObjectKind().GroupVersionKind()); diff != "" {
			t.Errorf("kind (-want +got):\n%s", diff)
		}
	}
	if got := chart.Spec.ChartRef; got.Kind != repository.Kind || got.Name != repository.Name {
		t.Errorf("the release has the chart %+v, want that of the OCIRepository", got)
	}
	if got := ostiary.Spec.HealthChecks; len(got) != 1 || got[0].Kind != chart.Kind || got[0].Name != chart.Name {
		t.Errorf("the health checks are %+v, want the HelmRelease", got)
	}
	if s := policies.Spec; !s.Wait || !s.Prune || len(s.DependsOn) != 1 || s.DependsOn[0].Name != ostiary.Name {
		t.Errorf("the Kustomization does not wait for policies and their definition: %+v", s)
	}
}
