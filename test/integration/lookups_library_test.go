package integration

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// lookupExample is a request whose answer depends on another object.
type lookupExample struct {
	Policy string
	Given  []unstructured.Unstructured
	Create *unstructured.Unstructured // or Delete
	Delete *unstructured.Unstructured
	Other  *unstructured.Unstructured
	Change map[string]any // a merge patch of the other object
	// The messages of denials while the other object does not exist, exists, and is changed.
	Absent, Present, Changed string
}

// TestLookupsOfLibrary creates, changes and deletes the object that each policy of
// library/references looks up, while requests are sent all the time: each answer is that before
// the change or that after it, and no answer before the change follows one after it.
func TestLookupsOfLibrary(t *testing.T) {
	c := install(t)
	c.manager(t)
	text, err := os.ReadFile("testdata/lookups.yaml")
	must(t, err)
	var examples []lookupExample
	must(t, yaml.UnmarshalStrict(text, &examples))
	var tested []string
	for _, e := range examples {
		tested = append(tested, e.Policy)
		t.Run(e.Policy, func(t *testing.T) { c.testLookup(t, e) })
	}
	folders, err := filepath.Glob("../../" + libraryFolder + "references/*/policy.yaml")
	must(t, err)
	var all []string
	for _, path := range folders {
		all = append(all, filepath.Base(filepath.Dir(path)))
	}
	slices.Sort(tested)
	if diff := gocmp.Diff(all, tested); diff != "" {
		t.Errorf("policies with an example (-library +tested):\n%s", diff)
	}
}

func (c *cluster) testLookup(t *testing.T, e lookupExample) {
	names := c.exampleNamespaces(t, example{Namespaces: map[string]exampleNamespace{"a": {}, "b": {}}})
	c.applyLookups(t, e.Policy, func(policy string) string { return policy })
	for i := range e.Given {
		c.applied(t, inYAML(t, names.of(&e.Given[i])))
	}
	other := names.of(e.Other)
	t.Cleanup(func() { _ = c.Delete(context.Background(), other) })
	r := &lookupRequest{cluster: c, example: e, names: names}
	r.await(t, e.Absent)
	r.during(t, e.Absent, e.Present, func() { must(t, c.Create(t.Context(), other.DeepCopy())) })
	r.during(t, e.Present, e.Changed, func() { c.patched(t, other, e.Change) })
	r.during(t, e.Changed, e.Absent, func() {
		c.patched(t, other, map[string]any{"metadata": map[string]any{"finalizers": nil}}) // no controller removes them
		must(t, c.Delete(t.Context(), other.DeepCopy()))
	})
}

// applyLookups applies a policy of the library that denies, its role, and the kinds of its test.
func (c *cluster) applyLookups(t *testing.T, name string, edit func(policy string) string) {
	t.Helper()
	folder := "../../" + libraryFolder + "references/" + name + "/"
	if definitions, err := os.ReadFile(folder + "definitions.yaml"); err == nil {
		c.applied(t, string(definitions))
		_, errOut, err := c.kubectl(t.Context(), string(definitions), "wait", "--for=condition=Established", "-f", "-")
		if err != nil {
			t.Fatalf("%v: %s", err, errOut)
		}
	}
	role, err := os.ReadFile(folder + "role.yaml")
	must(t, err)
	policy, err := os.ReadFile(folder + "policy.yaml")
	must(t, err)
	c.applied(t, string(role), edit(strings.Replace(string(policy), "validationActions: [Audit]", "validationActions: [Deny]", 1)))
	t.Cleanup(func() { c.awaitPolicyGone(t, name) })
	t.Cleanup(func() { c.discard(name) })
	c.awaitReady(t, name)
}

func (c *cluster) patched(t *testing.T, object *unstructured.Unstructured, change map[string]any) {
	t.Helper()
	patch, err := json.Marshal(change)
	must(t, err)
	must(t, c.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// lookupRequest sends the request of an example.
type lookupRequest struct {
	*cluster
	example lookupExample
	names   replacements
}

// answer returns the message of the denial by the policy, "" for an allowed request, and every other
// error as it is.
func (r *lookupRequest) answer(ctx context.Context) string {
	var err error
	if r.example.Delete != nil {
		err = r.cluster.Delete(ctx, r.names.of(r.example.Delete), client.DryRunAll)
	} else {
		err = r.cluster.Create(ctx, r.names.of(r.example.Create), client.DryRunAll)
	}
	if err == nil {
		return ""
	}
	by, message, isDenial := strings.Cut(err.Error(), " denied request: ")
	if !isDenial || !strings.HasSuffix(by, "WebhookPolicy '"+r.example.Policy+"' with binding 'library'") {
		return err.Error()
	}
	return message
}

// await waits for an answer.
func (r *lookupRequest) await(t *testing.T, want string) {
	t.Helper()
	await(t).Eventually(func() string {
		return gocmp.Diff(r.names.in(want), r.answer(t.Context()))
	}).Should(BeEmpty(), "the answer (-want +got)")
}

// during sends requests while something is done, until the answer is the one after it.
func (r *lookupRequest) during(t *testing.T, before, after string, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	answers, sent := make(chan string), make(chan struct{})
	go func() {
		defer close(answers)
		for {
			answer := r.answer(t.Context())
			select {
			case answers <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	var got []string
	go func() {
		defer close(sent)
		for answer := range answers {
			if len(got) == 0 || got[len(got)-1] != answer {
				got = append(got, answer)
			}
		}
	}()
	do()
	r.await(t, after)
	stop()
	<-sent
	want := slices.Compact([]string{r.names.in(before), r.names.in(after)})
	// Either answer can be missing if no request was sent in that time.
	if !slices.Equal(got, want[:min(len(got), 1)]) && !slices.Equal(got, want[len(want)-1:]) && !slices.Equal(got, want) {
		t.Errorf("answers, each once while it stays the same: got %q, want %q", got, want)
	}
}
