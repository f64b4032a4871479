package conversion

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// ObjectOfAnyOperation is the object of a request: the old one for DELETE.
const ObjectOfAnyOperation = "object != null ? object : oldObject"

// SetPodTemplates extends a policy for Pods to the pod templates of some of the default
// resources, as Kyverno extends its rules, and returns the differences. It needs the whole
// policy.
func SetPodTemplates(p *v1alpha1.WebhookPolicy, resources []string) (differences []string) {
	t := &v1alpha1.PodTemplates{} // with kinds: server-side apply makes null of an empty object that replaces kinds
	for _, k := range v1alpha1.DefaultPodTemplateKinds() {
		if slices.Contains(resources, k.Resource) {
			t.Kinds = append(t.Kinds, v1alpha1.PodTemplateKind{Resource: k.Resource})
		}
	}
	switch {
	case len(t.Kinds) == 0:
		return nil
	case p.Spec.TemplateOperation() == "":
		return []string{
			"pod templates are decided only when they are created or updated, and the policy matches neither: it " +
				"applies to Pods, and not to the templates of " + strings.Join(resources, ", "),
		}
	}
	p.Spec.PodTemplates = t
	out := append(differentOperations(&p.Spec), differentFields(&p.Spec)...)
	// The variable for the object of any operation reads it for DELETE only.
	readsOldObject := func(text string) bool { return text != ObjectOfAnyOperation && celtext.Reads(text, "oldObject") }
	if created := p.Spec.TemplateOperation() == admissionregistrationv1.Create; created &&
		slices.ContainsFunc(Expressions(&p.Spec), readsOldObject) {
		out = append(out, noteTemplateOldObject)
	}
	readsOperation := func(text string) bool { return slices.Contains(celtext.Fields(text, "request"), "operation") }
	if slices.ContainsFunc(Expressions(&p.Spec), readsOperation) {
		out = append(out, fmt.Sprintf(noteTemplateOperation, p.Spec.TemplateOperation()))
	}
	return out
}

// differentOperations returns the requests about workloads that Kyverno decides and Ostiary
// does not, or the other way around.
func differentOperations(s *v1alpha1.WebhookPolicySpec) (out []string) {
	matches := func(wanted ...admissionregistrationv1.OperationType) bool {
		return slices.ContainsFunc(s.MatchConstraints.ResourceRules, func(
			r admissionregistrationv1.NamedRuleWithOperations,
		) bool {
			return slices.ContainsFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool {
				return o == admissionregistrationv1.OperationAll || slices.Contains(wanted, o)
			})
		})
	}
	switch {
	case !matches(admissionregistrationv1.Update):
		out = append(out, noteTemplates)
	case !s.Ratchet:
		out = append(out, NoteUnchangedTemplates)
	}
	if !matches(admissionregistrationv1.Create) {
		out = append(out, noteNewTemplates)
	}
	if matches(admissionregistrationv1.Delete) {
		out = append(out, "DELETE of workloads is not decided")
	}
	return out
}

// differentFields returns how the fields that expressions read differ from those of the
// expressions that Kyverno generates for workloads.
func differentFields(s *v1alpha1.WebhookPolicySpec) (out []string) {
	var read []string
	for _, text := range Expressions(s) {
		for _, name := range []string{"object", "oldObject"} {
			for _, field := range celtext.Fields(text, name) {
				same := name == "oldObject" && s.TemplateOperation() == admissionregistrationv1.Create // which has a note
				same = same || field == "metadata" || field == "spec" || strings.HasPrefix(field, "spec.") ||
					slices.Contains([]string{"metadata.labels", "metadata.annotations"}, field)
				if field = name + "." + field; !same && !slices.Contains(read, field) {
					read = append(read, field)
				}
			}
		}
	}
	if len(read) > 0 {
		out = append(
			out,
			fmt.Sprintf(
				"for workloads, %s is that of the Pod of the template: Kyverno reads the workload or the metadata "+
					"of its template",
				strings.Join(read, ", "),
			),
		)
	}
	return out
}

// Expressions returns all expressions of a policy.
func Expressions(s *v1alpha1.WebhookPolicySpec) (out []string) {
	for _, c := range s.MatchConditions {
		out = append(out, c.Expression)
	}
	for _, v := range s.Variables {
		out = append(out, v.Expression)
	}
	for i := range s.Validations {
		out = append(out, s.Validations[i].Expression, s.Validations[i].MessageExpression)
	}
	for _, a := range s.AuditAnnotations {
		out = append(out, a.ValueExpression)
	}
	for _, m := range s.Mutations {
		if m.ApplyConfiguration != nil {
			out = append(out, m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			out = append(out, m.JSONPatch.Expression)
		}
	}
	return out
}
