package registration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

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
	var out []membership
	for _, phase := range phasesOf(spec) {
		rules := plainRules(spec.MatchConstraints.ResourceRules, phase)
		s := settingsOf(spec, phase, rules)
		s.Templates = true
		out = append(out, newMembership(policy, rules, s, templateCondition(policy.Spec.TemplateKinds())))
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
