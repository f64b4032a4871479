package plugins

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testTable compares docs/policies/plugins.md with what the API server says of its
// plugins: each has a row, which says whether it is on by default, and since when.
func testTable(t *testing.T, s *side) {
	server := filepath.Join(filepath.Dir(s.plane.Kubectl()), "kube-apiserver")
	help, err := exec.CommandContext(t.Context(), server, "--help").Output()
	if err != nil {
		t.Fatalf("asking the API server for its flags: %v", err)
	}
	flag := regexp.MustCompile(`--disable-admission-plugins .*default enabled plugins list \((.*?)\)\. Comma-delimited list of admission plugins: (.*?)\.`).FindStringSubmatch(string(help))
	if flag == nil {
		t.Fatal("the API server does not say its plugins")
	}
	on, all := strings.Split(flag[1], ", "), strings.Split(flag[2], ", ")
	document, err := os.ReadFile(filepath.Join(root, "docs", "policies", "plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	since := regexp.MustCompile(`since 1\.[0-9]+`)
	var found []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]\w+) \| (.*) \|$`).FindAllStringSubmatch(string(document), -1) {
		name, text := row[1], row[2]
		found = append(found, name)
		if isOn := slices.Contains(on, name); isOn != since.MatchString(text) || isOn == strings.Contains(text, "off by default") {
			t.Errorf("the API server has %s on by default: %t, and the row says %q", name, isOn, text)
		}
	}
	slices.Sort(found)
	slices.Sort(all)
	if !slices.Equal(found, all) {
		t.Errorf("rows of\n%v\nand the API server has\n%v", found, all)
	}
}
