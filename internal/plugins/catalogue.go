package plugins

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/alwaysdeny"
	"github.com/ostiary/ostiary/internal/plugins/alwayspullimages"
	"github.com/ostiary/ostiary/internal/plugins/defaultclass"
	"github.com/ostiary/ostiary/internal/plugins/defaulttolerationseconds"
	"github.com/ostiary/ostiary/internal/plugins/define"
	"github.com/ostiary/ostiary/internal/plugins/denyserviceexternalips"
	"github.com/ostiary/ostiary/internal/plugins/eventratelimit"
	"github.com/ostiary/ostiary/internal/plugins/extendedresourcetoleration"
	"github.com/ostiary/ostiary/internal/plugins/imagepolicywebhook"
	"github.com/ostiary/ostiary/internal/plugins/limitpodhardantiaffinitytopology"
	"github.com/ostiary/ostiary/internal/plugins/ownerreferencespermissionenforcement"
	"github.com/ostiary/ostiary/internal/plugins/podnodeselector"
	"github.com/ostiary/ostiary/internal/plugins/podsecurity"
	"github.com/ostiary/ostiary/internal/plugins/podtolerationrestriction"
	"github.com/ostiary/ostiary/internal/plugins/resourcequota"
)

// All returns every plugin, by name.
func All() []define.Definition {
	return []define.Definition{
		alwaysdeny.Definition(),
		alwayspullimages.Definition(),
		defaultclass.IngressClasses(),
		defaultclass.StorageClasses(),
		defaulttolerationseconds.Definition(),
		denyserviceexternalips.Definition(),
		eventratelimit.Definition(),
		extendedresourcetoleration.Definition(),
		imagepolicywebhook.Definition(),
		limitpodhardantiaffinitytopology.Definition(),
		ownerreferencespermissionenforcement.Definition(),
		podnodeselector.Definition(),
		podsecurity.Definition(),
		podtolerationrestriction.Definition(),
		resourcequota.Definition(),
	}
}

// Needs is implemented by plugins that read objects of other kinds.
type Needs interface {
	Needs() []admissionregistrationv1.ParamKind
}

// Conditions is implemented by plugins that need few of the requests of their rules.
// Their match conditions are delegated to the API server where possible.
type Conditions interface {
	Conditions() []admissionregistrationv1.MatchCondition
}

// Resolved is a policy with the rules and conditions of its plugin.
type Resolved struct {
	// Policy has the rules and conditions of the plugin. Without a plugin it is the
	// policy itself.
	Policy *v1alpha1.WebhookPolicy
	// Plugin is nil without a plugin, or if its configuration is invalid.
	Plugin pluginapi.Plugin
	Errors field.ErrorList
}

// Resolve creates the plugin of a policy. It does not change the policy.
//
// A policy with an invalid configuration gets the rules of the plugin without a
// configuration, because an earlier generation can be registered.
func Resolve(p *v1alpha1.WebhookPolicy) Resolved {
	if p.Spec.Plugin == nil {
		return Resolved{Policy: p}
	}
	spec := field.NewPath("spec")
	plugin, errs := configure(p.Spec.Plugin, spec.Child("plugin"))
	if len(errs) > 0 {
		plain := plugin // the error may not affect its rules
		if plain == nil {
			plain, _ = configure(&v1alpha1.Plugin{Name: p.Spec.Plugin.Name}, spec.Child("plugin"))
		}
		if plain == nil {
			return Resolved{Policy: p, Errors: errs}
		}
		return Resolved{Policy: complete(p, plain), Errors: errs}
	}
	out := complete(p, plugin)
	if len(out.Spec.MatchConstraints.ResourceRules) == 0 {
		return Resolved{Policy: out, Errors: field.ErrorList{field.Forbidden(spec.Child("matchConstraints", "resourceRules"),
			fmt.Sprintf("remove the rules, or use rules that %s supports: %s", p.Spec.Plugin.Name, describe(plugin.Rules())))}}
	}
	return Resolved{Policy: out, Plugin: plugin}
}

// Rules reports whether the requests of the policy are known.
func (r Resolved) Rules() bool {
	return r.Policy.Spec.Plugin == nil || (r.Policy.Spec.MatchConstraints != nil && len(r.Policy.Spec.MatchConstraints.ResourceRules) > 0)
}

// complete returns a policy with the rules and conditions of its plugin.
func complete(p *v1alpha1.WebhookPolicy, plugin pluginapi.Plugin) *v1alpha1.WebhookPolicy {
	out := *p
	match := cmp.Or(p.Spec.MatchConstraints.DeepCopy(), &admissionregistrationv1.MatchResources{})
	match.ResourceRules = intersectRules(plugin.Rules(), match.ResourceRules)
	out.Spec.MatchConstraints = match
	if c, ok := plugin.(Conditions); ok {
		out.Spec.MatchConditions = slices.Concat(p.Spec.MatchConditions, c.Conditions())
	}
	return &out
}

func configure(p *v1alpha1.Plugin, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
	all := All()
	i := slices.IndexFunc(all, func(d define.Definition) bool { return d.Name == p.Name })
	if i < 0 {
		var names []string
		for _, d := range all {
			names = append(names, string(d.Name))
		}
		return nil, field.ErrorList{field.NotSupported(at.Child("name"), p.Name, names)}
	}
	var config []byte
	if p.Config != nil {
		config = p.Config.Raw
	}
	return all[i].New(config, at.Child("config"))
}

// KindsOf returns the kinds of the objects that the plugin of a policy reads.
func KindsOf(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.ParamKind {
	if p.Spec.Plugin == nil {
		return nil
	}
	plugin, _ := configure(p.Spec.Plugin, nil) // errors have been reported
	if n, ok := plugin.(Needs); ok {
		return n.Needs()
	}
	return nil
}

// BackendOf returns the location of the backend that decides about images, if the plugin
// of a policy has one.
func BackendOf(p *v1alpha1.WebhookPolicy) (at pluginapi.SecretKey, ok bool) {
	if p.Spec.Plugin == nil || p.Spec.Plugin.Name != v1alpha1.PluginImagePolicyWebhook {
		return at, false
	}
	plugin, _ := configure(p.Spec.Plugin, nil) // the policy has been resolved before
	if images, found := plugin.(*imagepolicywebhook.Plugin); found {
		at = images.Backend()
	}
	return at, at.Name != ""
}

// ReadsKinds reports whether the plugin of a policy reads the resources of kinds.
func ReadsKinds(p *v1alpha1.WebhookPolicy) bool {
	return p.Spec.Plugin != nil && p.Spec.Plugin.Name == v1alpha1.PluginOwnerReferencesPermissionEnforcement
}

// describe returns a description of rules.
func describe(rules []admissionregistrationv1.RuleWithOperations) string {
	parts := make([]string, len(rules))
	for i, r := range rules {
		operations := make([]string, len(r.Operations))
		for j, o := range r.Operations {
			operations[j] = string(o)
		}
		group := strings.Join(r.APIGroups, ", ")
		if group != "" {
			group = " of " + group
		}
		parts[i] = fmt.Sprintf("%s of %s%s in version %s", strings.Join(operations, " and "), strings.Join(r.Resources, ", "), group, strings.Join(r.APIVersions, ", "))
	}
	return strings.Join(parts, "; ")
}
