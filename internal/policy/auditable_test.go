package policy

import (
	"strings"
	"testing"
)

func TestUnauditable(t *testing.T) {
	const onPods = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}]}\n"
	const compares = "compares oldObject with object, which an update that changes nothing does not change"
	lookup := func(requestKeys string) string {
		return "lookups: [{name: l, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '" + requestKeys + "'}]\n"
	}
	tests := map[string]struct{ spec, want string }{
		"a lookup": {lookup("[object.metadata.name]") + "validations: [{expression: 'lookups.l == []'}]", ""},
		"the user in the keys of a lookup": {
			lookup("[request.userInfo.username]") + "validations: [{expression: 'lookups.l == []'}]",
			"spec.lookups[0].requestKeys reads request.userInfo",
		},
		"a change by a lookup": {
			lookup("[oldObject.metadata.name]") + "variables: [{name: a, expression: 'lookups.l'}]\n" +
				"validations: [{expression: 'variables.a == object.spec'}]",
			"spec.validations[0].expression " + compares,
		},
		"an object":                      {"validations: [{expression: 'object.spec.replicas < 5'}]", ""},
		"the operation":                  {"validations: [{expression: 'request.operation != \"UPDATE\" || object.metadata.name != \"\"'}]", ""},
		"the user":                       {"validations: [{expression: 'true'}, {expression: 'request.userInfo.username != \"\"'}]", "spec.validations[1].expression reads request.userInfo"},
		"the user of an absolute name":   {"validations: [{expression: '.request.userInfo.username != \"\"'}]", "spec.validations[0].expression reads request.userInfo"},
		"the user, optional":             {"validations: [{expression: 'request.?userInfo.hasValue()'}]", "spec.validations[0].expression reads request.userInfo"},
		"the whole request":              {"validations: [{expression: '[request].size() > 0'}]", "spec.validations[0].expression reads the whole request, which includes request.userInfo"},
		"the user in a match condition":  {"matchConditions: [{name: m, expression: '!(\"admins\" in request.userInfo.groups)'}]\nvalidations: [{expression: 'true'}]", "spec.matchConditions[0].expression reads request.userInfo"},
		"the authorizer in a variable":   {"variables: [{name: a, expression: 'authorizer.group(\"\").resource(\"pods\").check(\"list\").allowed()'}]\nvalidations: [{expression: 'variables.a'}]", "spec.variables[0].expression reads authorizer"},
		"the request's authorizer":       {"validations: [{expression: 'authorizer.requestResource.check(\"x\").allowed()'}]", "spec.validations[0].expression reads authorizer"},
		"a change":                       {"validations: [{expression: 'object.spec.replicas == oldObject.spec.replicas'}]", "spec.validations[0].expression " + compares},
		"a change by variables":          {"variables: [{name: a, expression: 'object.spec.replicas'}, {name: b, expression: 'oldObject.spec.replicas'}]\nvalidations: [{expression: 'variables.a == variables.b'}]", "spec.validations[0].expression " + compares},
		"a change in a variable":         {"variables: [{name: a, expression: 'object.spec != oldObject.spec'}]\nvalidations: [{expression: 'variables.a'}]", "spec.variables[0].expression " + compares},
		"a change in a loop":             {"validations: [{expression: 'object.spec.containers.all(c, oldObject.spec.containers.exists(o, o.name == c.name))'}]", "spec.validations[0].expression " + compares},
		"a change in a method":           {"validations: [{expression: 'object.metadata.name.startsWith(oldObject.metadata.name)'}]", "spec.validations[0].expression " + compares},
		"a change in a list":             {"validations: [{expression: '[object.metadata.name, oldObject.metadata.name].size() == 2'}]", "spec.validations[0].expression " + compares},
		"both, without comparing them":   {"validations: [{expression: 'oldObject == null || object.spec.replicas < 5 && oldObject.spec.replicas < 9'}]", ""},
		"the user in a message":          {"validations: [{expression: 'true', messageExpression: 'request.userInfo.username'}]", "spec.validations[0].messageExpression reads request.userInfo"},
		"the user in a mutation":         {"mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/a\", value: request.userInfo.username}]'}}]\nvalidations: [{expression: 'true'}]", ""},
		"no validations":                 {"auditAnnotations: [{key: k, valueExpression: '\"v\"'}]", "it has no validations or mutations"},
		"only mutations":                 {mutations(label("a", `"b"`)), ""},
		"only new objects":               {"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\nvalidations: [{expression: 'true'}]", ""},
		"only deletions":                 {"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [DELETE]}]}\nvalidations: [{expression: 'true'}]", "its rules match only DELETE, and stored objects are evaluated as a CREATE and an UPDATE of whole objects"},
		"a change, and new objects":      {onPods + "validations: [{expression: 'oldObject == null || object.spec.replicas == oldObject.spec.replicas'}]", ""},
		"the user, and new objects":      {onPods + "validations: [{expression: 'request.userInfo.username != \"\"'}]", "spec.validations[0].expression reads request.userInfo"},
		"only subresources":              {"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods/status], operations: [UPDATE]}]}\nvalidations: [{expression: 'true'}]", "its rules match only subresources, and stored objects are evaluated as a CREATE and an UPDATE of whole objects"},
		"all resources and subresources": {"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: ['*/*'], operations: ['*']}]}\nvalidations: [{expression: 'true'}]", ""},
		"new Pods and their templates":   {"podTemplates: {}\nmatchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\nvalidations: [{expression: 'true'}]", ""},
		"only mutations, by the user": {
			mutations(label("a", "request.userInfo.username")),
			"spec.mutations[0].applyConfiguration.expression reads request.userInfo",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := tc.spec
			if !strings.Contains(spec, "matchConstraints") {
				spec = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [UPDATE]}]}\n" + spec
			}
			if got := mustCompile(t, sharedCompiler, policyFrom(t, "p", spec)).Unauditable(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDecidesAnew(t *testing.T) {
	tests := map[string]struct {
		spec string
		want bool
	}{
		"labels":            {"validations: [{expression: '\"team\" in object.metadata.labels'}]", false},
		"the old object":    {"validations: [{expression: 'oldObject != null'}]", true},
		"the operation":     {"variables: [{name: o, expression: 'request.operation'}]\nvalidations: [{expression: 'variables.o == \"CREATE\"'}]", true},
		"the namespace":     {"validations: [{expression: 'request.namespace != \"\"'}]", false},
		"the options":       {"validations: [{expression: 'has(request.options.dryRun)'}]", true},
		"the status":        {"validations: [{expression: 'has(object.status.phase)'}]", true},
		"the node":          {"validations: [{expression: 'has(object.spec.nodeName)'}]", true},
		"the whole spec":    {"validations: [{expression: 'object.spec == null'}]", true},
		"some field":        {"validations: [{expression: 'object.spec.all(k, k != \"nodeName\")'}]", true},
		"metadata":          {"variables: [{name: m, expression: 'object.metadata'}]\nvalidations: [{expression: 'variables.m.generation < 5'}]", true},
		"containers":        {"validations: [{expression: 'object.spec.containers.all(c, c.image != \"\")'}]", false},
		"ratchet":           {"ratchet: true\nvalidations: [{expression: 'object.spec.hostNetwork == true'}]", true},
		"rules of bindings": {"validations: [{expression: 'object.spec.hostNetwork == true'}]\nbindings: [{name: b, validationActions: [Deny], matchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}}]", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}]}\n" + tc.spec
			if got := mustCompile(t, sharedCompiler, policyFrom(t, "p", spec)).DecidesAnew(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
