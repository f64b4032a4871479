package main

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/ostiary/ostiary/internal/validation"
)

// matchResources is for both fields of the type MatchResources, at a path. Who
// is the object that they are part of. What each of them demands of names and
// label keys is said apart.
func matchResources(at, who string) []amendment {
	lists := at + ".(resourceRules|excludeResourceRules)"
	return slices.Concat([]amendment{
		{at: at + ".excludeResourceRules", maxItems: maxRules,
			description: `excludeResourceRules exclude operations on resources from ` + who + `, even if
resourceRules match them. At most 100.`},
		{at: lists + "[]", required: []string{"apiGroups", "apiVersions", "operations", "resources"},
			description: "A rule matches a request that matches each of its fields."},
		{at: lists + "[].apiGroups", minItems: 1, maxItems: maxEntries, rules: aloneIfWildcard("apiGroups"),
			description: `apiGroups are the API groups of the resources. "" is the core group, "*" is every
group and excludes others. At least 1, at most 100.`},
		{at: lists + "[].apiGroups[]", maxLength: maxSubdomain},
		{at: lists + "[].apiVersions", minItems: 1, maxItems: maxEntries, rules: aloneIfWildcard("apiVersions"),
			description: `apiVersions are the API versions of the resources. "*" is every version and excludes
others. At least 1, at most 100.`},
		{at: lists + "[].apiVersions[]", maxLength: maxName, rules: []apiextensionsv1.ValidationRule{
			rule("", required, `self != ''`, validation.MessageVersion)}},
		{at: lists + "[].operations", minItems: 1, maxItems: 5, rules: aloneIfWildcard("operations"),
			description: `operations are the operations on the resources. "*" is every operation and excludes
others. At least 1.`},
		{at: lists + "[].operations[]", enum: []string{"CREATE", "UPDATE", "DELETE", "CONNECT", "*"}},
		{at: lists + "[].resources", minItems: 1, maxItems: maxEntries, rules: aloneIfWildcardPath(),
			description: `resources are the plural names of the resources: pods; pods/log is a subresource,
pods/* all subresources of pods, */scale the scale subresource of every resource.
"*" is every resource without its subresources, "*/*" is everything. At least 1, at
most 100.`},
		{at: lists + "[].resources[]", maxLength: maxResource, rules: []apiextensionsv1.ValidationRule{
			rule("", required, `self != ''`, validation.MessageResource)}},
		{at: lists + "[].resourceNames", maxItems: maxEntries,
			description: `resourceNames are the names of the objects that the rule matches. Default: all
objects. At most 100.`},
		{at: lists + "[].resourceNames[]", maxLength: maxSubdomain},
		{at: lists + "[].scope", enum: []string{"Cluster", "Namespaced", "*"},
			description: `scope limits the rule to resources that live in namespaces (Namespaced) or outside
of them (Cluster). Default "*", both.`},
		{at: at + ".matchPolicy", enum: []string{"Exact", "Equivalent"},
			description: `matchPolicy says whether a rule for one API version of a resource also matches
requests that use another. Exact: only the versions that the rules name. Equivalent:
any version; the request is converted to the one that the rules name. Default
Equivalent.`},
		{at: at + ".namespaceSelector",
			description: `namespaceSelector limits ` + who + ` to namespaces with matching labels: to requests
for objects in them, and for the namespaces themselves. Other cluster-scoped objects
always match. Default: every namespace.`},
		{at: at + ".objectSelector",
			description: `objectSelector limits ` + who + ` to objects with matching labels, before or after
the request. Users that can change the labels of an object can evade it. Default:
every object.`},
	}, selector(at+".(namespaceSelector|objectSelector)"))
}

// constraintRules are what is demanded of a policy's matchConstraints alone.
func constraintRules() []amendment {
	const (
		at    = "spec.matchConstraints"
		lists = at + ".(resourceRules|excludeResourceRules)"
	)
	return []amendment{
		{at: at + ".resourceRules", maxItems: maxRules,
			description: `resourceRules select operations on resources. A request matches if it matches any
of the rules. At least 1, at most 100.`},
		{at: lists + "[].resources", rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `!('*' in self) || self.all(r, r == '*' || r.contains('/'))`,
				validation.MessageAllResources)}},
		{at: lists + "[].resourceNames[]", rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `self != '' && self != '.' && self != '..' && !self.contains('/') && !self.contains('%')`,
				validation.MessageObjectName)}},
		{at: at + ".(namespaceSelector|objectSelector).matchExpressions[]", rules: []apiextensionsv1.ValidationRule{
			rule(".key", invalid, `self.key.matches('`+qualifiedName+`')`,
				"write a label key: letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it")}},
	}
}

// bindingRules limit the matchResources of bindings, which need no resourceRules.
// There can be 100 bindings, too many for the CEL budget of the API server: names
// and label keys are checked by patterns, and redundant resources are accepted.
func bindingRules() []amendment {
	const (
		at    = "spec.bindings[].matchResources"
		lists = at + ".(resourceRules|excludeResourceRules)"
	)
	return []amendment{
		{at: at + ".resourceRules", maxItems: maxRules,
			description: `resourceRules select operations on resources for the binding. Default: everything
that the policy's matchConstraints match. At most 100.`},
		{at: lists + "[].resourceNames[]", pattern: objectName},
		{at: at + ".(namespaceSelector|objectSelector).matchExpressions[].key", pattern: labelKey},
	}
}

// aloneIfWildcard demands that '*' is the only entry of a list.
func aloneIfWildcard(field string) []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{
		rule("", invalid, `!('*' in self) || size(self) == 1`,
			validation.MessageAlone(field)),
	}
}

func aloneIfWildcardPath() []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{
		rule("", invalid, `!('*/*' in self) || size(self) == 1`,
			validation.MessageEverything),
	}
}

// selector is a label selector, at a path.
func selector(at string) []amendment {
	return []amendment{
		{at: at + ".matchLabels", maxProperties: maxEntries,
			description: `matchLabels are labels that must all be present with these values. At most 100.`},
		{at: at + ".matchLabels{}", maxLength: maxName, pattern: labelValue},
		{at: at + ".matchExpressions", maxItems: maxEntries,
			description: `matchExpressions are requirements on labels, all of which must be met. At most 100.`},
		{at: at + ".matchExpressions[]",
			description: "A requirement relates one label, by an operator, to a list of values.",
			rules: []apiextensionsv1.ValidationRule{
				rule(".values", required, `!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)`,
					"add at least one value: the operators In and NotIn need them"),
				rule(".values", apiextensionsv1.FieldValueForbidden,
					`!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0`,
					"remove values: the operators Exists and DoesNotExist take none"),
			}},
		{at: at + ".matchExpressions[].key", maxLength: maxQualifiedName, description: "key is the key of the label."},
		{at: at + ".matchExpressions[].operator", enum: []string{"In", "NotIn", "Exists", "DoesNotExist"},
			description: "operator relates the label to the values."},
		{at: at + ".matchExpressions[].values", maxItems: maxEntries,
			description: `values are what In and NotIn compare the label's value with. None for Exists and
DoesNotExist. At most 100.`},
		{at: at + ".matchExpressions[].values[]", maxLength: maxName, pattern: labelValue},
	}
}
