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
	// executed counts commands.
	executed int
}

func newGuide(t *testing.T, c *cluster) *guide {
	t.Helper()
	g := &guide{c: c, folder: t.TempDir()}
	t.Chdir(g.folder)
	return g
}

// TestGuides executes the tutorials that need a cluster, and the steps of a migration: it
// writes the files that they show, and compares the output of the commands of each console
// with the text.
func TestGuides(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	t.Cleanup(func() { // if a command fails
		c.discard("no-latest", "require-owner", "team-label")
		_, _, _ = c.kubectl(context.Background(), "", "delete", "validatingadmissionpolicybinding", "team-label", "--ignore-not-found")
	})
	for page, want := range map[string]int{"tutorials/first-policy.md": 10, "tutorials/enforcing-safely.md": 20, "migrating/steps.md": 13} {
		t.Run(page, func(t *testing.T) {
			text := readGuide(t, "docs/"+page)
			g := newGuide(t, c)
			g.follow(t, text)
			if g.executed != want {
				t.Errorf("executed %d commands, want %d", g.executed, want)
			}
		})
	}
}

// TestRecoveryGuide executes the commands of docs/howto/recovery.md: those for a policy that
// denies too much, and after the manager ended, those for an installation that does not answer.
func TestRecoveryGuide(t *testing.T) {
	c := install(t)
	m := c.reviewing(t, true)
	text := readGuide(t, "docs/howto/recovery.md")
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

// TestHighAvailabilityGuide sends the kustomization of docs/howto/high-availability.md to the API
// server as a dry run. Its remote folders are those of this repository.
func TestHighAvailabilityGuide(t *testing.T) {
	c := install(t)
	root, err := filepath.Abs(repository)
	must(t, err)
	text := readGuide(t, "docs/howto/high-availability.md")
	g := newGuide(t, c)
	// Remote folders are relative paths here: kustomize permits no absolute ones.
	relative, err := filepath.Rel(g.folder, root)
	must(t, err)
	_, rest, _ := strings.Cut(text, "```yaml kustomization.yaml\n")
	manifest, _, _ := strings.Cut(rest, "```\n")
	manifest = strings.NewReplacer("https://github.com/ostiary/ostiary//", relative+"/", "?ref=main", "").Replace(manifest)
	must(t, os.WriteFile("kustomization.yaml", []byte(manifest), 0o600))
	g.execute(t, "kubectl apply --server-side --force-conflicts --dry-run=server -k . -o yaml > applied.yaml", "")
	applied, err := os.ReadFile("applied.yaml")
	must(t, err)
	for _, want := range []string{"    replicas: 3\n", "whenUnsatisfiable: DoNotSchedule\n", "    minAvailable: 2\n"} {
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
// the commands of its consoles.
func (g *guide) follow(t *testing.T, text string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+) ?([^\n]*)\n(.*?\n)```$").FindAllStringSubmatch(text, -1) {
		switch language, name, content := block[1], block[2], block[3]; {
		case name != "":
			must(t, os.WriteFile(filepath.Join(g.folder, name), []byte(content), 0o600))
		case language == "console":
			for _, step := range strings.Split(content, "$ ")[1:] {
				command, wanted, _ := strings.Cut(step, "\n")
				g.execute(t, command, wanted)
			}
		}
	}
}

// execute runs a command until it has the wanted output. Without one, only its status matters.
func (g *guide) execute(t *testing.T, command, wanted string) {
	t.Helper()
	g.executed++
	pattern := outputPattern(wanted)
	await(t).Eventually(func() error {
		out, err := g.run(t, command)
		denied := strings.HasPrefix(wanted, "Error")
		switch {
		case strings.Contains(out, "error looking up service account"), strings.Contains(out, "failed calling webhook"),
			denied && strings.Contains(command, "--dry-run=server") && !pattern.MatchString(out):
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

// run returns what a command prints. kubectl-ostiary is not built: its code runs here.
func (g *guide) run(t *testing.T, command string) (string, error) {
	t.Helper()
	if rest, ok := strings.CutPrefix(command, "kubectl ostiary "); ok {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		if status := cli.Run(t.Context(), "kubectl ostiary", strings.Fields(rest), streams); status != output.StatusOK {
			return out.String() + errOut.String(), fmt.Errorf("exit status %d", status)
		}
		return out.String(), nil
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = g.folder
	cmd.Env = []string{"PATH=" + filepath.Dir(plane.Kubectl()) + ":" + os.Getenv("PATH"), "HOME=" + g.c.dir, "KUBECONFIG=" + plane.Kubeconfig()}
	out, err := cmd.CombinedOutput()
	// A policy that denies gets a warning here, because the test has a single replica.
	return regexp.MustCompile(`(?m)^Warning: spec\..*\n`).ReplaceAllString(string(out), ""), err
}
