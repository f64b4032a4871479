package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	messageTemplatePath     = "set templatePath, such as spec.template: only the default kinds have one without it"
	messageTemplateVersion  = "set version: templatePath is the path in that version"
	messageTemplateResource = "write the plural name in lower case, such as rollouts"
)

func podTemplatesSchema() []SchemaRule {
	var names []string
	for _, k := range v1alpha1.DefaultPodTemplateKinds() {
		names = append(names, "'"+k.Resource+"'")
	}
	const at = "spec.podTemplates.kinds[]"
	return []SchemaRule{
		{
			At: at, Field: ".templatePath", Type: field.ErrorTypeRequired, Message: messageTemplatePath,
			Rule: "has(self.templatePath) || self.resource in [" + strings.Join(names, ", ") + "]",
		},
		{
			At: at, Field: ".version", Type: field.ErrorTypeRequired, Message: messageTemplateVersion,
			Rule: "has(self.version) || !has(self.templatePath)",
		},
	}
}

// checkPodTemplates returns the errors in podTemplates of a policy without a backend.
func checkPodTemplates(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	t := spec.PodTemplates
	if t == nil || spec.Backend != nil {
		return nil
	}
	at = at.Child("podTemplates")
	var errs field.ErrorList
	for i, k := range t.Kinds {
		errs = append(errs, checkTemplateKind(k, at.Child("kinds").Index(i))...)
		errs = append(errs, checkOtherTemplates(t.Kinds, i, at.Child("kinds").Index(i))...)
	}
	if spec.Plugin == nil && spec.TemplateOperation() == "" {
		errs = append(errs, noPodRule(at))
	}
	return errs
}

func noPodRule(at *field.Path) *field.Error {
	return field.Forbidden(at, "remove it, or add a rule to matchConstraints.resourceRules that matches CREATE or UPDATE of pods, "+
		"without resourceNames: it is for policies about Pods")
}

// checkOtherTemplates compares a template with the earlier ones of its resource. A request
// has one version, and a mutation writes each template.
func checkOtherTemplates(kinds []v1alpha1.PodTemplateKind, i int, at *field.Path) field.ErrorList {
	k, _ := kinds[i].Resolve()
	for j := range i {
		other, _ := kinds[j].Resolve()
		switch {
		case other.Group != k.Group || other.Resource != k.Resource:
		case other == k:
			return field.ErrorList{field.Duplicate(at, k.Resource)}
		case other.Version != k.Version:
			return field.ErrorList{field.Invalid(at.Child("version"), k.Version, fmt.Sprintf(
				"write %q, the version of the other templates of %s: a request has one version", other.Version, k.Resource))}
		case isWithin(k.TemplatePath, other.TemplatePath) || isWithin(other.TemplatePath, k.TemplatePath):
			return field.ErrorList{field.Invalid(at.Child("templatePath"), k.TemplatePath, fmt.Sprintf(
				"name one of it and %s: one is a part of the other", other.TemplatePath))}
		}
	}
	return nil
}

// isWithin reports whether a path is another one or a part of it.
func isWithin(path, other string) bool { return strings.HasPrefix(path+".", other+".") }

func checkTemplateKind(k v1alpha1.PodTemplateKind, at *field.Path) field.ErrorList {
	resolved, isDefault := k.Resolve()
	if isDefault {
		if slices.Contains(v1alpha1.DefaultPodTemplateKinds(), resolved) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, k.Resource, "remove version and templatePath: Ostiary knows them for this resource")}
	}
	for _, f := range []struct{ name, value, message string }{
		{"resource", k.Resource, messageTemplateResource},
		{"templatePath", k.TemplatePath, messageTemplatePath},
		{"version", k.Version, messageTemplateVersion},
	} {
		if f.value == "" || f.value == wildcard {
			return field.ErrorList{field.Required(at.Child(f.name), f.message)}
		}
	}
	rule := admissionregistrationv1.Rule{
		APIGroups: []string{k.Group}, APIVersions: []string{k.Version}, Resources: []string{k.Resource},
	}
	switch {
	case k.Group == wildcard:
		return field.ErrorList{field.Invalid(at.Child("group"), k.Group, "name the API group")}
	case k.Group == "" && k.Resource == "pods":
		return field.ErrorList{field.Invalid(at.Child("resource"), k.Resource, "remove it: the policy is evaluated on Pods themselves")}
	case len(checkGuards(&rule, false, at)) > 0:
		return field.ErrorList{field.Forbidden(at, "remove it: policies do not apply to this resource, "+guardReason)}
	}
	return nil
}

// podTemplates warns about kinds of podTemplates that the API server does not serve, or that
// are not evaluated.
func (w *warner) podTemplates(spec *v1alpha1.WebhookPolicySpec, facts ClusterInfo, at *field.Path) {
	if spec.PodTemplates == nil || facts.Resources == nil {
		return
	}
	for i, k := range spec.PodTemplates.Kinds {
		k, _ = k.Resolve()
		here := at.Child("podTemplates", "kinds").Index(i)
		gv := schema.GroupVersion{Group: k.Group, Version: k.Version}
		served, ok := facts.Resources[gv]
		if !ok {
			w.warn(here,
				"the API server does not serve the version %q of %s: correct it, unless it is still to be "+
					"installed", k.Version, describeGroup(k.Group))
			continue
		}
		if served == nil { // not known
			continue
		}
		at := slices.IndexFunc(served, func(r metav1.APIResource) bool { return r.Name == k.Resource })
		switch {
		case at < 0:
			w.warn(here.Child("resource"),
				"the API server does not serve %q in %s%s",
				k.Resource, gv, facts.similar(k.Resource, []schema.GroupVersion{gv}))
		case !served[at].Namespaced:
			w.warn(here.Child("resource"),
				"%q is cluster-scoped, and only the templates of namespaced objects are evaluated", k.Resource)
		}
	}
}
