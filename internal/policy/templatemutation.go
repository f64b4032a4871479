package policy

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podStep is a step on the Pod of a template.
type podStep struct {
	step
	pod *request
}

// mutateTemplates is Mutate for a group of templates. Policies change the Pods of the
// templates, and what they changed is written to the templates.
func (g *Group) mutateTemplates(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (*admissionv1.AdmissionResponse, error) {
	r, matched, err := g.prepareTemplates(ctx, raw, host, true)
	switch {
	case err != nil:
		return nil, err
	case len(matched) == 0:
		return allowed(raw), nil
	}
	var a answer
	steps := a.templateSteps(ctx, matched, host)
	for _, misconfigured := range []bool{true, false} { // as in Mutate
		for i := range steps {
			if s := &steps[i]; s.misconfigured == misconfigured {
				a.mutate(ctx, &s.step, s.pod, host)
			}
		}
	}
	defer recheckPods(steps, host)
	out := a.mutation(r)
	if before := r.versioned.VersionedObject.Object(); a.denied == 0 && before != nil {
		err = addPatch(out, before, written(before, matched))
	}
	a.addDetails(out)
	return out, err
}

// templateSteps returns the steps of all policies, by name. It denies requests with
// templates that cannot be read.
func (a *answer) templateSteps(ctx context.Context, matched []templateMatch, host Environment) []podStep {
	var steps []podStep
	for _, m := range matched {
		for _, p := range m.policies {
			if m.pod.unreadable != nil {
				denying := p.denyingBindings()
				denying.templates = &templates{}
				start := host.Now()
				decision := a.applyBreakGlass(ctx, denying, m.pod, host)
				if host.Observe != nil {
					host.Observe(p.name, m.pod.raw.Operation, decision, host.Now().Sub(start))
				}
				continue
			}
			own := p.steps(ctx, m.pod, host)
			if len(own) == 0 && host.Observe != nil {
				host.Observe(p.name, m.pod.raw.Operation, DecisionUnmatched, 0)
			}
			for _, s := range own {
				steps = append(steps, podStep{s, m.pod})
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b podStep) int { return byName(a.policy, b.policy) })
	return steps
}

// recheckPods is recheck for steps on Pods.
func recheckPods(all []podStep, host Environment) {
	byPod := map[*request][]step{}
	for _, s := range all {
		byPod[s.pod] = append(byPod[s.pod], s.step)
	}
	for pod, steps := range byPod {
		recheck(pod, steps, host)
	}
}

// kindOfObject is the kind of the object that policies see.
func (r *request) kindOfObject() schema.GroupVersionKind {
	if r.template != "" {
		return corev1.SchemeGroupVersion.WithKind("Pod")
	}
	return r.versioned.VersionedKind
}

// atTemplate adds the path of the template to an error.
func (r *request) atTemplate(err error) error {
	if r.template == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.template, err)
}

// templateMetadata are the metadata of a template that controllers copy to Pods.
var templateMetadata = []string{"labels", "annotations", "finalizers"} //nolint:gochecknoglobals // a constant

// checkTemplate rejects a mutation of a template that has no effect on its Pods.
func (r *request) checkTemplate(before, after runtime.Object) error {
	was, okBefore := before.(*unstructured.Unstructured)
	is, okAfter := after.(*unstructured.Unstructured)
	if r.template == "" || !okBefore || !okAfter {
		return nil
	}
	if field := differentExcept(was.Object, is.Object, "metadata", "spec"); field != "" {
		return errNotInTemplate(field)
	}
	old, _ := was.Object["metadata"].(map[string]any)
	current, _ := is.Object["metadata"].(map[string]any)
	if field := differentExcept(old, current, templateMetadata...); field != "" {
		return errNotInTemplate("metadata." + field)
	}
	return nil
}

func errNotInTemplate(field string) error {
	return fmt.Errorf("%s cannot be changed in a pod template: controllers use its spec and its %s", field, "metadata."+strings.Join(templateMetadata, ", metadata."))
}

// differentExcept returns the first member that differs and is not one of some.
func differentExcept(a, b map[string]any, except ...string) string {
	names := maps.Clone(a)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(except, name) && !reflect.DeepEqual(a[name], b[name]) {
			return name
		}
	}
	return ""
}

// written returns a workload with the changes of its Pods in its templates. The argument
// is not changed.
func written(workload runtime.Object, matched []templateMatch) runtime.Object {
	out := workload
	done := map[*request]bool{}
	for _, m := range matched {
		before := m.pod.versioned.Attributes.GetObject()
		after, ok := m.pod.versioned.VersionedObject.Object().(*unstructured.Unstructured)
		if done[m.pod] || !ok || after == before {
			continue
		}
		done[m.pod] = true
		u, _ := out.(*unstructured.Unstructured) // it has a template
		out = &unstructured.Unstructured{Object: replaced(u.Object, strings.Split(m.pod.template, "."), after.Object)}
	}
	return out
}

// replaced returns a tree with the spec and the metadata of a Pod in the template at a
// path.
func replaced(tree map[string]any, path []string, pod map[string]any) map[string]any {
	out := maps.Clone(tree)
	if len(path) > 0 {
		inner, _ := tree[path[0]].(map[string]any) // the template was found there
		out[path[0]] = replaced(inner, path[1:], pod)
		return out
	}
	set := func(into map[string]any, name string, value any, present bool) {
		if present {
			into[name] = value
		} else {
			delete(into, name)
		}
	}
	spec, present := pod["spec"]
	set(out, "spec", spec, present)
	changed, _ := pod["metadata"].(map[string]any)
	metadata, _ := tree["metadata"].(map[string]any)
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = map[string]any{}
	}
	for _, name := range templateMetadata {
		value, present := changed[name]
		set(metadata, name, value, present)
	}
	if len(metadata) > 0 || tree["metadata"] != nil {
		out["metadata"] = metadata
	}
	return out
}
