package integration

import (
	"errors"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// faulty is a policy with one mistake.
type faulty struct {
	// name says what the mistake is.
	name string
	// rule is that of spec.matchConstraints; empty is one for Pods.
	rule string
	// spec is the rest of the spec.
	spec string
	// field is the path of the mistake, and fix a part of the message.
	field, fix string
	rejected   bool
}

const (
	podsRule        = `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`
	deploymentsRule = `{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}`
	validRest       = "validations: [{expression: 'true'}]"
)

func validatingSpec(expression string) string {
	return "validations:\n- expression: >-\n    " + expression + "\n"
}

func applyingSpec(expression string) string {
	return "mutations:\n- patchType: ApplyConfiguration\n  applyConfiguration:\n    expression: >-\n      " + expression + "\n"
}

func patchingSpec(operation string) string {
	return "mutations:\n- patchType: JSONPatch\n  jsonPatch:\n    expression: >-\n      [JSONPatch{" + operation + "}]\n"
}

// faultyExpressions use names that do not exist, or values of a type that does not fit.
func faultyExpressions() []faulty {
	const (
		v = "spec.validations[0].expression"
		a = "spec.mutations[0].applyConfiguration.expression"
		j = "spec.mutations[0].jsonPatch.expression"
	)
	return []faulty{
		{
			name:  "a field of a validation",
			spec:  validatingSpec("object.spec.hostNetwrk != true"),
			field: v,
			fix:   "Pod has no field spec.hostNetwrk, did you mean hostNetwork?",
		},
		{
			name:  "a field of a variable",
			spec:  "variables: [{name: host, expression: object.spec.hostNetwrk}]\n" + validatingSpec("variables.host != true"),
			field: "spec.variables[0].expression",
			fix:   "did you mean hostNetwork?",
		},
		{
			name:  "a field of a match condition",
			spec:  "matchConditions: [{name: a, expression: object.spec.hostNetwrk == true}]\n" + validRest,
			field: "spec.matchConditions[0].expression",
			fix:   "did you mean hostNetwork?",
		},
		{
			name:  "a field of a message",
			spec:  "validations: [{expression: 'true', messageExpression: '\"a\" + object.metadata.nmae'}]",
			field: "spec.validations[0].messageExpression",
			fix:   "Pod has no field metadata.nmae, did you mean name?",
		},
		{
			name:  "a field of an audit annotation",
			spec:  "auditAnnotations: [{key: a, valueExpression: '\"a\" + object.metadata.nmae'}]",
			field: "spec.auditAnnotations[0].valueExpression",
			fix:   "did you mean name?",
		},
		{name: "a field in has()", spec: validatingSpec("!has(object.spec.hostNetwrk)"), field: v, fix: "did you mean hostNetwork?"},
		{name: "an optional field", spec: validatingSpec("!object.spec.?hostNetwrk.orValue(false)"), field: v, fix: "did you mean hostNetwork?"},
		{
			name:  "a field in a list",
			spec:  validatingSpec("object.spec.containers.all(c, c.imag != '')"),
			field: v,
			fix:   "Pod has no field spec.containers[*].imag, did you mean image?",
		},
		{name: "a field of the old object", spec: validatingSpec("oldObject.metadata.lables != {}"), field: v, fix: "did you mean labels?"},
		{
			name:  "a field of another kind",
			rule:  deploymentsRule,
			spec:  validatingSpec("object.spec.containers.size() > 0"),
			field: v,
			fix:   "Deployment has no field spec.containers",
		},
		{
			name: "a field of params",
			spec: "paramKind: {apiVersion: v1, kind: ConfigMap}\n" +
				"bindings: [{name: b, paramRef: {name: p, parameterNotFoundAction: Allow}}]\n" + validatingSpec("params.dta.a != ''"),
			field: v,
			fix:   "ConfigMap has no field dta, did you mean data?",
		},
		{
			name:  "a field of several kinds",
			rule:  `{apiGroups: [apps], apiVersions: ["*"], resources: [deployments, statefulsets], operations: [CREATE]}`,
			spec:  validatingSpec("object.spec.replicsa < 5"),
			field: v,
			fix:   "Deployment and StatefulSet have no field spec.replicsa, did you mean replicas?",
		},
		{
			name:     "a field of request",
			spec:     validatingSpec("request.userInfo.usrname != ''"),
			field:    v,
			fix:      "there is no field usrname, did you mean username?",
			rejected: true,
		},
		{
			name:     "a field of the namespace",
			spec:     validatingSpec("namespaceObject.metadata.lables != {}"),
			field:    v,
			fix:      "there is no field lables, did you mean labels?",
			rejected: true,
		},
		{
			name:     "a function",
			spec:     validatingSpec("object.metadata.name.startWith('a')"),
			field:    v,
			fix:      "there is no function startWith, did you mean startsWith?",
			rejected: true,
		},
		{
			name:  "a string for a number",
			rule:  deploymentsRule,
			spec:  validatingSpec("object.spec.replicas < '5'"),
			field: v,
			fix:   "the operator < does not take (int, string)",
		},
		{
			name:     "a validation that is a number",
			rule:     deploymentsRule,
			spec:     validatingSpec("object.spec.replicas"),
			field:    v,
			fix:      "must evaluate to bool but got dyn",
			rejected: true,
		},
		{
			name:     "a message that is a number",
			rule:     deploymentsRule,
			spec:     "validations: [{expression: 'true', messageExpression: object.spec.replicas}]",
			field:    "spec.validations[0].messageExpression",
			fix:      "must evaluate to string but got dyn",
			rejected: true,
		},
		{
			name:  "a function of strings for a number",
			rule:  deploymentsRule,
			spec:  validatingSpec("object.spec.replicas.endsWith('a')"),
			field: v,
			fix:   "the function endsWith does not take int.(string)",
		},
		{
			name:  "a receiver that is not optional",
			spec:  validatingSpec("dyn(object.spec.nodeName).orValue('a') != 'b'"),
			field: v,
			fix:   "is this value up to Kubernetes 1.36, and an error from 1.37 on: use an optional value",
		},
		{
			name:  "an initialised field",
			spec:  applyingSpec("Object{spec: Object.spec{hostNetwrk: true}}"),
			field: a,
			fix:   "Pod has no field spec.hostNetwrk, did you mean hostNetwork?",
		},
		{
			name:  "an initialised type",
			spec:  applyingSpec("Object{spec: Object.sepc{hostNetwork: true}}"),
			field: a,
			fix:   "Pod has no field sepc, did you mean spec?",
		},
		{
			name:  "an initialised value",
			spec:  applyingSpec("Object{spec: Object.spec{hostNetwork: 'yes'}}"),
			field: a,
			fix:   "the field spec.hostNetwork takes bool, and the value is string",
		},
		{
			name:  "an initialised label",
			spec:  applyingSpec("Object{metadata: Object.metadata{labels: {'a': 1}}}"),
			field: a,
			fix:   "the field metadata.labels takes map(string, string)",
		},
		{
			name:  "an element without its key",
			spec:  applyingSpec("Object{spec: Object.spec{containers: [Object.spec.containers{image: 'a'}]}}"),
			field: a,
			fix:   "an element of spec.containers does not have the key name",
		},
		{
			name:  "a key with a slash",
			spec:  patchingSpec(`op: "add", path: "/metadata/labels/a.io/b", value: "c"`),
			field: j,
			fix:   `as in "/metadata/labels/a.io~1b", or with jsonpatch.escapeKey`,
		},
		{
			name:  "an operation of a patch",
			spec:  patchingSpec(`op: "repalce", path: "/spec/hostNetwork", value: true`),
			field: j,
			fix:   "did you mean replace? The operations are add, remove, replace, move, copy, test",
		},
		{
			name:  "a path of a patch",
			spec:  patchingSpec(`op: "add", path: "/spec/hostNetwrk", value: true`),
			field: j,
			fix:   "Pod has no field spec.hostNetwrk, did you mean hostNetwork?",
		},
		{
			name:  "a path of a patch without a slash",
			spec:  patchingSpec(`op: "add", path: "spec/hostNetwork", value: true`),
			field: j,
			fix:   `the path "spec/hostNetwork" of JSONPatch does not begin with /`,
		},
		{
			name:  "a value of a patch",
			spec:  patchingSpec(`op: "add", path: "/spec/hostNetwork", value: "yes"`),
			field: j,
			fix:   `the path "/spec/hostNetwork" of JSONPatch takes bool, and the value is string`,
		},
		{
			name:  "a patch without a value",
			spec:  patchingSpec(`op: "add", path: "/spec/hostNetwork"`),
			field: j,
			fix:   "the JSONPatch operation add needs the field value",
		},
		{
			name:     "a field of a patch",
			spec:     patchingSpec(`op: "add", pth: "/spec/hostNetwork", value: true`),
			field:    j,
			fix:      "JSONPatch has no field pth: its fields are op, path, from, value",
			rejected: true,
		},
	}
}

// faultyReferences match nothing, or read what is not there.
func faultyReferences() []faulty {
	const at = "spec.matchConstraints.resourceRules[0]."
	const params = "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validRest + "\n"
	rule := func(group, version, resource, operation string) string {
		return `{apiGroups: ["` + group + `"], apiVersions: [` + version + `], resources: [` + resource + `], operations: [` + operation + `]}`
	}
	return []faulty{
		{
			name:  "exec without CONNECT",
			rule:  rule("", "v1", "pods/exec", "CREATE"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   "have only the operation CONNECT; add it to operations",
		},
		{
			name:  "CONNECT of pods",
			rule:  rule("", "v1", "pods", "CONNECT"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   "have only the operations CREATE, UPDATE and DELETE",
		},
		{
			name:  "CREATE of a status",
			rule:  rule("", "v1", "pods/status", "CREATE"),
			spec:  validRest + "\nfailurePolicy: Ignore",
			field: at + "resources[0]",
			fix:   "have only the operation UPDATE; add it to operations",
		},
		{
			name:  "a scope",
			rule:  `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Cluster}`,
			spec:  validRest,
			field: at + "resources[0]",
			fix:   `"pods" is namespaced, and the rule has scope Cluster; remove scope`,
		},
		{
			name:  "another group",
			rule:  rule("", "v1", "deployments", "CREATE"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   `it is in the group "apps"`,
		},
		{name: "a singular", rule: rule("", "v1", "pod", "CREATE"), spec: validRest, field: at + "resources[0]", fix: `did you mean "pods"?`},
		{
			name:  "a kind",
			rule:  rule("apps", "v1", "Deployment", "CREATE"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   `did you mean "deployments"?`,
		},
		{
			name:  "the kind of a list",
			rule:  rule("apps", "v1", "DeploymentList", "CREATE"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   `name "deployments", since requests contain the objects of a list`,
		},
		{
			name:  "a resource that is not served",
			rule:  rule("apps", "v1", "rockets", "CREATE"),
			spec:  validRest,
			field: at + "resources[0]",
			fix:   "correct it, unless it is still to be installed",
		},
		{
			name:  "a group",
			rule:  rule("app", "v1", "deployments", "CREATE"),
			spec:  validRest,
			field: at + "apiGroups[0]",
			fix:   `the API server has no group "app", did you mean "apps"?`,
		},
		{name: "a version", rule: rule("apps", "v2", "deployments", "CREATE"), spec: validRest, field: at + "apiVersions[0]", fix: "use v1"},
		{
			name:  "an absent param",
			spec:  params + "bindings: [{name: b, paramRef: {name: absent, namespace: default, parameterNotFoundAction: Deny}}]",
			field: "spec.bindings[0].paramRef",
			fix:   "ConfigMap default/absent does not exist: until it does, every request is denied",
		},
		{
			name: "a selector of params",
			spec: params + "bindings: [{name: b, paramRef: {selector: {matchLabels: {absent: a}}, namespace: default, " +
				"parameterNotFoundAction: Deny}}]",
			field: "spec.bindings[0].paramRef",
			fix:   `no ConfigMap in namespace default matches the selector "absent=a"`,
		},
		{
			name: "a kind of params",
			spec: "paramKind: {apiVersion: v1, kind: ConfigMpa}\n" + validRest +
				"\nbindings: [{name: b, paramRef: {name: p, parameterNotFoundAction: Deny}}]",
			field: "spec.paramKind",
			fix:   "did you mean ConfigMap?",
		},
		{
			name:     "params without a kind",
			spec:     validatingSpec("params.data.a != ''"),
			field:    "spec.validations[0].expression",
			fix:      "params needs spec.paramKind, and a binding with paramRef: add both",
			rejected: true,
		},
		{
			name:     "a later variable",
			spec:     "variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}]\n" + validRest,
			field:    "spec.variables[0].expression",
			fix:      "variables can use only variables defined before them",
			rejected: true,
		},
		{
			name:     "a variable",
			spec:     "variables: [{name: team, expression: '1'}]\n" + validatingSpec("variables.taem == 1"),
			field:    "spec.validations[0].expression",
			fix:      "there is no variable taem, did you mean team?",
			rejected: true,
		},
		{
			name:     "the authorizer in a message",
			spec:     "validations: [{expression: 'true', messageExpression: 'authorizer.path(\"/\").check(\"get\").reason()'}]",
			field:    "spec.validations[0].messageExpression",
			fix:      "a message cannot use authorizer",
			rejected: true,
		},
	}
}

// faultyRequests compile and fit the schemas, and fail for some requests, or do not get them. Most
// have the form of a public report.
func faultyRequests() []faulty {
	const (
		v = "spec.validations[0].expression"
		a = "spec.mutations[0].applyConfiguration.expression"
		j = "spec.mutations[0].jsonPatch.expression"
	)
	on := func(group, resources, operations string) string {
		return `{apiGroups: ["` + group + `"], apiVersions: [v1], resources: [` + resources + `], operations: [` + operations + `]}`
	}
	configMaps, deployments := on("", "configmaps", "CREATE"), on("apps", "deployments", "CREATE, UPDATE")
	const limit = `object.spec.containers.all(c, !has(c.resources.limits) || !("cpu" in c.resources.limits) || ` +
		`quantity(c.resources.limits["cpu"]).compareTo(quantity("2")) <= 0)`
	const team = `"team" in object.metadata.?labels.orValue({})`
	return []faulty{
		{
			name:  "scale goes around a limit",
			rule:  deployments,
			spec:  validatingSpec("object.spec.?replicas.orValue(1) <= 3"),
			field: v,
			fix:   "through deployments/scale, which no rule matches: add a rule with UPDATE",
		},
		{
			name:  "resize goes around a limit",
			rule:  on("", "pods", "CREATE, UPDATE"),
			spec:  validatingSpec(limit),
			field: v,
			fix:   "through pods/resize, which no rule matches: add a rule with UPDATE",
		},
		{
			name:  "object is null on DELETE",
			rule:  on("", "configmaps", "'*'"),
			spec:  validatingSpec("has(object.metadata.labels)"),
			field: v,
			fix:   "object is null on DELETE: read oldObject, or remove DELETE from operations",
		},
		{
			name:  "oldObject is null on CREATE",
			rule:  on("", "services", "CREATE, UPDATE"),
			spec:  validatingSpec("oldObject.spec.type == object.spec.type"),
			field: v,
			fix:   "oldObject is null on CREATE",
		},
		{
			name:  "finalizers",
			rule:  on("", "configmaps", "UPDATE"),
			spec:  validatingSpec("object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])"),
			field: "spec.validations",
			fix:   "removes the last finalizer",
		},
		{
			name:  "everything needs a label",
			rule:  `{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [CREATE, UPDATE]}`,
			spec:  validatingSpec(team) + "failurePolicy: Ignore",
			field: "spec.validations",
			fix:   "so deletion hangs",
		},
		{
			name:  "a label without a guard",
			rule:  configMaps,
			spec:  validatingSpec("object.metadata.labels.team == 'x'"),
			field: v,
			fix:   `"no such key: labels": write object.metadata.?labels.?team.orValue("")`,
		},
		{
			name:  "a label in brackets",
			rule:  configMaps,
			spec:  validatingSpec("object.metadata.labels['team'] == 'x'"),
			field: v,
			fix:   "no such key: labels",
		},
		{
			name:  "annotations in a loop",
			rule:  configMaps,
			spec:  validatingSpec("object.metadata.annotations.exists(k, k == 'x')"),
			field: v,
			fix:   "no such key: annotations",
		},
		{
			name:  "the key of an annotation",
			rule:  configMaps,
			spec:  validatingSpec("!has(object.metadata.annotations) || object.metadata.annotations.x == 'y'"),
			field: v,
			fix:   "no such key: x",
		},
		{
			name:  "an optional bool",
			rule:  configMaps,
			spec:  validatingSpec("object.immutable == false"),
			field: v,
			fix:   "write object.?immutable.orValue(false)",
		},
		{name: "an optional map", rule: configMaps, spec: validatingSpec("object.data.b.contains('x')"), field: v, fix: "no such key: data"},
		{
			name:  "limits",
			spec:  validatingSpec("object.spec.containers.all(c, has(c.resources.limits.memory))"),
			field: v,
			fix:   "no such key: limits",
		},
		{
			name: "init containers in a condition",
			spec: "matchConditions: [{name: a, expression: '!object.spec.initContainers.exists(c, c.name == \"proxy\")'}]\n" +
				validRest,
			field: "spec.matchConditions[0].expression",
			fix:   "no such key: initContainers",
		},
		{
			name:  "protected Deployments",
			rule:  on("apps", "deployments", "DELETE, UPDATE"),
			spec:  validatingSpec(`!has(object.metadata.labels) || !("protected" in object.metadata.labels)`),
			field: v,
			fix:   "object is null on DELETE",
		},
		{
			name:  "checks of the authorizer",
			rule:  configMaps,
			spec:  validatingSpec("[1, 2, 3, 4].all(x, authorizer.requestResource.check('create').allowed())"),
			field: v,
			fix:   "each check of the authorizer costs 350000 of 1000000",
		},
		{
			name: "params without a namespace",
			rule: on("rbac.authorization.k8s.io", "clusterroles", "CREATE"),
			spec: "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validRest +
				"\nbindings: [{name: b, paramRef: {name: p, parameterNotFoundAction: Allow}}]",
			field: "spec.bindings[0].paramRef",
			fix:   "set paramRef.namespace",
		},
		{
			name:  "an absent parent",
			spec:  patchingSpec(`op: "add", path: "/metadata/annotations/foo", value: "bar"`),
			field: j,
			fix:   "the parent of the path, or the path itself, is absent",
		},
		{
			name:  "a slash in a key",
			spec:  patchingSpec(`op: "add", path: "/metadata/labels/example.com/role", value: "bar"`),
			field: j,
			fix:   "a / in a key is written as ~1",
		},
		{
			name: "arguments of containers",
			spec: applyingSpec("Object{spec: Object.spec{containers: object.spec.containers.map(c, " +
				"Object.spec.containers{name: c.name, args: ['x']})}}"),
			field: a,
			fix:   "cannot change a part of an atomic list",
		},
		{
			name:  "tolerations",
			spec:  applyingSpec("Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a', operator: 'Exists'}]}}"),
			field: a,
			fix:   "cannot change a part of an atomic list",
		},
		{
			name:  "a field that is not removed",
			spec:  applyingSpec("Object{spec: Object.spec{?terminationGracePeriodSeconds: optional.none()}}"),
			field: a,
			fix:   `use a JSONPatch with op: "remove"`,
		},
		{
			name:  "a sidecar in an absent list",
			spec:  patchingSpec(`op: "add", path: "/spec/initContainers/-", value: Object.spec.initContainers{name: "proxy", image: "mesh:1"}`),
			field: j,
			fix:   "the parent of the path, or the path itself, is absent",
		},
		{
			name:  "a kind in the plural",
			spec:  validatingSpec("object.kind == 'Pods'"),
			field: v,
			fix:   "CREATE of pods is denied for every object that was tried",
		},
		{
			name:  "labels of Pods for exec",
			rule:  on("", "pods/exec", "CONNECT") + "], objectSelector: {matchLabels: {a: b}}, excludeResourceRules: [",
			spec:  validatingSpec("request.userInfo.username != 'x'"),
			field: "spec.matchConstraints.objectSelector",
			fix:   `requests for "pods/exec"`,
		},
	}
}

// A policy with a mistake is rejected, or warned about, when it is applied, with the path
// of the mistake and a fix.
func TestFaultyPolicies(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	c.mayRead(t, "", "configmaps")
	all := slices.Concat(faultyExpressions(), faultyReferences(), faultyRequests())
	if len(all) != 75 {
		t.Errorf("%d policies", len(all))
	}
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			rule := tt.rule
			if rule == "" {
				rule = podsRule
			}
			p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "faulty"}}
			must(t, yaml.UnmarshalStrict([]byte("matchConstraints: {resourceRules: ["+rule+"]}\n"+tt.spec), &p.Spec))
			if tt.rejected {
				checkRejection(t, c.Create(t.Context(), p, client.DryRunAll), tt)
				return
			}
			warnings := func() ([]string, error) { // Kubernetes copies the permission to read params after a moment
				a := c.asker(t)
				err := a.Create(t.Context(), p.DeepCopy(), client.DryRunAll)
				return a.warnings, err
			}
			await(t).Eventually(warnings).Should(ContainElement(And(HavePrefix(tt.field+": "), ContainSubstring(tt.fix))))
		})
	}
}

func checkRejection(t *testing.T, err error, want faulty) {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want Invalid", err)
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == want.field && strings.Contains(cause.Message, want.fix) {
			return
		}
	}
	t.Errorf("causes %+v, want %q at %s", status.Status().Details.Causes, want.fix, want.field)
}

// The status repeats the warnings, and follows the resources of the API server.
func TestStatusOfFaultyPolicies(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	apply := func(name, rule, spec string) {
		p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(t, yaml.UnmarshalStrict([]byte("failurePolicy: Ignore\nmatchConstraints: {resourceRules: ["+rule+"]}\n"+spec), &p.Spec))
		c.apply(t, p)
	}
	awaitMessage := func(name, condition, want string) {
		t.Helper()
		await(t).Eventually(func() string {
			p, err := c.policy(t.Context(), name)
			if err != nil {
				return err.Error()
			}
			for _, c := range p.Status.Conditions {
				if c.Type == condition {
					return c.Message
				}
			}
			return ""
		}).Should(Equal(want))
	}
	apply("faulty-type", podsRule, applyingSpec("Object{spec: Object.spec{hostNetwrk: true}}"))
	awaitMessage("faulty-type", v1alpha1.ConditionAccepted,
		"every expression compiles, with warnings: spec.mutations[0].applyConfiguration.expression: Pod has no field "+
			"spec.hostNetwrk, did you mean hostNetwork?")
	apply("faulty-version", podsRule, validatingSpec("dyn(object.spec.nodeName).orValue('a') != 'b'"))
	awaitMessage("faulty-version", v1alpha1.ConditionAccepted,
		"every expression compiles, with warnings: spec.validations[0].expression: orValue() of a value that is not "+
			"optional is this value up to Kubernetes 1.36, and an error from 1.37 on: use an optional value, as in object.?name.orValue(...)")
	apply("faulty-request", strings.Replace(podsRule, "[pods]", "[configmaps]", 1), validatingSpec("object.metadata.labels.team == 'x'"))
	awaitMessage("faulty-request", v1alpha1.ConditionRehearsed,
		`spec.validations[0].expression: CREATE of configmaps can fail with "no such key: labels", and with failurePolicy `+
			`Ignore the request then passes: write object.metadata.?labels.?team.orValue("")`)
	awaitMessage("faulty-request", v1alpha1.ConditionAccepted, "every expression compiles")
	apply("faulty-rule", strings.Replace(podsRule, "[pods]", "[pod]", 1), validRest)
	awaitMessage("faulty-rule", v1alpha1.ConditionReady,
		`no request matches the policy: spec.matchConstraints.resourceRules[0].resources[0]: the API server does not serve `+
			`"pod" in these groups and versions, did you mean "pods"?`)
}
