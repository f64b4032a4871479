package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
)

// guide is a document whose commands are executed in a folder of their own, with kubectl and
// the permissions of an administrator.
type guide struct {
	c      *cluster
	folder string
	// executed and skipped count commands.
	executed, skipped int
}

// elsewhere are the beginnings of documented commands that need more than API servers, with what
// executes them.
func elsewhere() map[string]string {
	return map[string]string{
		"helm ":                            "TestDocumentedCommands of the chart",
		"kubectl apply --server-side -k .": "TestHighAvailabilityGuide, as a dry run",
		"kubectl -n ostiary-system rollout status ":         "make e2e",
		"kubectl -n ostiary-system port-forward ":           "nothing: it needs a Pod",
		"curl 'http://localhost:8081/readyz?verbose'":       "nothing: it needs the port of a Pod",
		"cmctl renew -n ostiary-system ostiary-certificate": "nothing: TestCertManager requests a renewal as cmctl does",
		"kind create cluster":                               "the workflow nightly",
	}
}

// notGuides are the pages with commands that TestGuides does not execute, with what does.
func notGuides() map[string]string {
	return map[string]string{
		"tutorials/idea-to-ci.md":           "TestIdeaToCI and TestTutorial of kubectl-ostiary",
		"operations/recovery.md":            "TestRecoveryGuide",
		"operations/install.md":             "make e2e, and TestDocumentedCommands of the chart",
		"operations/releases.md":            "TestDocumentedCommands of the chart; nothing executes cosign",
		"operations/violations.md":          "TestDocumentedCommands of the chart; nothing reads logs and Events",
		"operations/audit.md":               "nothing: the page shows results of a scan",
		"operations/connections.md":         "nothing: the page starts the manager",
		"operations/kubernetes-versions.md": ".ci/nightly",
	}
}

func newGuide(t *testing.T, c *cluster) *guide {
	t.Helper()
	g := &guide{c: c, folder: t.TempDir()}
	t.Chdir(g.folder)
	t.Setenv("KUBECONFIG", plane.Kubeconfig()) // of kubectl-ostiary, which runs in this process

	for _, file := range []string{"tls.crt", "tls.key", "ca.crt"} { // of docs/operations/certificate-sources.md
		must(t, os.WriteFile(file, []byte(file), 0o600))
	}
	return g
}

// TestGuides executes the commands of the tutorials and of pages that start with commands: it
// writes the files that they show, and compares the output of the commands of each console with
// the text. The other tests of this file execute further guides.
func TestGuides(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	t.Cleanup(func() { // if a command fails
		c.discard("no-latest", "require-owner", "team-label")
		_, _, _ = c.kubectl(context.Background(), "", "delete", "validatingadmissionpolicybinding", "team-label", "--ignore-not-found")
	})
	pages := map[string]struct{ executed, skipped int }{
		"tutorials/first-policy.md":         {10, 2},
		"tutorials/enforcing-safely.md":     {22, 0},
		"operations/high-availability.md":   {1, 2},
		"operations/certificate-sources.md": {1, 1},
		"policies/break-glass.md":           {1, 0},
		"operations/monitoring.md":          {2, 1},
		"operations/lookups.md":             {1, 0},
		"operations/README.md":              {3, 2},
		"operations/troubleshooting.md":     {6, 0},
		"migration/steps.md":                {13, 0},
	}
	for page, want := range pages {
		t.Run(page, func(t *testing.T) {
			text := readGuide(t, "docs/"+page)
			c.prepareGuide(t, page)
			g := newGuide(t, c)
			g.follow(t, text)
			if g.executed != want.executed || g.skipped != want.skipped {
				t.Errorf("executed %d commands and skipped %d, want %d and %d", g.executed, g.skipped, want.executed, want.skipped)
			}
		})
	}
	for _, folder := range []string{"tutorials/", "operations/"} {
		files, err := os.ReadDir(filepath.Join(repository, "docs", folder))
		must(t, err)
		for _, file := range files {
			page := folder + file.Name()
			if _, here := pages[page]; here || notGuides()[page] != "" {
				continue
			}
			for _, block := range blocksOf(readGuide(t, "docs/"+page)) {
				if steps := stepsOf(block.language, block.content); len(steps) > 0 {
					t.Errorf("no test executes the commands of docs/%s: %v", page, steps)
				}
			}
		}
	}
}

// prepareGuide makes what a page refers to.
func (c *cluster) prepareGuide(t *testing.T, page string) {
	t.Helper()
	remove := func(args ...string) {
		t.Cleanup(func() {
			_, _, _ = c.kubectl(context.Background(), "", append([]string{"delete", "--ignore-not-found", "--wait=false"}, args...)...)
		})
	}
	switch page {
	case "operations/certificate-sources.md":
		remove("-n", systemNamespace, "secret", "ostiary-own-certificate")
	case "tutorials/enforcing-safely.md": // without a kubelet, its Pods stay, and warnings in other pages count them
		remove("-n", "bakery", "pods", "--all", "--force", "--grace-period=0")
	case "operations/lookups.md":
		remove("clusterrole", "ostiary-lookups-claims")
	case "policies/break-glass.md":
		c.documentedFreeze(t)
	case "operations/monitoring.md":
		c.applied(t, "{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}")
		remove("clusterrolebinding", "ostiary-metrics-prometheus")
	case "operations/troubleshooting.md":
		c.enforce(t, newPolicy("require-team", c.namespace(t, nil)))
		remove("deployment", "web")
	}
}

// TestIdeaToCI executes the commands of the tutorial that need a cluster. TestTutorial of
// kubectl-ostiary executes the others.
func TestIdeaToCI(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	t.Cleanup(func() { c.discard("memory-limits") })
	_, text, found := strings.Cut(readGuide(t, "docs/tutorials/idea-to-ci.md"), "\n```yaml policies/memory-limits.yaml\n")
	_, last, applied := strings.Cut(text, "\n## 7. Apply it\n")
	if !found || !applied {
		t.Fatal("the tutorial has no policy, or no last step")
	}
	policy, _, _ := strings.Cut(text, "```\n")
	_, fix, _ := strings.Cut(text, "\n```yaml fix\n")
	fix, _, _ = strings.Cut(fix, "```\n")
	policy = regexp.MustCompile(`(?m)^    expression: object.*\n`).ReplaceAllLiteralString(policy, fix)
	g := newGuide(t, c)
	must(t, os.Mkdir("policies", 0o700))
	must(t, os.WriteFile("policies/memory-limits.yaml", []byte(policy), 0o600))
	g.follow(t, last)
	if g.executed != 2 {
		t.Errorf("executed %d commands, want 2", g.executed)
	}
}

// TestRecoveryGuide executes the commands of docs/operations/recovery.md: those for a policy that
// denies too much, and after the manager ended, those for an installation that does not answer.
func TestRecoveryGuide(t *testing.T) {
	c := install(t)
	m := c.reviewing(t, true)
	text := readGuide(t, "docs/operations/recovery.md")
	policy, outage, found := strings.Cut(text, "\n## Ostiary does not answer\n")
	if !found {
		t.Fatal("the page has no section about outages")
	}
	const frozen = `{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: frozen}, spec: {bindings: [{name: all}],
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]},
  validations: [{expression: 'object.metadata.name != "probe"', message: no probes}]}}`
	create := func() string {
		_, errOut, _ := c.kubectl(t.Context(), "", "create", "configmap", "probe", "--dry-run=server")
		return errOut
	}
	c.applied(t, frozen)
	c.awaitReady(t, "frozen")
	await(t).Eventually(create).Should(ContainSubstring("no probes"))

	newGuide(t, c).follow(t, policy)
	await(t).Eventually(create).Should(BeEmpty())

	if _, err := newGuide(t, c).run(t, "kubectl ostiary resume frozen"); err != nil {
		t.Fatal(err)
	}
	c.kubectlApply(t, frozen)
	c.awaitReady(t, "frozen")
	await(t).Eventually(create).Should(ContainSubstring("no probes"))
	c.end(m)
	if errOut := create(); !strings.Contains(errOut, "failed calling webhook") {
		t.Errorf("without a manager: %q", errOut)
	}
	t.Cleanup(func() {
		_, _, _ = c.kubectl(context.Background(), "", "delete", "configmap", "probe", "--ignore-not-found")
	})
	newGuide(t, c).follow(t, outage)
	_, _, err := c.kubectl(t.Context(), "", "delete", "configmap", "probe")
	must(t, err)
	c.reviewing(t, true)
	await(t).Eventually(create).Should(ContainSubstring("no probes"))
}

// TestHighAvailabilityGuide sends the kustomization of docs/operations/high-availability.md to the API
// server as a dry run. Its remote folders are those of this repository.
func TestHighAvailabilityGuide(t *testing.T) {
	c := install(t)
	root, err := filepath.Abs(repository)
	must(t, err)
	text := readGuide(t, "docs/operations/high-availability.md")
	g := newGuide(t, c)
	// Remote folders are relative paths here: kustomize permits no absolute ones.
	relative, err := filepath.Rel(g.folder, root)
	must(t, err)
	_, rest, _ := strings.Cut(text, "```yaml kustomization.yaml\n")
	manifest, _, _ := strings.Cut(rest, "```\n")
	remote := regexp.MustCompile(`https://github\.com/ostiary/ostiary//(\S+)\?ref=(v\S+)`)
	folders := remote.FindAllStringSubmatch(manifest, -1)
	if len(folders) != 2 {
		t.Fatalf("the kustomization has %d folders of a release, want 2:\n%s", len(folders), manifest)
	}
	manifest = remote.ReplaceAllString(manifest, relative+"/$1")
	must(t, os.WriteFile("kustomization.yaml", []byte(manifest), 0o600))
	g.execute(t, "kubectl apply --server-side --force-conflicts --dry-run=server -k . -o yaml > applied.yaml", "")
	applied, err := os.ReadFile("applied.yaml")
	must(t, err)
	for _, want := range []string{"    replicas: 3\n", "whenUnsatisfiable: DoNotSchedule\n", "    minAvailable: 2\n", "image: ghcr.io/ostiary/ostiary:" + folders[0][2] + "\n"} {
		if !strings.Contains(string(applied), want) {
			t.Errorf("the installation has no %q", want)
		}
	}
}

func readGuide(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, document))
	must(t, err)
	return string(text)
}

// follow writes the files of a text, which have their name after the language, and executes
// the commands of its scripts and consoles.
func (g *guide) follow(t *testing.T, text string) {
	t.Helper()
	for _, block := range blocksOf(text) {
		if block.name != "" {
			must(t, os.WriteFile(filepath.Join(g.folder, block.name), []byte(block.content), 0o600))
			continue
		}
		for _, step := range stepsOf(block.language, block.content) {
			g.execute(t, step.command, step.wanted)
		}
	}
}

// block is a part of a document between fences.
type block struct{ language, name, content string }

func blocksOf(text string) (out []block) {
	for _, match := range regexp.MustCompile("(?ms)^```(\\w+) ?([^\n]*)\n(.*?\n)```$").FindAllStringSubmatch(text, -1) {
		out = append(out, block{match[1], match[2], match[3]})
	}
	return out
}

// guideStep is a command of a document, with its output.
type guideStep struct{ command, wanted string }

// stepsOf returns the lines of a script, or what follows each prompt of a console.
func stepsOf(language, content string) (out []guideStep) {
	content = strings.ReplaceAll(content, "\\\n", "")
	switch language {
	case "sh", "shell":
		for command := range strings.Lines(content) {
			out = append(out, guideStep{command: strings.TrimSpace(command)})
		}
	case "console":
		for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(content, -1)[1:] {
			command, wanted, _ := strings.Cut(part, "\n")
			out = append(out, guideStep{command, wanted})
		}
	}
	return out
}

// execute runs a command until it has the wanted output. Without one, only its status matters.
func (g *guide) execute(t *testing.T, command, wanted string) {
	t.Helper()
	for beginning, where := range elsewhere() {
		if strings.HasPrefix(command, beginning) {
			g.skipped++
			t.Logf("$ %s: executed by %s", command, where)
			return
		}
	}
	g.executed++
	pattern := outputPattern(wanted)
	await(t).Eventually(func() error {
		out, err := g.run(t, command)
		denied := strings.HasPrefix(wanted, "Error")
		switch {
		case strings.Contains(out, "error looking up service account"), strings.Contains(out, "failed calling webhook"),
			wanted != "" && strings.Contains(command, "--dry-run=server") && !pattern.MatchString(out):
			return fmt.Errorf("not yet: %s", out) // API servers and controllers take a moment
		case (err != nil) != denied:
			return StopTrying(fmt.Sprintf("$ %s\n%s%v", command, out, err))
		case wanted != "" && !pattern.MatchString(out):
			return StopTrying(fmt.Sprintf("$ %s\n%s, and the document says\n%s", command, out, wanted))
		}
		return nil
	}).Should(Succeed())
}

// outputPattern matches a documented output, with any name of a webhook and any ages and columns.
func outputPattern(wanted string) *regexp.Regexp {
	p := regexp.QuoteMeta(wanted)
	p = regexp.MustCompile(`policies-[0-9a-f]{8}`).ReplaceAllString(p, `policies-[0-9a-f]{8}`)
	p = regexp.MustCompile(`\b\d+s\n`).ReplaceAllString(p, `(\d+[dhms])+`+"\n")
	p = regexp.MustCompile(`  +`).ReplaceAllString(p, ` +`)
	return regexp.MustCompile(`^` + p + `$`)
}

// wordsOf splits a command at its spaces, except for those between quotes.
func wordsOf(command string) (out []string) {
	for _, match := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(command, -1) {
		out = append(out, match[1]+match[2])
	}
	return out
}

// checkDoctor expects the one finding that the doctor has about an installation without a fault here: API servers
// call the manager on their own machine.
func checkDoctor(out string) error {
	var others []string
	for _, match := range regexp.MustCompile(`(?m)^(?:error|warning|info) (\S+) .*$`).FindAllStringSubmatch(out, -1) {
		if match[1] != "url-loopback" {
			others = append(others, match[0])
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("the doctor found %q", others)
	}
	return nil
}

// run returns what a command prints. kubectl-ostiary is not built: its code runs here.
func (g *guide) run(t *testing.T, command string) (string, error) {
	t.Helper()
	if rest, ok := strings.CutPrefix(command, "kubectl ostiary "); ok {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		status := cli.Run(t.Context(), "kubectl ostiary", wordsOf(rest), streams)
		t.Logf("$ %s\n%s%s", command, out.String(), errOut.String())
		if rest == "doctor" && status == output.StatusFindings {
			return out.String(), checkDoctor(out.String())
		}
		if status != output.StatusOK {
			return out.String() + errOut.String(), fmt.Errorf("exit status %d", status)
		}
		return out.String(), nil
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = g.folder
	cmd.Env = []string{"PATH=" + filepath.Dir(plane.Kubectl()) + ":" + os.Getenv("PATH"), "HOME=" + g.c.dir, "KUBECONFIG=" + plane.Kubeconfig()}
	out, err := cmd.CombinedOutput()
	// A policy that denies gets a warning here, because the test has a single replica, and one is not rehearsed
	// if the machine is busy.
	return regexp.MustCompile(`(?m)^Warning: (spec\.|not rehearsed: ).*\n`).ReplaceAllString(string(out), ""), err
}
