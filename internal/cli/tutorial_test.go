package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// block is a code block of a document.
type block struct{ language, name, text string }

func blocksOf(t *testing.T, path string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*) ?([^\n]*)\n(.*?)\n```$").FindAllStringSubmatch(string(text), -1) {
		out = append(out, block{m[1], m[2], m[3] + "\n"})
	}
	return out
}

// TestTutorial executes the steps of the tutorial: it writes its files, runs its commands
// except those for a cluster, and compares their output and exit status with the text.
func TestTutorial(t *testing.T) {
	blocks := blocksOf(t, "../../docs/tutorials/idea-to-ci.md")
	t.Chdir(t.TempDir())
	// The exit status of each command, in order: the others are 0.
	want := map[string][]int{
		"kubectl ostiary test tests":                    {output.StatusFindings, output.StatusOK},
		"kubectl ostiary eval -f policies -f pods.yaml": {output.StatusFindings},
	}
	last, commands := "", 0
	for _, b := range blocks {
		switch {
		case b.language == "yaml" && b.name == "fix":
			fixPolicy(t, b.text)
		case b.language == "yaml":
			writeBlock(t, b)
		case b.language == "" && strings.TrimSpace(b.text) != strings.TrimSpace(last):
			t.Errorf("the output is\n%s\nand the document says\n%s", last, b.text)
		case b.language == "console":
			for line := range strings.Lines(b.text) {
				command := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
				if strings.HasPrefix(command, "kubectl ostiary") {
					last = runStep(t, command, want)
					commands++
				}
			}
		}
	}
	if commands != 5 {
		t.Errorf("%d commands, want 5", commands)
	}
	for command, left := range want {
		if len(left) > 0 {
			t.Errorf("the document does not run %s, which should end with status %v", command, left)
		}
	}
}

func writeBlock(t *testing.T, b block) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.name, []byte(b.text), 0o644); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.text) { // of a workflow
		_, command, ok := strings.Cut(line, "kubectl-ostiary ")
		if !ok {
			continue
		}
		command, _, _ = strings.Cut(strings.TrimSpace(command), " > ")
		if status, out, errOut := run(t, strings.Fields(command)...); status != output.StatusOK {
			t.Errorf("%s: %s: status %d\n%s%s", b.name, command, status, out, errOut)
		}
	}
}

// fixPolicy replaces the line of the policy that begins like the text.
func fixPolicy(t *testing.T, text string) {
	t.Helper()
	const path = "policies/memory-limits.yaml"
	policy, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fixed := regexp.MustCompile(`(?m)^    expression: object.*\n`).ReplaceAllLiteralString(string(policy), text)
	if fixed == string(policy) {
		t.Fatal("the policy has no such line")
	}
	if err := os.WriteFile(path, []byte(fixed), 0o644); err != nil {
		t.Fatal(err)
	}
}

func runStep(t *testing.T, command string, want map[string][]int) string {
	t.Helper()
	wanted := output.StatusOK
	if left := want[command]; len(left) > 0 {
		wanted, want[command] = left[0], left[1:]
	}
	status, out, errOut := run(t, strings.Fields(command)[2:]...)
	if status != wanted {
		t.Errorf("%s: status %d, want %d\n%s%s", command, status, wanted, out, errOut)
	}
	return out
}

// TestGuide runs the PolicyTest of the guide beside the samples.
func TestGuide(t *testing.T) {
	for _, b := range blocksOf(t, "../../docs/cli/README.md") {
		if b.name != "policytest" {
			continue
		}
		root := t.TempDir()
		sample, err := os.ReadFile("../../config/samples/01-require-team-label.yaml")
		if err != nil {
			t.Fatal(err)
		}
		writeFile := func(name, text string) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		writeFile("01-require-team-label.yaml", string(sample))
		writeFile("tests/test.yaml", b.text)
		if status, out, errOut := run(t, "test", filepath.Join(root, "tests"), "--root", root); status != output.StatusOK {
			t.Errorf("status %d\n%s%s", status, out, errOut)
		}
		return
	}
	t.Error("the guide has no PolicyTest")
}
