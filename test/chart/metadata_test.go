package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"
)

// TestCatalogues checks what catalogues of charts show of both charts, and that Artifact Hub
// lists their releases and not the candidates.
func TestCatalogues(t *testing.T) {
	for _, dir := range []string{chartDir, libraryChartDir} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, err := loader.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			m := c.Metadata
			if err := m.Validate(); err != nil {
				t.Error(err)
			}
			var links []struct{ Name, URL string }
			if err := yaml.Unmarshal([]byte(m.Annotations["artifacthub.io/links"]), &links); err != nil || len(links) < 2 {
				t.Errorf("links %v, %v", links, err)
			}
			urls := []string{m.Home, m.Icon}
			for _, link := range links {
				urls = append(urls, link.URL)
			}
			readme := file(t, c, "README.md")
			for _, link := range regexp.MustCompile(`\]\(([^)]*)\)`).FindAllStringSubmatch(readme, -1) {
				urls = append(urls, link[1])
			}
			for _, url := range urls {
				wantInRepository(t, url)
			}
			if want := "oci://ghcr.io/ostiary/charts/" + m.Name + " --version " + m.Version + " "; strings.Count(readme, want) != 1 {
				t.Errorf("README.md does not have %q once", want)
			}
			wantListed(t, file(t, c, "artifacthub-repo.yml"), m.Name)
		})
	}
}

func file(t *testing.T, c *chart.Chart, name string) string {
	t.Helper()
	for _, f := range c.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	t.Fatalf("the chart has no file %s", name)
	return ""
}

// wantInRepository expects that a link leads to a file or folder of this repository.
func wantInRepository(t *testing.T, url string) {
	t.Helper()
	parts := regexp.MustCompile(`^https://(?:github\.com/ostiary/ostiary(?:/(?:blob|tree)/main|/issues$|$)|raw\.githubusercontent\.com/ostiary/ostiary/main)(/[^#]*)?`).FindStringSubmatch(url)
	if parts == nil {
		t.Errorf("the link %q leads elsewhere", url)
		return
	}
	if _, err := os.Stat("../.." + parts[1]); err != nil {
		t.Error(err)
	}
}

// wantListed checks the settings of a repository at Artifact Hub.
func wantListed(t *testing.T, settings, name string) {
	t.Helper()
	var s struct {
		RepositoryID string `json:"repositoryID"`
		Owners       []struct{ Name, Email string }
		Ignore       []struct{ Name, Version string }
	}
	if err := yaml.UnmarshalStrict([]byte(settings), &s); err != nil || len(s.Ignore) != 1 || s.Ignore[0].Name != name {
		t.Fatalf("settings %+v, %v", s, err)
	}
	for version, want := range map[string]bool{"0.1.0": false, "0.1.0-rc.1": true} {
		if got, err := regexp.MatchString(s.Ignore[0].Version, version); err != nil || got != want {
			t.Errorf("%s is ignored: %t, %v, want %t", version, got, err, want)
		}
	}
}

// TestArtifactHub compares the metadata for Artifact Hub with what it describes.
func TestArtifactHub(t *testing.T) {
	metadata := load(t).Metadata
	var crds []struct{ Kind, Version, Name string }
	if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/crds"]), &crds); err != nil {
		t.Fatal(err)
	}
	plain, _ := objects(t, namespace, "")
	installed := 0
	for key := range plain {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			installed++
		}
	}
	if len(crds) != installed {
		t.Errorf("%d definitions %v, and the chart installs %d", len(crds), crds, installed)
	}
	for _, d := range crds {
		crd := plain["CustomResourceDefinition "+d.Name]
		versions, _ := field(crd, "spec", "versions").([]any)
		if field(crd, "spec", "names", "kind") != d.Kind || len(versions) != 1 || versions[0].(object)["name"] != d.Version {
			t.Errorf("the chart has no definition %v", d)
		}
	}
	var examples []object
	if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/crdsExamples"]), &examples); err != nil || len(examples) != 1 {
		t.Fatalf("examples %v, %v", examples, err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	if diff := cmp.Diff(parse(t, block)[0], examples[0]); diff != "" {
		t.Errorf("the example (-README +chart):\n%s", diff)
	}
}
