package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// templates says on which pod templates a policy is evaluated. The policy then sees the
// Pod that a template produces.
type templates struct {
	kinds     []v1alpha1.PodTemplateKind
	operation admission.Operation // of the Pods
	actions   []admissionregistrationv1.ValidationAction
	selector  *binding // nil selects every Pod
	key       string   // equal for policies that are evaluated on the same templates
}

// newTemplates returns nil for a policy that is not evaluated on pod templates.
func newTemplates(p *v1alpha1.WebhookPolicy) *templates {
	spec := &p.Spec
	operation := spec.TemplateOperation()
	if spec.PodTemplates == nil || operation == "" {
		return nil
	}
	t := &templates{kinds: spec.TemplateKinds(), operation: admission.Operation(operation), actions: slices.Clone(spec.PodTemplates.ValidationActions)}
	if s := spec.MatchConstraints.ObjectSelector; s != nil {
		t.selector = &binding{match: newCriteria(&admissionregistrationv1.MatchResources{ObjectSelector: s.DeepCopy()})}
	}
	key, err := json.Marshal([]any{t.kinds, operation, spec.MatchConstraints.ObjectSelector, rulesKey(spec.MatchConstraints)})
	if err != nil {
		panic(fmt.Sprintf("encoding kinds and selectors, which hold only strings: %v", err))
	}
	t.key = string(key)
	return t
}

// templateBatch is a batch of policies with equal templates, for one resource.
type templateBatch struct {
	*batch
	path []string
}

// NewTemplateGroup returns a group of policies, in any order, that evaluates the pod
// templates of workloads. It does not keep the argument.
func NewTemplateGroup(policies []*Compiled) *Group {
	sorted := slices.SortedStableFunc(slices.Values(policies), byName)
	g := &Group{policies: sorted, templates: map[metav1.GroupVersionResource][]templateBatch{}}
	byKey := map[string][]*Compiled{}
	for _, p := range sorted {
		if p.templates != nil {
			byKey[p.templates.key] = append(byKey[p.templates.key], p)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		for _, b := range newBatches(byKey[key]) { // equal keys contain equal rules: there is one
			for _, k := range b.policies[0].templates.kinds {
				gvr := k.GroupVersionResource()
				g.templates[gvr] = append(g.templates[gvr], templateBatch{batch: b, path: strings.Split(k.TemplatePath, ".")})
			}
		}
	}
	return g
}

// templateMatch is a batch of policies with the Pod that they are evaluated on.
type templateMatch struct {
	*batch
	pod *request
}

// validateTemplates is Validate for a group of templates.
func (g *Group) validateTemplates(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	r, matched, err := g.prepareTemplates(ctx, raw, host, false)
	switch {
	case err != nil:
		return nil, err
	case len(matched) == 0:
		return allowed(raw), nil
	}
	var all []evaluation
	for _, m := range matched {
		host.pause(ctx)
		for _, e := range m.evaluations(ctx, m.pod, host) {
			e.on = m.pod
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b evaluation) int { return byName(a.policy, b.policy) })
	return validated(ctx, r, all, host), nil
}

// prepareTemplates is prepare for a group of templates. A mutation needs the whole
// workload.
func (g *Group) prepareTemplates(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment, mutates bool) (*request, []templateMatch, error) {
	r := host.Stored.newRequest(raw)
	batches := g.templates[raw.Resource]
	if len(batches) == 0 || raw.SubResource != "" || raw.Operation != admissionv1.Create && raw.Operation != admissionv1.Update {
		return r, nil, nil
	}
	r.authorizer = newRequestAuthorizer(ctx, raw, host)
	reads := templateReads(batches, raw.Operation)
	if mutates {
		reads = reads.with(inputs{object: unstructuredjson.Everything(), copies: true, values: true})
	}
	if err := r.prepare(ctx, reads, host); err != nil {
		return r, nil, err
	}
	var matched []templateMatch
	r.unchangedTemplates = host.unchangedTemplates
	pods := map[string]*request{}
	for _, b := range batches {
		pod := r.podOnce(pods, b)
		if pod != nil && b.policies[0].templates.matches(pod, host) {
			matched = append(matched, templateMatch{b.batch, pod})
		}
	}
	return r, matched, nil
}

// templateReads returns what is read of a workload: what the policies read of the Pod, and
// for an UPDATE the whole template, to find whether it changes.
func templateReads(batches []templateBatch, operation admissionv1.Operation) inputs {
	common := identity().Union(unstructuredjson.Path("metadata", "ownerReferences"))
	out := inputs{object: common}
	for _, b := range batches {
		of := b.reads
		of.object, of.oldObject = of.object.Union(unstructuredjson.Path("metadata", "labels")).At(b.path...), unstructuredjson.Selection{}
		if operation == admissionv1.Update {
			of.object, of.oldObject = unstructuredjson.Path(b.path...), unstructuredjson.Path(b.path...).Union(common)
		}
		out = out.with(of)
	}
	return out
}

// podOnce returns the Pod at the path of a batch, and keeps it for other batches.
func (r *request) podOnce(pods map[string]*request, b templateBatch) *request {
	operation := b.policies[0].templates.operation
	key := string(operation) + " " + strings.Join(b.path, ".")
	pod, ok := pods[key]
	if !ok {
		pod = r.pod(b.path, operation)
		pods[key] = pod
	}
	return pod
}

// pod returns the request as policies for Pods see it: its objects are the Pods that the
// template at a path produces. It returns nil if there is no template, or if an UPDATE
// does not change it. The Pods share their values with the workload.
func (r *request) pod(path []string, operation admission.Operation) *request {
	pod := *r
	pod.template, pod.typed, pod.decided = strings.Join(path, "."), nil, nil
	pod.workload, pod.before = r.versioned.VersionedObject.Object(), r.versioned.VersionedOldObject.Object()
	var object, oldObject runtime.Object
	if r.unreadable == nil {
		current, err := templateAt(r.versioned.VersionedObject.Object(), path)
		if err != nil {
			pod.unreadable = &UnreadableError{What: "request.object", Err: err}
		}
		before, _ := templateAt(r.versioned.VersionedOldObject.Object(), path) // the stored object is as it is
		if err == nil && (current == nil || before != nil && !r.unchangedTemplates && reflect.DeepEqual(current, before)) {
			return nil
		}
		object, oldObject = podOf(current, r.raw.Namespace), podOf(before, r.raw.Namespace)
	}
	pod.versioned = &admission.VersionedAttributes{
		Attributes:         withObjects(r.versioned.Attributes, object, oldObject),
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(oldObject),
		VersionedKind:      r.versioned.VersionedKind,
	}
	pod.selected = admission.NewAttributesRecord(object, oldObject, corev1.SchemeGroupVersion.WithKind("Pod"), r.raw.Namespace, "",
		corev1.SchemeGroupVersion.WithResource("pods"), "", operation, r.versioned.GetOperationOptions(), r.versioned.IsDryRun(), r.versioned.GetUserInfo())
	return &pod
}

// selection returns the attributes that selectors and plugins see: those of the Pod, if the
// request is about a template.
func (r *request) selection() admission.Attributes {
	if r.selected != nil {
		return r.selected
	}
	return r.versioned.Attributes
}

// withObjects returns attributes with other objects.
func withObjects(a admission.Attributes, object, oldObject runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(object, oldObject, a.GetKind(), a.GetNamespace(), a.GetName(), a.GetResource(), a.GetSubresource(),
		a.GetOperation(), a.GetOperationOptions(), a.IsDryRun(), a.GetUserInfo())
}

// templateAt returns the template at a path, nil if there is none.
func templateAt(object runtime.Object, path []string) (map[string]any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil //nolint:nilnil // no object has no template
	}
	tree := u.Object
	for i, name := range path {
		value := tree[name]
		if value == nil {
			return nil, nil //nolint:nilnil // no template
		}
		if tree, ok = value.(map[string]any); !ok {
			return nil, fmt.Errorf("%s is a %T and no object, so it is no pod template", strings.Join(path[:i+1], "."), value)
		}
	}
	for _, name := range []string{"metadata", "spec"} {
		if value := tree[name]; value != nil {
			if _, ok := value.(map[string]any); !ok {
				return nil, fmt.Errorf("%s.%s is a %T and no object, so it is no part of a pod template", strings.Join(path, "."), name, value)
			}
		}
	}
	return tree, nil
}

// podOf returns the Pod of a template in a namespace; no template has no Pod.
func podOf(template map[string]any, namespace string) runtime.Object {
	if template == nil {
		return nil
	}
	written, _ := template["metadata"].(map[string]any) // checked before
	metadata := make(map[string]any, len(written)+1)
	maps.Copy(metadata, written)
	metadata["namespace"] = namespace
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
	if spec, ok := template["spec"]; ok {
		pod["spec"] = spec
	}
	return &unstructured.Unstructured{Object: pod}
}

// markTemplate adds the path of the template and the actions for it to results.
func (c *Compiled) markTemplate(results []result, path string) {
	for i := range results {
		results[i].template, results[i].templateActions = path, c.templates.actions
	}
}

// matches reports whether the policies are for the Pod of a template: their selector
// selects it, and no evaluated controller owns the workload.
func (t *templates) matches(pod *request, host Environment) bool {
	if t.owned(pod.workload) {
		return false
	}
	if t.selector == nil || pod.unreadable != nil {
		return true
	}
	matches, err := t.selector.matches(pod, host)
	return matches || err != nil // an error is one of each binding too
}

// owned reports whether a workload belongs to a controller with a template of its own.
// The owner is what the workload claims. If it claims a wrong one, only its Pods are
// evaluated.
func (t *templates) owned(workload runtime.Object) bool {
	object, ok := workload.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false
	}
	plural, singular := meta.UnsafeGuessKindToResource(gv.WithKind(owner.Kind))
	return slices.ContainsFunc(t.kinds, func(k v1alpha1.PodTemplateKind) bool {
		return k.Group == gv.Group && (k.Resource == plural.Resource || k.Resource == singular.Resource)
	})
}
