package main

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	subdomain = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
	version   = `[a-z]([-a-z0-9]*[a-z0-9])?`
)

func paramKind() []amendment {
	return []amendment{
		{at: "spec.paramKind", required: []string{"apiVersion", "kind"}, rules: []apiextensionsv1.ValidationRule{
			rule(".apiVersion", invalid, `self.apiVersion.matches('^(`+subdomain+`/)?`+version+`$')`,
				"write apiVersion as group/version, such as example.com/v1, or v1 for the core group"),
			rule(".kind", invalid, `self.kind.matches('^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$')`,
				"write the kind as in its manifests, such as ConfigMap"),
		}},
		{at: "spec.paramKind.apiVersion", maxLength: maxSubdomain + 1 + maxName,
			description: "apiVersion is the group and version of the params, such as example.com/v1; v1 for the core group."},
		{at: "spec.paramKind.kind", maxLength: maxName, description: "kind is the kind of the params, such as ConfigMap."},
	}
}

func paramRefs() []amendment {
	const at = "spec.bindings[].paramRef"
	return slices.Concat([]amendment{
		{at: at + ".name", maxLength: maxSubdomain, rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `self != '.' && self != '..' && !self.contains('/') && !self.contains('%')`,
				"write the name of one object, without '/' and '%'")},
			description: `name is the name of the object that is used as params. Set either name or
selector.`},
		{at: at + ".namespace", maxLength: maxName, rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,
				"write the name of a namespace: lower-case letters, digits and '-'")},
			description: `namespace of the params. Default: the namespace of the request; requests for cluster-scoped
objects are then an error. Omit it if the kind of the params is cluster-scoped.`},
		{at: at + ".selector",
			description: `selector selects the params by their labels; {} selects all. The policy is evaluated
with each of them, and the request must satisfy all. Set either name or selector.`},
		{at: at + ".parameterNotFoundAction", enum: []string{"Allow", "Deny"},
			description: `parameterNotFoundAction applies if there are no such params. Allow: the binding is
skipped. Deny: it is an error, and the policy's failurePolicy applies.`},
		{at: at + ".selector.matchExpressions[].key", pattern: labelKey},
	}, selector(at+".selector"))
}
