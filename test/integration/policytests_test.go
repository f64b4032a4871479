package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/cli/policytest"
	"github.com/ostiary/ostiary/internal/offline"
)

// TestPolicyTests sends the requests of all PolicyTests of the samples to an API server with
// the manager, and expects the results of kubectl-ostiary: denials, warnings, audit
// annotations and changes.
func TestPolicyTests(t *testing.T) {
	suites, err := policytest.Load(t.Context(), []string{"../../config/samples/tests"}, policytest.LoadOptions{Root: "../../config/samples"})
	must(t, err)
	c := install(t)
	c.reviewing(t, true)
	c.prepareExamples(t)
	sent := 0
	for _, s := range suites {
		e := example{Document: "config/samples/" + filepath.Base(s.Files[0]), Policy: s.Policies[0], Namespaces: map[string]exampleNamespace{}}
		for i, k := range s.Cases {
			if len(k.Backends) > 0 {
				continue // kubectl-ostiary does not call it
			}
			e.addCase(t, k, fmt.Sprint("c", i))
		}
		if !e.hasEffects() {
			continue // TestSamples has a server for it
		}
		sent += len(e.Cases)
		t.Run(s.Name, func(t *testing.T) { c.testExample(t, e) })
	}
	if sent < 30 {
		t.Errorf("sent %d requests, want all of the samples", sent)
	}
}

func (e *example) hasEffects() bool {
	for _, c := range e.Cases {
		if c.hasEffect() {
			return true
		}
	}
	return false
}

// addCase adds a case, in a namespace of its own, with the result that kubectl-ostiary gives.
func (e *example) addCase(t *testing.T, k *policytest.Case, key string) {
	t.Helper()
	result, err := k.Evaluate(t.Context())
	must(t, err)
	namespace := exampleNamespace{}
	if k.Namespace != nil {
		namespace = exampleNamespace{Labels: k.Namespace.Labels, Annotations: k.Namespace.Annotations}
	}
	e.Namespaces[key] = namespace
	for _, p := range k.Params {
		e.Given = append(e.Given, *inNamespace(t, p.Raw, key))
	}
	e.Given = append(e.Given, permissions(k, key)...)
	effect := exampleEffect{
		Name:        k.Name,
		User:        k.User,
		Groups:      k.Groups,
		Subresource: k.Subresource,
		Warned:      result.Warnings,
		Audited:     map[string]string{},
	}
	e.setObjects(t, &effect, k.Request, key)
	if k.Repeat > 0 {
		effect.Times = k.Repeat
		effect.Object.SetName("") // each request creates another object
	}
	for annotation, value := range result.AuditAnnotations {
		effect.Audited["/"+annotation] = value
	}
	if result.Status != nil {
		// The API server sends the first line.
		effect.Denied, _, _ = strings.Cut(strings.ReplaceAll(result.Status.Message, "key default", "key ns:"+key), "\n")
	}
	effect.Changed = changesOf(t, k, result)
	e.Cases = append(e.Cases, effect)
}

// setObjects sets the objects of the request. An update is sent as a patch.
func (e *example) setObjects(t *testing.T, effect *exampleEffect, r *admissionv1.AdmissionRequest, key string) {
	t.Helper()
	if len(r.OldObject.Raw) > 0 {
		effect.Before = inNamespace(t, r.OldObject.Raw, key)
	}
	if len(r.Object.Raw) == 0 {
		return
	}
	effect.Object = inNamespace(t, r.Object.Raw, key)
	switch {
	case r.SubResource == "scale":
		effect.Object.SetName(effect.Before.GetName())
		replicas, _, _ := unstructured.NestedInt64(effect.Before.Object, "spec", "replicas")
		effect.Before = inNamespace(t,
			[]byte(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "`+effect.Before.GetName()+
				`"}, "spec": {"replicas": `+fmt.Sprint(replicas)+`,
			"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]}}}}`), key)
	case r.SubResource == "" && effect.Before != nil:
		patch, err := jsonpatch.CreateMergePatch(r.OldObject.Raw, r.Object.Raw)
		must(t, err)
		change := map[string]any{}
		must(t, json.Unmarshal(patch, &change))
		change["apiVersion"], change["kind"] = effect.Before.GetAPIVersion(), effect.Before.GetKind()
		effect.Object = &unstructured.Unstructured{Object: change}
	}
}

// inNamespace returns an object in the namespace with the placeholder of a key.
func inNamespace(t *testing.T, raw []byte, key string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, u.UnmarshalJSON(raw))
	if u.GetNamespace() == "" || u.GetNamespace() == "default" {
		u.SetNamespace("ns:" + key)
	}
	if involved, ok := u.Object["involvedObject"].(map[string]any); ok { // of an Event
		involved["namespace"] = u.GetNamespace()
	}
	return u
}

// changesOf returns the fields that mutations change.
func changesOf(t *testing.T, k *policytest.Case, r *offline.Result) map[string]any {
	t.Helper()
	if !r.Changed || !r.Allowed {
		return nil
	}
	patch, err := jsonpatch.CreateMergePatch(k.Request.Object.Raw, r.Object)
	must(t, err)
	out := map[string]any{}
	must(t, json.Unmarshal(patch, &out))
	return out
}

// permissions are roles that give the answers of a case that allow something, and the
// permission to send its request.
func permissions(k *policytest.Case, key string) (out []unstructured.Unstructured) {
	for i, a := range k.Authorizer {
		if a.Decision != offline.Allow {
			continue
		}
		name := fmt.Sprint("answer-", i)
		role := func(kind string, more map[string]any) {
			o := map[string]any{
				"apiVersion": "rbac.authorization.k8s.io/v1",
				"kind":       kind,
				"metadata":   map[string]any{"name": name, "namespace": "ns:" + key},
			}
			for field, value := range more {
				o[field] = value
			}
			out = append(out, unstructured.Unstructured{Object: o})
		}
		rule := func(verb, group, resource string) any {
			return map[string]any{"verbs": []any{verb}, "apiGroups": []any{group}, "resources": []any{resource}}
		}
		role("Role", map[string]any{"rules": []any{
			rule(a.Verb, a.Group, a.Resource),
			// An update is sent as a patch.
			rule(strings.Replace(strings.ToLower(string(k.Request.Operation)), "update", "patch", 1), k.Request.Resource.Group,
				k.Request.Resource.Resource),
		}})
		role("RoleBinding", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": a.User}},
		})
	}
	return out
}
