package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxValueExpression is the API server's own limit.
const maxValueExpression = 5 << 10

func mutations() []amendment {
	const at = "spec.mutations[]"
	return []amendment{
		{at: at, description: "A mutation is a CEL expression that says how to change the object.",
			rules: []apiextensionsv1.ValidationRule{
				rule(".applyConfiguration", required, `self.patchType != 'ApplyConfiguration' || has(self.applyConfiguration)`,
					"add applyConfiguration: patchType ApplyConfiguration requires it"),
				rule(".jsonPatch", required, `self.patchType != 'JSONPatch' || has(self.jsonPatch)`,
					"add jsonPatch: patchType JSONPatch requires it"),
				rule(".jsonPatch", apiextensionsv1.FieldValueForbidden, `self.patchType != 'ApplyConfiguration' || !has(self.jsonPatch)`,
					"remove jsonPatch, or set patchType to JSONPatch"),
				rule(".applyConfiguration", apiextensionsv1.FieldValueForbidden, `self.patchType != 'JSONPatch' || !has(self.applyConfiguration)`,
					"remove applyConfiguration, or set patchType to ApplyConfiguration"),
			}},
		{at: at + ".patchType", enum: []string{"ApplyConfiguration", "JSONPatch"},
			description: `patchType says which field holds the mutation. ApplyConfiguration: fields to merge into
the object, as server-side apply does. JSONPatch: a list of operations on single paths.`},
		{at: at + ".applyConfiguration",
			description: `applyConfiguration gives the fields that are merged into the object. Set it if patchType
is ApplyConfiguration.`},
		{at: at + ".jsonPatch",
			description: "jsonPatch gives a list of JSON patch operations. Set it if patchType is JSONPatch."},
		{at: at + ".(applyConfiguration|jsonPatch)", required: []string{"expression"},
			rules: []apiextensionsv1.ValidationRule{expressionWritten()}},
		{at: at + ".applyConfiguration.expression", maxLength: maxExpression,
			description: `expression is CEL and must give an Object: the fields to set, in the types Object,
Object.spec, Object.spec.template and so on. Lists and maps are merged as server-side apply
merges them; atomic ones cannot be changed this way. It has the variables of a validation's
expression. Example: Object{metadata: Object.metadata{labels: {"tier": "web"}}}`},
		{at: at + ".jsonPatch.expression", maxLength: maxExpression,
			description: `expression is CEL and must give a list of JSONPatch, each with op, path, and value or from.
jsonpatch.escapeKey() writes a label or annotation key as part of a path. If an operation
test fails, the mutation does nothing. It has the variables of a validation's expression. Example:
[JSONPatch{op: "replace", path: "/spec/replicas", value: 2}]`},
	}
}

func auditAnnotations() []amendment {
	const at = "spec.auditAnnotations[]"
	return []amendment{
		{at: at, description: "An audit annotation is a key, and a CEL expression for its value.",
			rules: []apiextensionsv1.ValidationRule{
				rule(".key", invalid, `self.key.matches('^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$')`,
					"write key with letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"),
				rule(".valueExpression", required, `self.valueExpression.trim() != ''`,
					"write a CEL expression that gives a string or null"),
			}},
		{at: at + ".key", maxLength: maxName,
			description: `key of the annotation, unique in its policy. In the audit log it follows the names of
the webhook and the policy: <webhook>/<policy>.<key>.`},
		{at: at + ".valueExpression", maxLength: maxValueExpression,
			description: `valueExpression is CEL and gives the value as a string; null or an empty string is no
annotation. It has the variables of a validation's expression except authorizer. Values over
10 KiB are truncated. Different values of several bindings or params are joined by commas.`},
	}
}

// typeChecking bounds the part of the status that Ostiary writes.
func typeChecking() []amendment {
	const at = "status.typeChecking.expressionWarnings"
	return []amendment{
		{at: at, maxItems: maxEntries, description: `expressionWarnings hold the problems of single expressions. At most 100.`},
		{at: at + "[]", description: "A warning is about one expression."},
		{at: at + "[].fieldRef", maxLength: maxSubdomain,
			description: "fieldRef is the path of the expression, such as spec.validations[0].expression."},
		{at: at + "[].warning", maxLength: maxMessage * 2,
			description: `warning lists the types that the expression does not fit, with the messages of the
compiler.`},
	}
}
