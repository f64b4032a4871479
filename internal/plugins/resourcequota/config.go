package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Config is the native configuration, of kind ResourceQuotaConfiguration in
// apiserver.config.k8s.io/v1.
type Config struct {
	define.Typed `json:",inline"`
	// limitedResources can be consumed only if a quota covers them. At least one is
	// required.
	LimitedResources []LimitedResource `json:"limitedResources"`
}

// LimitedResource is a resource of the API, with the consumption and the objects that are
// limited.
type LimitedResource struct {
	// apiGroup is the API group of the resource. Default: the core group.
	APIGroup string `json:"apiGroup,omitempty"`
	// resource is the API resource whose objects consume something, for example pods or
	// persistentvolumeclaims. Required.
	Resource string `json:"resource"`
	// matchContains are parts of the names in quotas, for example requests.cpu or
	// .storageclass.storage.k8s.io/. A quota of the namespace has to cover each name that
	// contains one of them. Default: none.
	MatchContains []string `json:"matchContains,omitempty"`
	// matchScopes are scopes of Pods and claims. A quota of the namespace has to cover
	// the scope of an object. Default: none.
	MatchScopes []corev1.ScopedResourceSelectorRequirement `json:"matchScopes,omitempty"`
}

func (c Config) check(at *field.Path) field.ErrorList {
	errs := c.Check("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", at)
	at = at.Child("limitedResources")
	if len(c.LimitedResources) == 0 {
		errs = append(errs, field.Required(at, "add at least one resource, as {resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/requests.storage]}"))
	}
	for i := range c.LimitedResources {
		errs = append(errs, c.LimitedResources[i].check(at.Index(i))...)
	}
	return errs
}

func (l *LimitedResource) check(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case l.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), "name a resource of the API, as pods"))
	case strings.ContainsAny(l.Resource, "/*"):
		errs = append(errs, field.Invalid(at.Child("resource"), l.Resource, "name one resource, without wildcards and subresources"))
	case uncounted(l.APIGroup, l.Resource):
		errs = append(errs, field.Forbidden(at.Child("resource"), "remove it: quotas are not for "+l.Resource))
	case l.APIGroup == "resource.k8s.io" && l.Resource == "resourceclaims":
		errs = append(errs, field.Forbidden(at.Child("resource"), "remove it: what resourceclaims consume is known to API servers alone"))
	}
	if len(l.MatchContains)+len(l.MatchScopes) == 0 {
		errs = append(errs, field.Required(at, "say in matchContains or matchScopes what is limited: without them nothing is"))
	}
	for i := range l.MatchScopes {
		errs = append(errs, l.checkScope(&l.MatchScopes[i], at.Child("matchScopes").Index(i))...)
	}
	return errs
}

// uncounted reports whether the native plugin ignores a resource.
func uncounted(group, name string) bool {
	switch group {
	case "authentication.k8s.io", "authorization.k8s.io":
		return true
	case "", "events.k8s.io":
		return name == "events" || group == "" && (name == "bindings" || name == "componentstatuses")
	}
	return false
}

func (l *LimitedResource) checkScope(s *corev1.ScopedResourceSelectorRequirement, at *field.Path) field.ErrorList {
	known := scopesOf(l.APIGroup, l.Resource)
	if len(known) == 0 {
		return field.ErrorList{field.Forbidden(at, "remove it: only pods and persistentvolumeclaims have scopes")}
	}
	if !slices.Contains(known, s.ScopeName) {
		return field.ErrorList{field.NotSupported(at.Child("scopeName"), s.ScopeName, known)}
	}
	if !named(s.ScopeName) {
		if s.Operator != corev1.ScopeSelectorOpExists && s.Operator != "" || len(s.Values) > 0 {
			return field.ErrorList{field.Invalid(at.Child("operator"), s.Operator, fmt.Sprintf("write Exists, without values: an object is in the scope %s or not", s.ScopeName))}
		}
		return nil
	}
	if _, err := selectorOf(*s); err != nil {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error())}
	}
	return nil
}

func scopesOf(group, name string) []corev1.ResourceQuotaScope {
	switch {
	case group == corev1.GroupName && name == pods:
		return []corev1.ResourceQuotaScope{
			corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
			corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		}
	case group == corev1.GroupName && name == claims:
		return []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeVolumeAttributesClass}
	}
	return nil
}

// named reports whether a scope selects objects by a name.
func named(scope corev1.ResourceQuotaScope) bool {
	return scope == corev1.ResourceQuotaScopePriorityClass || scope == corev1.ResourceQuotaScopeVolumeAttributesClass
}
