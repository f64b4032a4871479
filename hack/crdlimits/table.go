package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Limits that several fields share. An expression's is as large as the longest
// ones people write, and small enough for the API server's budget for the
// rules below, which it computes from the largest value each may see.
const (
	maxExpression    = 16384
	maxMessage       = 1024
	maxRules         = 100
	maxEntries       = 100
	maxName          = 63
	maxSubdomain     = 253
	maxQualifiedName = maxSubdomain + 1 + maxName
	// maxResource holds a resource, a slash and a subresource.
	maxResource = maxName + 1 + maxName
)

const (
	labelValue    = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	qualifiedName = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
)

const (
	required = apiextensionsv1.FieldValueRequired
	invalid  = apiextensionsv1.FieldValueInvalid
)

// webhookPolicyTable holds what markers cannot say about WebhookPolicy. The
// rules are those that the API server has for the same fields of its own
// ValidatingAdmissionPolicy and webhook configurations, so that whatever is
// accepted here can be registered there.
func webhookPolicyTable() []amendment {
	var table []amendment
	for _, part := range [][]amendment{matchConstraints(), selectors(), matchConditions(), variables(), validations()} {
		table = append(table, part...)
	}
	return table
}

func matchConstraints() []amendment {
	const lists = "spec.matchConstraints.(resourceRules|excludeResourceRules)"
	return []amendment{
		{at: "spec.matchConstraints.resourceRules", maxItems: maxRules, description: `resourceRules say which operations on which resources the policy looks at. A
request matches if it matches any of the rules. At least 1, at most 100.`},
		{at: "spec.matchConstraints.excludeResourceRules", maxItems: maxRules, description: `excludeResourceRules say which operations on which resources the policy does
not look at, even where resourceRules match them. At most 100.`},
		{at: lists + "[]", required: []string{"apiGroups", "apiVersions", "operations", "resources"},
			description: "A rule matches a request that matches each of its fields."},
		{at: lists + "[].apiGroups", minItems: 1, maxItems: maxEntries, rules: aloneIfWildcard("apiGroups"),
			description: `apiGroups are the API groups of the resources. "" is the core group, "*" is every
group and stands alone. At least 1, at most 100.`},
		{at: lists + "[].apiGroups[]", maxLength: maxSubdomain},
		{at: lists + "[].apiVersions", minItems: 1, maxItems: maxEntries, rules: aloneIfWildcard("apiVersions"),
			description: `apiVersions are the API versions of the resources. "*" is every version and stands
alone. At least 1, at most 100.`},
		{at: lists + "[].apiVersions[]", maxLength: maxName, rules: []apiextensionsv1.ValidationRule{
			rule("", required, `self != ''`, "write an API version such as v1, or '*' for all")}},
		{at: lists + "[].operations", minItems: 1, maxItems: 5, rules: aloneIfWildcard("operations"),
			description: `operations are what is done to the resources. "*" is every operation and stands
alone. At least 1.`},
		{at: lists + "[].operations[]", enum: []string{"CREATE", "UPDATE", "DELETE", "CONNECT", "*"}},
		{at: lists + "[].resources", minItems: 1, maxItems: maxEntries, rules: resourceRules(),
			description: `resources are the plural names of the resources: pods; pods/log is a subresource,
pods/* all subresources of pods, */scale the scale subresource of every resource.
"*" is every resource without its subresources, "*/*" is everything. At least 1, at
most 100.`},
		{at: lists + "[].resources[]", maxLength: maxResource, rules: []apiextensionsv1.ValidationRule{
			rule("", required, `self != ''`, "write a resource such as pods, or '*' for all")}},
		{at: lists + "[].resourceNames", maxItems: maxEntries,
			description: `resourceNames are the names of the objects that the rule is for. Without any, it is
for all. At most 100.`},
		{at: lists + "[].resourceNames[]", maxLength: maxSubdomain, rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `self != '' && self != '.' && self != '..' && !self.contains('/') && !self.contains('%')`,
				"write the name of one object: not empty, '.' or '..', and without '/' and '%'")}},
		{at: lists + "[].scope", enum: []string{"Cluster", "Namespaced", "*"},
			description: `scope limits the rule to resources that live in namespaces (Namespaced) or outside
of them (Cluster). Default "*", both.`},
		{at: "spec.matchConstraints.matchPolicy", enum: []string{"Exact", "Equivalent"},
			description: `matchPolicy says whether a rule for one API version of a resource also matches
requests that use another. Exact: only the versions that the rules name. Equivalent:
any version; the request is converted to the one that the rules name. Default
Equivalent.`},
	}
}

// aloneIfWildcard demands that '*' is the only entry of a list.
func aloneIfWildcard(field string) []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{
		rule("", invalid, `!('*' in self) || size(self) == 1`,
			"keep '*' alone in "+field+", or remove it: it already stands for all"),
	}
}

func resourceRules() []apiextensionsv1.ValidationRule {
	return []apiextensionsv1.ValidationRule{
		rule("", invalid, `!('*/*' in self) || size(self) == 1`,
			"keep '*/*' alone in resources, or remove it: it already stands for all resources and subresources"),
		rule("", invalid, `!('*' in self) || self.all(r, r == '*' || r.contains('/'))`,
			"keep '*' in resources beside subresources only, or remove it: it already stands for all resources"),
	}
}

func selectors() []amendment {
	const both = "spec.matchConstraints.(namespaceSelector|objectSelector)"
	return []amendment{
		{at: "spec.matchConstraints.namespaceSelector",
			description: `namespaceSelector limits the policy to namespaces with matching labels: to requests
for objects in them, and for the namespaces themselves. Other cluster-scoped objects
always match. Default: every namespace.`},
		{at: "spec.matchConstraints.objectSelector",
			description: `objectSelector limits the policy to objects with matching labels, before or after
the request. Whoever may change an object's labels can slip past it. Default: every
object.`},
		{at: both + ".matchLabels", maxProperties: maxEntries,
			description: `matchLabels are labels that must all be present with these values. At most 100.`},
		{at: both + ".matchLabels{}", maxLength: maxName, pattern: labelValue},
		{at: both + ".matchExpressions", maxItems: maxEntries,
			description: `matchExpressions are demands on labels, all of which must be met. At most 100.`},
		{at: both + ".matchExpressions[]",
			description: "A demand relates one label, by an operator, to a list of values.",
			rules: []apiextensionsv1.ValidationRule{
				rule(".values", required, `!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)`,
					"add at least one value: the operators In and NotIn need them"),
				rule(".values", apiextensionsv1.FieldValueForbidden, `!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0`,
					"remove values: the operators Exists and DoesNotExist take none"),
				rule(".key", invalid, `self.key.matches('`+qualifiedName+`')`,
					"write a label key: letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it"),
			}},
		{at: both + ".matchExpressions[].key", maxLength: maxQualifiedName, description: "key is the key of the label."},
		{at: both + ".matchExpressions[].operator", enum: []string{"In", "NotIn", "Exists", "DoesNotExist"},
			description: "operator relates the label to the values."},
		{at: both + ".matchExpressions[].values", maxItems: maxEntries,
			description: `values are what In and NotIn compare the label's value with. None for Exists and
DoesNotExist. At most 100.`},
		{at: both + ".matchExpressions[].values[]", maxLength: maxName, pattern: labelValue},
	}
}

func matchConditions() []amendment {
	return []amendment{
		{at: "spec.matchConditions[]", description: "A match condition is a named CEL expression.",
			rules: []apiextensionsv1.ValidationRule{
				expressionWritten(),
				rule(".name", invalid, `self.name.matches('`+qualifiedName+`')`,
					"write name with letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it"),
			}},
		{at: "spec.matchConditions[].name", maxLength: maxQualifiedName,
			description: `name tells this condition from the others of its policy, for example
exclude-nodes or example.com/exclude-nodes.`},
		{at: "spec.matchConditions[].expression", maxLength: maxExpression,
			description: `expression is CEL and must give a bool. Where it is false, the policy does not look
at the request. Example: !("system:nodes" in request.userInfo.groups)`},
	}
}

func variables() []amendment {
	return []amendment{
		{at: "spec.variables[]", description: "A variable is a named CEL expression.",
			rules: []apiextensionsv1.ValidationRule{
				expressionWritten(),
				rule(".name", invalid, `self.name.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,
					"write name with letters, digits and '_', not beginning with a digit"),
				rule(".name", invalid, `!(self.name in ['true', 'false', 'null', 'in', 'as', 'break', 'const', 'continue', 'else', 'for', 'function', 'if', 'import', 'let', 'loop', 'package', 'namespace', 'return', 'var', 'void', 'while'])`,
					"choose another name: CEL reserves this word"),
			}},
		{at: "spec.variables[].name", maxLength: maxName,
			description: "name is what later expressions read: foo is read as variables.foo."},
		{at: "spec.variables[].expression", maxLength: maxExpression,
			description: `expression is CEL and gives the value of the variable. It sees what a validation's
expression sees, and the variables above it.`},
	}
}

func validations() []amendment {
	return []amendment{
		{at: "spec.validations[]", description: "A validation is a CEL expression that must be true, and what to say where it is not.",
			rules: []apiextensionsv1.ValidationRule{
				expressionWritten(),
				rule(".message", invalid, `!has(self.message) || self.message == '' || self.message.trim() != ''`,
					"write what is wrong with the request, or remove message"),
				rule(".message", invalid, `!has(self.message) || !self.message.trim().matches('[\\r\\n]')`,
					"write message on one line"),
				rule(".messageExpression", invalid, `!has(self.messageExpression) || self.messageExpression == '' || self.messageExpression.trim() != ''`,
					"write a CEL expression that gives a string, or remove messageExpression"),
			}},
		{at: "spec.validations[].expression", maxLength: maxExpression,
			description: `expression is CEL and must give a bool: true lets the request pass, false fails it.
It sees object (null on DELETE), oldObject (null on CREATE), request (who asks for
what), namespaceObject (null for cluster-scoped objects) and variables.
Example: object.spec.replicas <= 5`},
		{at: "spec.validations[].message", maxLength: maxMessage,
			description: `message is what the client is told where the expression is false. One line. Without
it, and without messageExpression, the client is shown the expression.`},
		{at: "spec.validations[].messageExpression", maxLength: maxExpression,
			description: `messageExpression is CEL and gives the message as a string. It sees what expression
sees and goes before message. Where it fails or gives nothing,
message is used. Example: "replicas are limited to 5, not " + string(object.spec.replicas)`},
		{at: "spec.validations[].reason", enum: []string{"Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"},
			description: `reason sets the reason and the HTTP code of the refusal: Unauthorized 401, Forbidden
403, RequestEntityTooLarge 413, Invalid 422. The first validation that fails decides.
Default Invalid.`},
	}
}

// expressionWritten refuses an expression of white space only.
func expressionWritten() apiextensionsv1.ValidationRule {
	return rule(".expression", required, `self.expression.trim() != ''`, "write a CEL expression")
}

func rule(fieldPath string, reason apiextensionsv1.FieldValueErrorReason, expression, message string) apiextensionsv1.ValidationRule {
	return apiextensionsv1.ValidationRule{Rule: expression, Message: message, Reason: &reason, FieldPath: fieldPath}
}
