package crd

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/test/controlplane"
)

const (
	root       = "../.."
	samplesDir = root + "/config/samples"
)

// testSamples applies every sample, and has the API server compile its policies
// as native ones.
func testSamples(t *testing.T, cp *controlplane.ControlPlane, client dynamic.Interface) {
	files, err := filepath.Glob(filepath.Join(samplesDir, "[0-9]*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the samples: %d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(text), "# ") || !strings.Contains(string(text), "\n# Shows: ") {
				t.Error("begin with a comment that says what the policy is for, and a paragraph \"Shows: ...\"")
			}
			apply(t, cp, file)
			testCompiles(t, client, string(text))
		})
	}
	list, err := os.ReadFile(filepath.Join(samplesDir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.Contains(string(list), "\n- "+filepath.Base(file)+"\n") {
			t.Errorf("kustomization.yaml does not list %s", filepath.Base(file))
		}
	}
}

// testDocuments has the API server accept every block of YAML in the documents,
// which are complete objects.
func testDocuments(t *testing.T, cp *controlplane.ControlPlane, client dynamic.Interface) {
	for _, namespace := range []string{"shop", "billing"} { // those of the examples
		if _, stderr, err := kubectl(t, cp, "create", "namespace", namespace); err != nil {
			t.Fatalf("creating a namespace: %v\n%s", err, stderr)
		}
	}
	withoutPolicy := map[string]bool{
		"docs/policies/library.md": true, "docs/policies/status.md": true, "docs/policies/exception-status.md": true,
	}
	found := map[string]int{}
	for _, file := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range yamlBlocks(string(text)) {
			if configuresAPIServer(block) {
				continue
			}
			found[file]++
			t.Run(fmt.Sprintf("%s-%d", file, i), func(t *testing.T) {
				manifest := filepath.Join(t.TempDir(), "block.yaml")
				if err := os.WriteFile(manifest, []byte(block), 0o600); err != nil {
					t.Fatal(err)
				}
				apply(t, cp, manifest, "--dry-run=server")
				testCompiles(t, client, block)
			})
		}
		if strings.HasPrefix(file, "docs/policies/") && !withoutPolicy[file] && found[file] == 0 {
			t.Errorf("%s shows no policy", file)
		}
	}
	if found["README.md"] == 0 {
		t.Error("found no block of YAML in README.md")
	}
}

// configuresAPIServer reports whether a block is a file of an API server, which
// is no object of the API. The test of callers starts an API server with them.
func configuresAPIServer(block string) bool {
	return strings.Contains(block, "\nkind: AdmissionConfiguration\n") || strings.Contains(block, "\nkind: Config\n")
}

// yamlBlocks are the blocks of YAML in a document.
func yamlBlocks(text string) []string {
	var out []string
	for _, part := range strings.Split("\n"+text, "\n```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```\n")
		out = append(out, block)
	}
	return out
}

// documents are the paths of README.md and all documents below docs.
func documents(t *testing.T) []string {
	out := []string{"README.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply demands that the API server accepts a file and has nothing to warn about.
func apply(t *testing.T, cp *controlplane.ControlPlane, file string, args ...string) {
	t.Helper()
	stdout, stderr, err := kubectl(t, cp, append([]string{"apply", "--server-side", "--validate=strict", "-f", file}, args...)...)
	if err != nil || stderr != "" {
		t.Errorf("applying %s: %v\n%s%s", file, err, stdout, stderr)
	}
}

// testCompiles has the API server compile the policies of a file as native
// ones: those of Ostiary are compiled by Ostiary alone.
func testCompiles(t *testing.T, client dynamic.Interface, file string) {
	t.Helper()
	for document := range strings.SplitSeq(file, "\n---\n") {
		object := parse(t, document)
		if object.GetKind() != "WebhookPolicy" {
			continue
		}
		for resource, objects := range nativeObjects(t, object) {
			for _, native := range objects {
				if _, err := dryRun(t, client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)), native); err != nil {
					t.Errorf("refused as one of the native %s: %v", resource, err)
				}
			}
		}
	}
}

// nativeObjects are the native policies and bindings that do what a WebhookPolicy
// does, by their resource.
func nativeObjects(t *testing.T, policy *unstructured.Unstructured) map[string][]*unstructured.Unstructured {
	t.Helper()
	validating := []string{"validations", "auditAnnotations"}
	mutating := []string{"mutations", "reinvocationPolicy"}
	own := []string{
		"bindings", "timeoutSeconds", "order", "breakGlass", "allowCriticalResources", "podTemplates", "ratchet", "audit", "exceptions",
	}
	has := func(field string) bool {
		_, found, _ := unstructured.NestedFieldNoCopy(policy.Object, "spec", field)
		return found
	}
	if has("lookups") { // native policies read no other objects
		return nil
	}
	out := map[string][]*unstructured.Unstructured{}
	if slices.ContainsFunc(validating, has) {
		out["validatingadmissionpolicies"] = []*unstructured.Unstructured{
			nativeOf(policy, "ValidatingAdmissionPolicy", slices.Concat(own, mutating)),
		}
		out["validatingadmissionpolicybindings"] = nativeBindings(t, policy, "ValidatingAdmissionPolicyBinding")
	}
	if has("mutations") {
		native := nativeOf(policy, "MutatingAdmissionPolicy", slices.Concat(own, validating))
		if !has("reinvocationPolicy") {
			native.Object["spec"].(map[string]any)["reinvocationPolicy"] = "Never"
		}
		out["mutatingadmissionpolicies"] = []*unstructured.Unstructured{native}
		out["mutatingadmissionpolicybindings"] = nativeBindings(t, policy, "MutatingAdmissionPolicyBinding")
	}
	return out
}

// nativeOf is the native policy with the same spec, less some fields.
func nativeOf(policy *unstructured.Unstructured, kind string, without []string) *unstructured.Unstructured {
	native := policy.DeepCopy()
	native.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
	for _, field := range without {
		unstructured.RemoveNestedField(native.Object, "spec", field)
	}
	validations, _, _ := unstructured.NestedSlice(native.Object, "spec", "validations")
	for _, v := range validations {
		delete(v.(map[string]any), "name")
		delete(v.(map[string]any), "ratchet")
	}
	if len(validations) > 0 {
		native.Object["spec"].(map[string]any)["validations"] = validations
	}
	return native
}

func nativeBindings(t *testing.T, policy *unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	t.Helper()
	bindings, _, err := unstructured.NestedSlice(policy.Object, "spec", "bindings")
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, b := range bindings {
		spec, ok := b.(map[string]any)
		if !ok {
			t.Fatalf("a binding is a %T, want an object", b)
		}
		native := &unstructured.Unstructured{}
		native.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		native.SetName(policy.GetName() + "-" + fmt.Sprint(spec["name"]))
		for _, own := range []string{"name", "rollout", "mutationAction"} {
			delete(spec, own)
		}
		spec["policyName"] = policy.GetName()
		switch actions := spec["validationActions"]; {
		case kind == "MutatingAdmissionPolicyBinding":
			delete(spec, "validationActions")
		case actions == nil:
			spec["validationActions"] = []any{"Deny"}
		}
		native.Object["spec"] = spec
		out = append(out, native)
	}
	return out
}
