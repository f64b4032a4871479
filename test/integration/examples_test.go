package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/test/documents"
)

// example states what a documented policy does, in testdata/examples.yaml.
type example struct {
	Document string `json:"document"`
	Policy   string `json:"policy"`
	// Native tests the native policies that the document shows instead, without Policy.
	Native bool `json:"native"`
	// Nth selects one of several policies with the same name in the document.
	Nth int `json:"nth"`
	// Namespaces are created under generated names, with the given labels and annotations.
	// In objects and expectations, "ns:<key>" stands for the name.
	Namespaces map[string]exampleNamespace `json:"namespaces"`
	// Given are objects that exist before the policy.
	Given []unstructured.Unstructured `json:"given"`
	// Backend is the server that the policy needs: webhook, issued or images.
	Backend string          `json:"backend"`
	Cases   []exampleEffect `json:"cases"`
}

type exampleNamespace struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// exampleEffect is a request and its result. Without an expectation it is allowed, and
// there is no warning.
type exampleEffect struct {
	Name   string   `json:"name"`
	User   string   `json:"user"` // developer by default
	Groups []string `json:"groups"`
	// Before is an object that exists before the policy.
	Before *unstructured.Unstructured `json:"before"`
	// Object is created, or with Before, it is a merge patch. Without it, Before is deleted.
	Object      *unstructured.Unstructured `json:"object"`
	Subresource string                     `json:"subresource"`
	// Times is the number of requests that are sent without waiting, up to the denial.
	Times int `json:"times"`

	Denied  string            `json:"denied"`
	Warned  []string          `json:"warned"`
	Audited map[string]string `json:"audited"` // keys are ends of those in the log, values are parts
	// Changed are fields of the result that the request did not have; null is a removed one.
	Changed map[string]any `json:"changed"`
	// Kept are fields of the result that the policy leaves alone.
	Kept map[string]any `json:"kept"`
}

func (e exampleEffect) hasEffect() bool {
	return e.Denied != "" || len(e.Warned)+len(e.Audited)+len(e.Changed) > 0
}

const developer = "developer"

func TestExamplesInDocuments(t *testing.T) {
	testExamples(t, func(document string) bool {
		return !strings.HasPrefix(document, "docs/plugins") && !strings.HasPrefix(document, cookbook) && !documents.IsSample(document)
	})
}

func TestExamplesOfPlugins(t *testing.T) {
	testExamples(t, func(document string) bool { return strings.HasPrefix(document, "docs/plugins") })
}

func TestSamples(t *testing.T) { testExamples(t, documents.IsSample) }

// testExamples applies the policies of documents as they are shown, one after the other,
// and sends requests that show what they deny, allow and change.
func testExamples(t *testing.T, selected func(document string) bool) {
	c := install(t)
	c.reviewing(t, true)
	c.prepareExamples(t)
	text, err := os.ReadFile("testdata/examples.yaml")
	must(t, err)
	var table []example
	must(t, yaml.UnmarshalStrict(text, &table))
	described := map[string]bool{}
	for _, e := range table {
		if !e.Native {
			described[e.key()] = true
		}
		if selected(e.Document) {
			t.Run(e.Document+"/"+cmp.Or(e.Policy, "native"), func(t *testing.T) { c.testExample(t, e) })
		}
	}
	shown := 0
	all, err := documents.All(repository)
	must(t, err)
	for _, document := range all {
		if !selected(document) {
			continue
		}
		examples, err := documents.Examples(repository, document)
		must(t, err)
		for _, shows := range examples {
			shown++
			e := example{Document: shows.Document, Policy: shows.Policy, Nth: shows.Nth}
			if !described[e.key()] {
				t.Errorf("%s shows the policy %s (%d), and testdata/examples.yaml does not state what it does", e.Document, e.Policy, e.Nth)
			}
		}
	}
	if shown == 0 {
		t.Error("the documents show no policy")
	}
}

func (e example) key() string { return fmt.Sprint(e.Document, " ", e.Policy, " ", e.Nth) }

const repository = "../.."

// manifests are the objects in the YAML blocks of a document, or in a sample.
func manifests(t *testing.T, document string) []string {
	t.Helper()
	out, err := documents.Manifests(repository, document)
	must(t, err)
	return out
}

func parseExample(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(manifest), &u.Object))
	return u
}

// prepareExamples creates what several examples share.
func (c *cluster) prepareExamples(t *testing.T) {
	t.Helper()
	// The annotation is for docs/plugins/scheduling.md.
	const shared = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {scheduler.alpha.kubernetes.io/node-selector: "pool=shop,zone=a"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: storage-drivers}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: examples-developer}
rules: # without verbs that only policies check, such as breakglass
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: examples-developer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: examples-developer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + developer + `}]
`
	c.kubectlApply(t, shared)
}

func (c *cluster) kubectlApply(t *testing.T, manifest string) (warnings string) {
	t.Helper()
	out, errOut, err := c.kubectl(t.Context(), manifest, "apply", "-f", "-")
	if err != nil {
		t.Fatalf("kubectl apply: %v\n%s%s", err, out, errOut)
	}
	return errOut
}

// applied applies manifests until the end of the test.
func (c *cluster) applied(t *testing.T, manifests ...string) (warnings string) {
	t.Helper()
	all := strings.Join(manifests, "\n---\n")
	t.Cleanup(func() {
		decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(all), 4096)
		for {
			u := &unstructured.Unstructured{}
			if decoder.Decode(&u.Object) != nil {
				return
			}
			if u.Object != nil {
				c.deleteObject(u)
			}
		}
	})
	return c.kubectlApply(t, all)
}

// deleteObject deletes an object as kubectl does, without waiting for it to be gone.
func (c *cluster) deleteObject(u *unstructured.Unstructured) {
	if namespaced, err := c.IsObjectNamespaced(u); err == nil && namespaced && u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	}
	_ = c.Delete(context.Background(), u, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

func (c *cluster) testExample(t *testing.T, e example) {
	if e.Native && c.minor(t) < mutatesNatively {
		t.Skip("the API server has no MutatingAdmissionPolicy in v1")
	}
	names := c.prepareExample(t, e)
	c.applyExample(t, e)
	c.testEffects(t, e, names)
}

// prepareExample creates what exists before the policy.
func (c *cluster) prepareExample(t *testing.T, e example) replacements {
	t.Helper()
	names := c.exampleNamespaces(t, e)
	for _, u := range e.Given {
		c.applied(t, inYAML(t, names.of(&u)))
	}
	if e.Backend != "" {
		c.startBackendOf(t, e)
	}
	for _, tt := range e.Cases {
		if tt.Before != nil {
			object := names.of(tt.Before)
			// The ServiceAccount of a new namespace may not exist yet.
			await(t).Eventually(func() error { return c.Create(t.Context(), object.DeepCopy()) }).Should(Succeed())
			t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
		}
	}
	return names
}

func (c *cluster) testEffects(t *testing.T, e example, names replacements) {
	// Effects first: a request without one shows nothing until API servers call the policy.
	slices.SortStableFunc(e.Cases, func(a, b exampleEffect) int {
		return cmp.Compare(strconv.FormatBool(b.hasEffect()), strconv.FormatBool(a.hasEffect()))
	})
	if first, last := e.Cases[0], e.Cases[len(e.Cases)-1]; !first.hasEffect() || last.hasEffect() {
		t.Error("state an effect of the policy, and a request that it leaves alone")
	}
	for _, tt := range e.Cases {
		t.Run(tt.Name, func(t *testing.T) { c.testEffect(t, e, tt, names) })
	}
}

// applyExample applies the policy and the permissions of its document, and waits until it is Ready.
func (c *cluster) applyExample(t *testing.T, e example) {
	t.Helper()
	var permissions, policies []string
	nth := 0
	for _, manifest := range manifests(t, e.Document) {
		u := parseExample(t, manifest)
		switch {
		case e.Native && strings.Contains(u.GetKind(), "AdmissionPolicy"):
			policies = append(policies, manifest)
		case u.GetKind() == "WebhookPolicy" && !e.Native && u.GetName() == e.Policy:
			if nth == e.Nth {
				policies = append(policies, manifest)
			}
			nth++
		case strings.Contains(u.GetKind(), "Role"), documents.IsManifest(e.Document) && u.GetKind() != "WebhookPolicy":
			permissions = append(permissions, manifest)
		}
	}
	if len(policies) == 0 {
		t.Fatalf("%s does not show the policy", e.Document)
	}
	warnings := c.applied(t, append(permissions, policies...)...)
	if !e.Native {
		checkWarnedFields(t, warnings, parseExample(t, policies[0]))
		c.awaitReady(t, e.Policy)
		t.Cleanup(func() { c.awaitPolicyGone(t, e.Policy) })
		t.Cleanup(func() { c.discard(e.Policy) })
	}
}

// awaitPolicyGone waits until no webhook is registered for a deleted policy, so that it does not
// change the results of the next example.
func (c *cluster) awaitPolicyGone(t *testing.T, policy string) {
	await(t).Eventually(func() error {
		var validating admissionregistrationv1.ValidatingWebhookConfigurationList
		var mutating admissionregistrationv1.MutatingWebhookConfigurationList
		if err := errors.Join(c.List(context.Background(), &validating), c.List(context.Background(), &mutating)); err != nil {
			return err
		}
		var owners []metav1.OwnerReference
		for _, config := range validating.Items {
			owners = append(owners, config.OwnerReferences...)
		}
		for _, config := range mutating.Items {
			owners = append(owners, config.OwnerReferences...)
		}
		if slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.Name == policy }) {
			return errors.New("a configuration still has the owner " + policy)
		}
		return nil
	}).Should(Succeed())
}

// replacements are the names of namespaces by the placeholders for them.
type replacements []string

func (c *cluster) exampleNamespaces(t *testing.T, e example) (out replacements) {
	t.Helper()
	for key, n := range e.Namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "example-", Labels: n.Labels, Annotations: n.Annotations}}
		must(t, c.Create(t.Context(), ns))
		t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
		out = append(out, "ns:"+key, ns.Name)
	}
	return out
}

func (r replacements) in(text string) string { return strings.NewReplacer(r...).Replace(text) }

func (r replacements) of(u *unstructured.Unstructured) *unstructured.Unstructured {
	raw, err := u.MarshalJSON()
	out := &unstructured.Unstructured{}
	if err == nil {
		err = out.UnmarshalJSON([]byte(r.in(string(raw))))
	}
	if err != nil {
		panic(err) // it was parsed before
	}
	return out
}

func inYAML(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	out, err := yaml.Marshal(u.Object)
	must(t, err)
	return string(out)
}

// testEffect sends the request until the result is right: API servers call a new policy after a moment.

func (c *cluster) testEffect(t *testing.T, e example, tt exampleEffect, names replacements) {
	a := c.impersonating(t, "", cmp.Or(tt.User, developer), tt.Groups...)
	await(t).Eventually(func() error {
		var since int64
		if len(tt.Audited) > 0 {
			since = c.audit.mark(t)
		}
		a.warnings = nil
		object, err := a.send(t.Context(), tt, names)
		warnings := slices.DeleteFunc(a.warnings, func(w string) bool { return strings.HasPrefix(w, "spec.") }) // of the API server itself
		if err := tt.checkAnswer(err, warnings, e, names); err != nil {
			return err
		}
		if diff := mismatch("", tt.Changed, object); diff != "" {
			return errors.New(diff)
		}
		if diff := mismatch("", tt.Kept, object); diff != "" {
			return errors.New(diff)
		}
		return c.checkAudited(t, since, tt)
	}).Should(Succeed())
}

// impersonating returns a client of a user. The agent is in the audit log; "" is the default.
func (c *cluster) impersonating(t *testing.T, agent, user string, groups ...string) *asker {
	t.Helper()
	a := &asker{}
	config := rest.CopyConfig(c.config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, a
	config.UserAgent = agent
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	config.QPS = -1
	var err error
	a.Client, err = client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	must(t, err)
	return a
}

// send sends a dry run, or real requests if a number of them is limited, and returns the resulting object.
func (a *asker) send(ctx context.Context, tt exampleEffect, names replacements) (map[string]any, error) {
	switch {
	case tt.Object == nil:
		return nil, a.Delete(ctx, names.of(tt.Before), client.DryRunAll)
	case tt.Times > 0:
		return nil, a.flood(ctx, names.of(tt.Object), tt.Times)
	case tt.Subresource != "":
		parent, body := names.of(tt.Before), names.of(tt.Object)
		err := a.SubResource(tt.Subresource).Update(ctx, parent, client.WithSubResourceBody(body), client.DryRunAll)
		return body.Object, err
	case tt.Before != nil:
		patch, err := names.of(tt.Object).MarshalJSON()
		if err != nil {
			return nil, err
		}
		object := names.of(tt.Before)
		kind := types.MergePatchType
		if object.GetKind() == "Pod" { // the API server has added to its containers
			kind = types.StrategicMergePatchType
		}
		err = a.Patch(ctx, object, client.RawPatch(kind, patch), client.DryRunAll)
		return object.Object, err
	default:
		object := names.of(tt.Object)
		err := a.Create(ctx, object, client.DryRunAll)
		return object.Object, err
	}
}

// flood creates copies of an object from several callers, and returns the last denial.
func (a *asker) flood(ctx context.Context, object *unstructured.Unstructured, times int) error {
	const callers = 8
	failed := make(chan error, callers)
	for i := range callers {
		go func() {
			var last error
			for j := i; j < times && !apierrors.IsTooManyRequests(last); j += callers {
				next := object.DeepCopy()
				next.SetGenerateName("flood-")
				last = a.Create(ctx, next)
			}
			failed <- last
		}()
	}
	var out error
	for range callers {
		if err := <-failed; err != nil {
			out = err
		}
	}
	return out
}

// checkAnswer compares the denial and the warnings.
func (e exampleEffect) checkAnswer(err error, warnings []string, of example, names replacements) error {
	switch {
	case e.Denied == "" && err != nil:
		return fmt.Errorf("got %w, want it allowed", err)
	case e.Denied != "" && err == nil:
		return fmt.Errorf("it is allowed, want a denial with %q", names.in(e.Denied))
	case e.Denied != "" && !strings.Contains(err.Error(), names.in(e.Denied)):
		return fmt.Errorf("got %w, want a denial with %q", err, names.in(e.Denied))
	case e.Denied != "" && of.Backend == "" && !of.Native && !deniedBy(err, of.Policy):
		return fmt.Errorf("got %w, want a denial by %s", err, of.Policy)
	case len(warnings) != len(e.Warned):
		return fmt.Errorf("got warnings %q, want %q", warnings, e.Warned)
	}
	for _, want := range e.Warned {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
			return fmt.Errorf("got warnings %q, want %q", warnings, want)
		}
	}
	return nil
}

// mismatch is the first difference between wanted fields and an object. Of lists, each wanted
// element has to match one. A wanted null is a field that is absent.
func mismatch(path string, want, got any) string {
	switch want := want.(type) {
	case nil:
		if got != nil {
			return fmt.Sprintf("%s is %v, want none", path, got)
		}
	case map[string]any:
		fields, _ := got.(map[string]any)
		for key, value := range want {
			if diff := mismatch(path+"."+key, value, fields[key]); diff != "" {
				return diff
			}
		}
	case []any:
		elements, _ := got.([]any)
		for _, w := range want {
			if !slices.ContainsFunc(elements, func(element any) bool { return mismatch(path, w, element) == "" }) {
				return fmt.Sprintf("%s is %v, want an element %v", path, got, w)
			}
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return fmt.Sprintf("%s is %v, want %v", path, got, want)
		}
	}
	return ""
}

// checkAudited compares the annotations of the request in the audit log.
func (c *cluster) checkAudited(t *testing.T, since int64, tt exampleEffect) error {
	t.Helper()
	if len(tt.Audited) == 0 {
		return nil
	}
	c.audit.mark(t)
	events, _ := c.audit.read(t, since)
	annotations := map[string]string{}
	for _, e := range events {
		for key, value := range e.Annotations {
			annotations[key] = value
		}
	}
	for suffix, part := range tt.Audited {
		found := false
		for key, value := range annotations {
			found = found || strings.HasSuffix(key, suffix) && strings.Contains(value, part)
		}
		if !found {
			return fmt.Errorf("audit annotations %v, want %s with %q", annotations, suffix, part)
		}
	}
	return nil
}
