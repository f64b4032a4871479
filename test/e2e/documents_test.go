//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// documentedImage is the one that the documents' commands install.
const documentedImage = "ghcr.io/ostiary/ostiary:dev"

// section is the text below a heading of a document.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", file, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// commands are the lines of a section's blocks of sh that begin with a program.
func commands(t *testing.T, file, heading, program string) (out []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section(t, file, heading), -1) {
		for line := range strings.Lines(block[1]) {
			if strings.HasPrefix(line, program+" ") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s, %s: no commands of %s", file, heading, program)
	}
	return out
}

// offline replaces the files and the charts of a release by those of the clone: the node has no
// network.
func offline(command string) string {
	command = regexp.MustCompile(`https://github\.com/ostiary/ostiary/releases/download/v[0-9.]+/`).ReplaceAllString(command, "dist/")
	return regexp.MustCompile(`oci://ghcr\.io/ostiary/(charts/\S+) --version \S+`).ReplaceAllString(command, "$1")
}

// follow types commands of the documents, each once, as a user who has kubectl,
// Helm and a clone. It returns what they printed.
func (w *world) follow(t *testing.T, lists ...[]string) string {
	t.Helper()
	w.setPath(t)
	var printed strings.Builder
	seen := map[string]bool{}
	for _, command := range slices.Concat(lists...) {
		if seen[command] {
			continue
		}
		seen[command] = true
		command = offline(command)
		if strings.HasPrefix(command, "helm install ") {
			command = strings.Join(append([]string{command}, w.imageValues()...), " ")
		}
		r := typed(t, root, command)
		if r.err != nil {
			t.Fatalf("%v\n%s", r.err, w.try(t, "", "-n", namespace, "get", "pods,jobs,events"))
		}
		printed.WriteString(r.stdout + r.stderr)
	}
	return printed.String()
}

// setPath lets commands find kubectl and Helm.
func (w *world) setPath(t *testing.T) {
	t.Helper()
	programs := t.TempDir()
	for name, path := range map[string]string{"kubectl": w.kubectl, "helm": w.helm} {
		if err := os.Symlink(path, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":/usr/bin:/bin")
}

// typed runs a command in a folder, and logs how long it took.
func typed(t *testing.T, folder, command string) result {
	t.Helper()
	start := time.Now()
	r := run(t.Context(), "", "sh", "-c", "cd "+folder+" && "+command)
	t.Logf("%.1f s $ %s\n%s%s", time.Since(start).Seconds(), command, r.stdout, r.stderr)
	return r
}

// testFirstPolicy types the commands that README.md shows after the installation.
func (w *world) testFirstPolicy(t *testing.T) {
	w.setPath(t)
	t.Cleanup(func() {
		_ = run(context.Background(), "", w.kubectl, "delete", "--ignore-not-found", "whp/require-team")
	})
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```.*?```console\n(.*?)```").FindStringSubmatch(section(t, "README.md", "A first policy"))
	if blocks == nil {
		t.Fatal("README.md shows no policy with commands")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "require-team.yaml"), []byte(blocks[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	var last result
	for line := range strings.Lines(blocks[2]) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		last = typed(t, folder, command)
		if denied := strings.HasPrefix(command, "kubectl run "); (last.err != nil) != denied {
			t.Fatalf("%s: %v", command, last)
		}
	}
	if !strings.Contains(last.stderr, "WebhookPolicy 'require-team' denied request: add the label team") {
		t.Errorf("the last command was not denied: %v", last)
	}
}

// example is a policy that a document shows.
type example struct {
	v1alpha1.WebhookPolicy
	text string
}

// examples are the policies in the YAML blocks of documents.
func examples(t *testing.T, patterns ...string) (out []example) {
	t.Helper()
	for _, pattern := range patterns {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %d documents, %v", pattern, len(pages), err)
		}
		for _, page := range pages {
			out = append(out, examplesIn(t, page)...)
		}
	}
	return out
}

func examplesIn(t *testing.T, page string) (out []example) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			if !strings.Contains(document, "kind: WebhookPolicy\n") {
				continue
			}
			e := example{text: document + "\n---\n"}
			if err := yaml.UnmarshalStrict([]byte(document), &e.WebhookPolicy); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			out = append(out, e)
		}
	}
	return out
}

// marked is the YAML block of a document that follows a mark.
func marked(t *testing.T, file, mark string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(raw), "<!-- "+mark+" -->\n```yaml\n")
	if !found {
		t.Fatalf("%s has no block with the mark %s", file, mark)
	}
	block, _, _ := strings.Cut(rest, "```\n")
	return block
}
