package registration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// templatesMark replaces the first digit of the hash in the names of groups for pod
// templates, so that a replica recognizes their configurations.
const templatesMark = "t"

var templatesName = regexp.MustCompile(`^(\d{4}-)?(fail|ignore)-\d+s-` + templatesMark)

// OfTemplates reports whether the group evaluates the pod templates of workloads.
func (k GroupKey) OfTemplates() bool { return templatesName.MatchString(k.Name) }

// templateMemberships returns the registration of a policy for workloads with pod
// templates.
func templateMemberships(policy *v1alpha1.WebhookPolicy) []membership {
	spec := policy.Spec.TemplateSpec()
	if spec == nil {
		return nil
	}
	derived := *policy
	derived.Spec = *spec
	var out []membership
	for _, phase := range []Phase{PhaseMutate, PhaseValidate} {
		if phase == PhaseMutate && !spec.Mutates() || phase == PhaseValidate && !spec.Validates() {
			continue
		}
		m := newMembership(&derived, phase, plainRules(spec.MatchConstraints.ResourceRules, phase))
		m.change(func(s *settings) { s.Templates = true })
		m.delegate(templateCondition(policy.Spec.TemplateKinds()))
		out = append(out, m)
	}
	return out
}

// owners are the kinds of the default resources that create objects with pod templates.
var owners = []struct{ resource, group, kind string }{ //nolint:gochecknoglobals // a constant
	{"deployments", "apps", "Deployment"},
	{"cronjobs", "batch", "CronJob"},
}

// templateCondition returns a match condition without errors that is false for objects
// that need no evaluation: updates of the default kinds that do not change the template,
// and objects of a controller that is evaluated itself. Without it, an outage of Ostiary
// would deny scaling and the ReplicaSets of the control plane. Ostiary checks both again.
func templateCondition(kinds []v1alpha1.PodTemplateKind) string {
	var named, owned []string
	for _, d := range v1alpha1.DefaultPodTemplateKinds() {
		if !slices.Contains(kinds, d) {
			continue
		}
		named = append(named, "'"+d.Group+"/"+d.Resource+"'")
		for _, o := range owners {
			if o.resource == d.Resource {
				owned = append(owned, fmt.Sprintf("o.kind == '%s' && o.apiVersion.startsWith('%s/')", o.kind, o.group))
			}
		}
	}
	var parts []string
	if len(named) > 0 {
		parts = append(parts, "(request.operation != 'UPDATE' || !(request.resource.group + '/' + request.resource.resource in ["+strings.Join(named, ", ")+"]) || "+
			"(request.resource.resource == 'cronjobs' ? object.?spec.?jobTemplate.?spec.?template != oldObject.?spec.?jobTemplate.?spec.?template : object.?spec.?template != oldObject.?spec.?template))")
	}
	if len(owned) > 0 {
		parts = append(parts, "!(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && ("+strings.Join(owned, " || ")+")))")
	}
	return strings.Join(parts, " && ")
}

// checkTemplates returns the errors in podTemplates.
func checkTemplates(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	t := spec.PodTemplates
	if t == nil {
		return nil
	}
	if spec.Backend != nil {
		return field.ErrorList{field.Forbidden(at, "remove it: a backend gets whole objects; name the workloads in matchConstraints")}
	}
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
	return field.Forbidden(at, "remove it, or add a rule to matchConstraints.resourceRules that matches CREATE or UPDATE of pods, without resourceNames: it is for policies about Pods")
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
			return field.ErrorList{field.Invalid(at.Child("version"), k.Version, fmt.Sprintf("write %q, the version of the other templates of %s: a request has one version", other.Version, k.Resource))}
		case strings.HasPrefix(k.TemplatePath+".", other.TemplatePath+".") || strings.HasPrefix(other.TemplatePath+".", k.TemplatePath+"."):
			return field.ErrorList{field.Invalid(at.Child("templatePath"), k.TemplatePath, fmt.Sprintf("name one of it and %s: one is a part of the other", other.TemplatePath))}
		}
	}
	return nil
}

func checkTemplateKind(k v1alpha1.PodTemplateKind, at *field.Path) field.ErrorList {
	resolved, isDefault := k.Resolve()
	if isDefault {
		if slices.Contains(v1alpha1.DefaultPodTemplateKinds(), resolved) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, k.Resource, "remove version and templatePath: Ostiary knows them for this resource")}
	}
	for _, f := range []struct{ name, value string }{{"version", k.Version}, {"resource", k.Resource}, {"templatePath", k.TemplatePath}} {
		if f.value == "" || f.value == wildcard {
			return field.ErrorList{field.Required(at.Child(f.name), "name it: only the default kinds have one without it")}
		}
	}
	rule := admissionregistrationv1.Rule{APIGroups: []string{k.Group}, APIVersions: []string{k.Version}, Resources: []string{k.Resource}}
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
