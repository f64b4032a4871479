package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestArtifactHub compares the metadata for Artifact Hub with what it describes.
func TestArtifactHub(t *testing.T) {
	metadata := load(t).Metadata
	if metadata.Icon != "https://raw.githubusercontent.com/ostiary/ostiary/main/docs/images/icon.svg" {
		t.Errorf("the icon is %q", metadata.Icon)
	}
	if _, err := os.Stat("../../docs/images/icon.svg"); err != nil {
		t.Error(err)
	}
	var crds []struct{ Kind, Version, Name string }
	if err := yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/crds"]), &crds); err != nil || len(crds) != 1 {
		t.Fatalf("definitions %v, %v", crds, err)
	}
	plain, _ := objects(t, namespace, "")
	crd := plain["CustomResourceDefinition "+crds[0].Name]
	versions, _ := field(crd, "spec", "versions").([]any)
	if field(crd, "spec", "names", "kind") != crds[0].Kind || len(versions) != 1 || versions[0].(object)["name"] != crds[0].Version {
		t.Errorf("the chart has no definition %v", crds[0])
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
