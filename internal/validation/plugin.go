package validation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

// checkResolved returns the errors of a policy with a plugin in fields that depend on its
// rules. The policy must have the rules of the plugin.
func checkResolved(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if spec.Plugin == nil {
		return nil
	}
	named := guard.NamedCritical(rulesOf(spec))
	switch {
	case spec.PodTemplates != nil && !spec.Plugin.Name.DecidesTemplates():
		return field.ErrorList{field.Forbidden(at.Child("podTemplates"), fmt.Sprintf(
			"remove it: the plugin %s does not decide about pod templates", spec.Plugin.Name))}
	case spec.PodTemplates != nil && spec.TemplateOperation() == "":
		return field.ErrorList{noPodRule(at.Child("podTemplates"))}
	case spec.AllowCriticalResources && len(named) == 0:
		return uselessAllowCritical(at)
	case !spec.AllowCriticalResources && len(named) > 0:
		return field.ErrorList{field.Required(at.Child("allowCriticalResources"), fmt.Sprintf(
			"set it to true: the plugin %s is for %s, to which policies do not apply by default, %s",
			spec.Plugin.Name, strings.TrimPrefix(named[0], "/"), guardReason))}
	}
	return nil
}
