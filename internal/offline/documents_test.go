package offline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/documents"
)

// documented is an entry of test/integration/testdata/examples.yaml. The integration tests
// send its requests to an API server with the manager; these tests evaluate them here.
type documented struct {
	Document   string                    `json:"document"`
	Policy     string                    `json:"policy"`
	Native     bool                      `json:"native"`
	Nth        int                       `json:"nth"`
	Namespaces map[string]map[string]any `json:"namespaces"`
	Given      []runtime.RawExtension    `json:"given"`
	Backend    string                    `json:"backend"`
	Cases      []documentedCase          `json:"cases"`
}

type documentedCase struct {
	Name        string                `json:"name"`
	User        string                `json:"user"`
	Groups      []string              `json:"groups"`
	Before      *runtime.RawExtension `json:"before"`
	Object      *runtime.RawExtension `json:"object"`
	Subresource string                `json:"subresource"`
	Times       int                   `json:"times"`
	Denied      string                `json:"denied"`
	Warned      []string              `json:"warned"`
	Audited     map[string]string     `json:"audited"`
	Changed     map[string]any        `json:"changed"`
	Kept        map[string]any        `json:"kept"`
}

const root = "../../"

// shared are objects that the integration tests create for all examples.
const shared = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {scheduler.alpha.kubernetes.io/node-selector: "pool=shop,zone=a"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: storage-drivers}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: examples-developer}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch, create, update, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: examples-developer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: examples-developer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: developer}]
`

// TestExamplesOfDocuments evaluates every example of the documents and samples. The results
// are those that an API server with the manager gives.
func TestExamplesOfDocuments(t *testing.T) {
	text, err := os.ReadFile(root + "test/integration/testdata/examples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table []documented
	if err := yaml.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		if e.Native || e.Backend == "images" { // this program calls no backends of plugins
			continue
		}
		t.Run(fmt.Sprintf("%s/%s/%d", e.Document, e.Policy, e.Nth), func(t *testing.T) { e.run(t) })
	}
}

// needsCluster are the cases that need what only a cluster adds to objects, with the reason.
func needsCluster() map[string]string {
	const defaults, controller = "the API server adds a default", "a controller writes the status of the quota"
	return map[string]string{
		"lease-holders/a lease without a holder":                   defaults,
		"external-load-balancers/another service":                  defaults,
		"always-pull-images/a deployment":                          defaults,
		"extended-resource-toleration/a pod with a GPU":            defaults,
		"resource-quota/expensive storage where a quota covers it": controller,
		"resource-quota/a load balancer where a quota covers it":   controller,
		"storage-needs-quota/where a quota covers it":              controller,
	}
}

func (e *documented) run(t *testing.T) {
	text := shared
	var names []string
	for key, more := range e.Namespaces {
		names = append(names, "ns:"+key, "example-"+key)
		metadata := map[string]any{"name": "ns:" + key}
		for field, value := range more {
			metadata[field] = value
		}
		text += "---\n" + inJSON(t, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}) + "\n"
	}
	for _, o := range e.Given {
		text += "---\n" + string(o.Raw) + "\n"
	}
	for _, c := range e.Cases {
		if c.Before != nil {
			text += "---\n" + string(c.Before.Raw) + "\n"
		}
	}
	text += e.manifests(t)
	replace := strings.NewReplacer(names...)
	compiler := policy.NewTracingCompiler(policy.LatestEngine)
	for _, c := range e.Cases {
		t.Run(c.Name, func(t *testing.T) {
			if reason := needsCluster()[e.Policy+"/"+c.Name]; reason != "" {
				t.Skip(reason)
			}
			engine, world := setUp(t, replace.Replace(text), compiler)
			world.authorizer = rolesIn(t, world.objects)
			c.run(t, engine, world, replace)
		})
	}
}

// manifests returns the policy and the other objects of its document, as the integration
// tests apply them.
func (e *documented) manifests(t *testing.T) (out string) {
	all, err := documents.Manifests(root, e.Document)
	if err != nil {
		t.Fatal(err)
	}
	sample := documents.IsSample(e.Document)
	nth := 0
	for _, manifest := range all {
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(manifest), &o); err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Kind == "WebhookPolicy" && o.Name == e.Policy:
			if nth == e.Nth {
				out += "---\n" + manifest + "\n"
			}
			nth++
		case strings.Contains(o.Kind, "Role"), sample && o.Kind != "WebhookPolicy":
			out += "---\n" + manifest + "\n"
		}
	}
	return out
}

func (c *documentedCase) run(t *testing.T, engine *Engine, world *World, replace *strings.Replacer) {
	object, old := c.object(t, c.Object, replace), c.object(t, c.Before, replace)
	if object != nil && old != nil && c.Subresource == "" {
		merged, err := jsonpatch.MergePatch(old.Raw, object.Raw)
		if err != nil {
			t.Fatal(err)
		}
		object = &parse(t, string(merged))[0]
	}
	options := RequestOptions{Subresource: c.Subresource}
	if c.Subresource == "scale" {
		options.Resource, old = "deployments.apps", object
	}
	options.User.Username, options.User.Groups = cmp.Or(c.User, DefaultUser), c.Groups
	request, err := engine.APIs.NewRequest(object, old, options)
	if err != nil {
		t.Fatal(err)
	}
	backend := func(string) *admissionv1.AdmissionResponse {
		if strings.Contains(string(request.Object.Raw), `"verdict":"bad"`) {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "the foreign webhook does not like it"}}
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
	var result *Result
	for range max(c.Times, 1) {
		if result, err = engine.Evaluate(t.Context(), request, world, Options{Backend: backend}); err != nil {
			t.Fatal(err)
		}
		if !result.Allowed {
			break
		}
	}
	c.check(t, result, replace)
}

func (c *documentedCase) object(t *testing.T, raw *runtime.RawExtension, replace *strings.Replacer) *load.Object {
	if raw == nil {
		return nil
	}
	return one(t, replace.Replace(string(raw.Raw)))
}

func (c *documentedCase) check(t *testing.T, r *Result, replace *strings.Replacer) {
	t.Helper()
	message := ""
	if r.Status != nil {
		message = r.Status.Message
	}
	if want := replace.Replace(c.Denied); r.Allowed != (want == "") || !strings.Contains(message, want) {
		t.Errorf("allowed = %t, message %q; want %q", r.Allowed, message, want)
	}
	if len(r.Warnings) != len(c.Warned) {
		t.Errorf("warnings %q, want %q", r.Warnings, c.Warned)
	}
	for _, want := range c.Warned {
		if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("warnings %q, want %q", r.Warnings, want)
		}
	}
	for suffix, want := range c.Audited {
		found := false
		for key, value := range r.AuditAnnotations {
			found = found || strings.HasSuffix("/"+key, suffix) && strings.Contains(value, want)
		}
		if !found {
			t.Errorf("audit annotations %v, want %s with %q", r.AuditAnnotations, suffix, want)
		}
	}
	var got map[string]any
	if len(r.Object) > 0 {
		if err := json.Unmarshal(r.Object, &got); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []map[string]any{c.Changed, c.Kept} {
		if diff := mismatch("", want, got); diff != "" {
			t.Error(diff)
		}
	}
	if r.Changed != (len(c.Changed) > 0) {
		t.Errorf("changed = %t, want %v", r.Changed, c.Changed)
	}
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

func inJSON(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// roles decides like RBAC.
type roles struct {
	rules    map[string][]rbacv1.PolicyRule // by kind, namespace and name of a role
	bindings []rbacv1.RoleBinding
}

func rolesIn(t *testing.T, objects []load.Object) *roles {
	t.Helper()
	r := &roles{rules: map[string][]rbacv1.PolicyRule{}}
	for i := range objects {
		o := &objects[i]
		switch o.Kind {
		case "Role", "ClusterRole":
			var role rbacv1.Role
			if err := json.Unmarshal(o.Raw, &role); err != nil {
				t.Fatal(err)
			}
			r.rules[o.Kind+"/"+o.Metadata.Namespace+"/"+o.Metadata.Name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.RoleBinding
			if err := json.Unmarshal(o.Raw, &binding); err != nil {
				t.Fatal(err)
			}
			r.bindings = append(r.bindings, binding)
		}
	}
	return r
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (r *roles) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for _, b := range r.bindings {
		if b.Namespace != "" && b.Namespace != a.GetNamespace() || !slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.UserKind && s.Name == a.GetUser().GetName() ||
				s.Kind == rbacv1.GroupKind && slices.Contains(a.GetUser().GetGroups(), s.Name)
		}) {
			continue
		}
		namespace := ""
		if b.RoleRef.Kind == "Role" {
			namespace = b.Namespace
		}
		for _, rule := range r.rules[b.RoleRef.Kind+"/"+namespace+"/"+b.RoleRef.Name] {
			if permits(rule.Verbs, a.GetVerb()) && permits(rule.APIGroups, a.GetAPIGroup()) && permits(rule.Resources, resourceOf(a)) &&
				(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName())) {
				return authorizer.DecisionAllow, "", nil
			}
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func resourceOf(a authorizer.Attributes) string {
	if a.GetSubresource() == "" {
		return a.GetResource()
	}
	return a.GetResource() + "/" + a.GetSubresource()
}

func permits(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}
