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
			description: `name is the name of the one object that is read as params. Set either name or
selector.`},
		{at: at + ".namespace", maxLength: maxName, rules: []apiextensionsv1.ValidationRule{
			rule("", invalid, `self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,
				"write the name of a namespace: lower-case letters, digits and '-'")},
			description: `namespace is where the params are. Without it they are looked for in the namespace of
the request, and a request for a cluster-scoped object is an error. Leave it out where the
params' kind is cluster-scoped.`},
		{at: at + ".selector",
			description: `selector picks the params by their labels; {} picks all of them. With several, the
policy is evaluated with each, and all have to be satisfied. Set either name or selector.`},
		{at: at + ".parameterNotFoundAction", enum: []string{"Allow", "Deny"},
			description: `parameterNotFoundAction says what happens where there are no such params. Allow: the
binding does not count. Deny: it is an error, and the policy's failurePolicy decides.`},
		{at: at + ".selector.matchExpressions[].key", pattern: labelKey},
	}, selector(at+".selector"))
}
