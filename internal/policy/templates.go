package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/matchresources"
)

// templates says on which pod templates a policy is evaluated. The policy then sees the
// Pod that a template produces.
type templates struct {
	kinds     []v1alpha1.PodTemplateKind
	operation admission.Operation // of the Pods
	actions   []admissionregistrationv1.ValidationAction
	selector  *matchresources.Criteria
	key       string // equal for policies that are evaluated on the same templates
}

// newTemplates returns nil for a policy that is not evaluated on pod templates.
func newTemplates(p *v1alpha1.WebhookPolicy) *templates {
	spec := &p.Spec
	operation := spec.TemplateOperation()
	if spec.PodTemplates == nil || operation == "" {
		return nil
	}
	match := spec.MatchConstraints
	t := &templates{
		kinds:     spec.TemplateKinds(),
		operation: admission.Operation(operation),
		actions:   slices.Clone(spec.PodTemplates.ValidationActions),
		selector:  matchresources.NewSelectors(nil, match.ObjectSelector),
	}
	key, err := json.Marshal([]any{t.kinds, operation, match.ObjectSelector, matchresources.RulesKey(match)})
	if err != nil {
		panic(fmt.Sprintf("encoding kinds and selectors, which hold only strings: %v", err))
	}
	t.key = string(key)
	return t
}

// markTemplate adds the path of the template and the actions for it to results.
func (c *Compiled) markTemplate(results []result, path string) {
	for i := range results {
		results[i].template, results[i].templateActions = path, c.templates.actions
	}
}

// matches reports whether the policies are for the Pod of a template: their selector
// selects it, and no evaluated controller owns the workload.
func (t *templates) matches(on *subject, host Environment) bool {
	if t.owned(on.workload) {
		return false
	}
	if on.unreadable != nil {
		return true
	}
	matches, err := on.selectedBy(t.selector, host)
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
