package policy

import (
	"fmt"
	"slices"
	"strings"
)

type nativeCase struct {
	name string
	spec string
	want string // part of "code reason: message", or "allowed"
	on   string // the request that want is about; default "create pod"
}

func (c nativeCase) request() string {
	if c.on == "" {
		return "create pod"
	}
	return c.on
}

// costing is true, quick to evaluate, and estimated at 100,000 units of cost
// for each of n.
func costing(n int) string {
	list := strings.TrimSuffix(strings.Repeat("1,", n), ",")
	return "[" + list + `].all(x, !"` + strings.Repeat("a", 2000) + `".matches("^` + strings.Repeat("b", 2000) + `"))`
}

// costly is within the limit of one expression; tooCostly is beyond it.
var costly, tooCostly = costing(4), costing(20)

// namespaceValidations makes validations that have messages.
func namespaceValidations(expressions ...string) string {
	var all []string
	for _, e := range expressions {
		all = append(all, fmt.Sprintf("{expression: %q, messageExpression: %q}", e, "string(namespaceObject.metadata.name)"))
	}
	return "{validations: [" + strings.Join(all, ", ") + "]}"
}

// named makes n match conditions.
func named(n int, expression string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("{name: c%d, expression: '%s'}", i, expression)
	}
	return out
}

var nativeCases = []nativeCase{
	{name: "allow", spec: `validations: [{expression: 'true'}]`, want: "allowed"},
	{name: "deny by expression", spec: `validations: [{expression: '  1 == 2  '}]`, want: "422 Invalid: failed expression: 1 == 2"},
	{name: "message", spec: `validations: [{expression: 'false', message: '  say why  '}]`, want: "422 Invalid: say why"},
	{name: "reason Forbidden", spec: `validations: [{expression: 'false', message: m, reason: Forbidden}]`, want: "403 Forbidden: m"},
	{name: "reason Unauthorized", spec: `validations: [{expression: 'false', message: m, reason: Unauthorized}]`, want: "401 Unauthorized: m"},
	{name: "reason Invalid", spec: `validations: [{expression: 'false', message: m, reason: Invalid}]`, want: "422 Invalid: m"},
	{name: "reason RequestEntityTooLarge", spec: `validations: [{expression: 'false', message: m, reason: RequestEntityTooLarge}]`, want: "413 RequestEntityTooLarge: m"},
	{name: "unknown reason", spec: `validations: [{expression: 'false', message: m, reason: Teapot}]`, want: "422 Teapot: m"},
	{name: "empty reason", spec: `validations: [{expression: 'false', message: m, reason: ''}]`, want: "422 Invalid: m"},
	{name: "messageExpression", spec: `validations: [{expression: 'false', message: m, messageExpression: '" by " + request.userInfo.username + " "'}]`, want: "422 Invalid: by alice"},
	{name: "messageExpression at the limit", spec: `validations: [{expression: 'false', message: m, messageExpression: '"` + strings.Repeat("x", 5120) + `"'}]`, want: "422 Invalid: " + strings.Repeat("x", 5120)},
	{name: "messageExpression too long", spec: `validations: [{expression: 'false', message: m, messageExpression: '"` + strings.Repeat("x", 5121) + `"'}]`, want: "422 Invalid: m"},
	{name: "messageExpression of two lines", spec: `validations: [{expression: 'false', message: m, messageExpression: '"a\nb"'}]`, want: "422 Invalid: m"},
	{name: "messageExpression of two lines without message", spec: `validations: [{expression: 'false', messageExpression: 'string(object.metadata.annotations["example.com/note"])'}]`, want: "422 Invalid: failed expression: false"},
	{name: "messageExpression of white space around one line", spec: `validations: [{expression: 'false', message: m, messageExpression: '"\n a \n"'}]`, want: "422 Invalid: a"},
	{name: "messageExpression gives nothing", spec: `validations: [{expression: 'false', message: m, messageExpression: '""'}]`, want: "422 Invalid: m"},
	{name: "messageExpression gives white space", spec: `validations: [{expression: 'false', messageExpression: '" \t "'}]`, want: "422 Invalid: failed expression: false"},
	{name: "messageExpression fails", spec: `validations: [{expression: 'false', message: m, messageExpression: 'string(object.spec.nope)'}]`, want: "422 Invalid: m"},
	{name: "messageExpression on one of three", spec: `validations: [{expression: 'false', message: a}, {expression: 'false', messageExpression: '"b" + "c"'}, {expression: 'true', messageExpression: '"never"'}]`, want: "422 Invalid: a"},
	{name: "messageExpression out of budget", spec: `validations: [{expression: 'false', message: m, messageExpression: '` + tooCostly + ` ? "a" : "b"'}]`, want: "422 Invalid: m"},
	{name: "message with special characters", spec: `validations: [{expression: 'false', message: 'é <b> & "q" \ %s %!d'}]`, want: `422 Invalid: é <b> & "q" \ %s %!d`},
	{name: "runtime error", spec: `validations: [{expression: 'object.spec.nope == 1', message: m}]`, want: "422 Invalid: expression 'object.spec.nope == 1' resulted in error: no such key: nope"},
	{name: "runtime error with reason", spec: `validations: [{expression: 'object.spec.nope == 1', reason: Forbidden}]`, want: "422 Invalid: expression"},
	{name: "error, failure, success", spec: `validations: [{expression: 'object.spec.nope == 1'}, {expression: 'false', message: second}, {expression: 'true'}]`, want: "422 Invalid: expression"},
	{name: "failure before error", spec: `validations: [{expression: 'true'}, {expression: 'false', message: second, reason: Forbidden}, {expression: 'object.spec.nope == 1'}]`, want: "403 Forbidden: second"},
	{name: "several fail", spec: `validations: [{expression: '1 > 2', message: a}, {expression: '2 > 3', message: b, reason: Forbidden}, {expression: '3 > 4'}]`, want: "422 Invalid: a"},
	{name: "division by zero", spec: `validations: [{expression: '1 / (object.metadata.name.size() - object.metadata.name.size()) == 0'}]`, want: "division by zero"},
	{name: "not a bool at run time", spec: `validations: [{expression: 'has(object.metadata.name) && object.metadata.name'}]`, want: "422 Invalid: expression"},

	{name: "matchCondition true", spec: `{matchConditions: [{name: a, expression: 'true'}], validations: [{expression: 'false', message: m}]}`, want: "422 Invalid: m"},
	{name: "matchCondition false", spec: `{matchConditions: [{name: a, expression: 'true'}, {name: b, expression: 'false'}], validations: [{expression: 'false'}]}`, want: "allowed"},
	{name: "matchCondition error", spec: `{matchConditions: [{name: a, expression: 'object.spec.nope == 1'}, {name: b, expression: 'true'}], validations: [{expression: 'true'}]}`, want: "422 Invalid: expression 'object.spec.nope == 1' resulted in error"},
	{name: "matchCondition two errors", spec: `{matchConditions: [{name: a, expression: 'object.spec.nope == 1'}, {name: b, expression: 'object.spec.nada == 1'}], validations: [{expression: 'true'}]}`, want: "422 Invalid: [expression 'object.spec.nope == 1' resulted in error"},
	{name: "matchCondition false beats an error before it", spec: `{matchConditions: [{name: a, expression: 'object.spec.nope == 1'}, {name: b, expression: 'false'}], validations: [{expression: 'false'}]}`, want: "allowed"},
	{name: "matchCondition false beats an error after it", spec: `{matchConditions: [{name: a, expression: 'false'}, {name: b, expression: 'object.spec.nope == 1'}], validations: [{expression: 'false'}]}`, want: "allowed"},
	{name: "matchCondition has no namespaceObject", spec: `{matchConditions: [{name: a, expression: 'namespaceObject == null'}], validations: [{expression: 'namespaceObject != null'}]}`, want: "allowed"},
	{name: "matchCondition sees the request unconverted", spec: `{matchConditions: [{name: a, expression: 'request.resource.version == "v1beta1"'}], validations: [{expression: 'request.resource.version == "v1beta1"', messageExpression: 'request.resource.version + request.kind.version + request.requestKind.version'}]}`, want: "422 Invalid: v1v1v1beta1", on: "converted deployment"},
	{name: "matchCondition out of budget", spec: `{matchConditions: [` + strings.Join(named(7, costly), ", ") + `], validations: [{expression: 'true'}]}`, want: "validation failed due to running out of cost budget"},

	{name: "variables chained", spec: `{variables: [{name: a, expression: '2'}, {name: b, expression: 'variables.a + 1'}], validations: [{expression: 'variables.b == 2', messageExpression: 'string(variables.b)'}]}`, want: "422 Invalid: 3"},
	{name: "variables are lazy", spec: `{variables: [{name: a, expression: 'object.spec.nope'}], validations: [{expression: 'true || variables.a == 1'}]}`, want: "allowed"},
	{name: "error in a variable", spec: `{variables: [{name: a, expression: 'object.spec.nope'}], validations: [{expression: 'variables.a == 1'}]}`, want: `422 Invalid: expression 'variables.a == 1' resulted in error: composited variable "a" fails to evaluate: no such key: nope`},
	{name: "error in a chained variable", spec: `{variables: [{name: a, expression: 'object.spec.nope'}, {name: b, expression: 'variables.a'}], validations: [{expression: 'variables.b == 1'}, {expression: 'variables.b == 2'}]}`, want: "422 Invalid: expression"},
	{name: "variable in a matchCondition", spec: `{variables: [{name: a, expression: 'request.operation'}], matchConditions: [{name: a, expression: 'variables.a == "CREATE"'}], validations: [{expression: 'variables.a == "x"', messageExpression: '"no " + variables.a'}]}`, want: "422 Invalid: no CREATE"},
	{name: "variable with an error in a matchCondition", spec: `{variables: [{name: a, expression: 'object.spec.nope'}], matchConditions: [{name: a, expression: 'variables.a == 1'}], validations: [{expression: 'true'}]}`, want: "422 Invalid: expression 'variables.a == 1' resulted in error"},
	{name: "variable of an unread kind", spec: `{variables: [{name: ns, expression: 'namespaceObject'}, {name: old, expression: 'oldObject'}, {name: o, expression: 'request.options'}], validations: [{expression: 'variables.ns == null || variables.old != null', messageExpression: 'variables.ns.metadata.name + "/" + variables.o.kind'}]}`, want: "422 Invalid: shop/CreateOptions"},
	{name: "variable is a list", spec: `{variables: [{name: all, expression: 'object.spec.containers.map(c, c.name)'}], validations: [{expression: 'variables.all.size() > 2', messageExpression: 'variables.all.join(",")'}]}`, want: "422 Invalid: app,side"},

	{name: "cost of one expression", spec: `validations: [{expression: '` + tooCostly + `'}, {expression: 'false', message: after}]`, want: "cost limit exceeded"},
	{name: "cost of all", spec: `{variables: [{name: a, expression: '` + tooCostly + `'}], validations: [{expression: 'variables.a'}, {expression: 'false', message: after}]}`, want: "cost limit exceeded"},
	{name: "total budget", spec: "validations: [" + strings.Join(slices.Repeat([]string{"{expression: '" + costly + "'}"}, 26), ", ") + "]", want: "validation failed due to running out of cost budget"},
	{name: "total budget left for the message", spec: "validations: [" + strings.Repeat("{expression: '"+costly+"'},", 20) + "{expression: 'false', messageExpression: '" + costly + ` ? "a" : "b"'}]`, want: "422 Invalid: a"},

	{name: "total budget spent before the message", spec: "validations: [" + strings.Repeat("{expression: '"+costly+"'},", 24) + "{expression: 'false', messageExpression: '" + costly + ` ? "a" : "b"'}, {expression: 'false', messageExpression: '` + costly + ` ? "a" : "b"'}]`, want: "failed messageExpression: validation failed due to running out of cost budget"},

	{name: "namespaceObject", spec: `validations: [{expression: 'namespaceObject == null', messageExpression: 'namespaceObject.metadata.name + namespaceObject.metadata.labels.tier + namespaceObject.status.phase + namespaceObject.spec.finalizers[0] + string(namespaceObject.metadata.creationTimestamp)'}, {expression: 'namespaceObject == null', messageExpression: 'namespaceObject.metadata.labels["tier"] + namespaceObject.metadata.resourceVersion'}]`, want: "422 Invalid: "},
	{name: "namespaceObject by functions", spec: namespaceValidations(
		`string(namespaceObject.metadata.creationTimestamp) != ""`,
		`timestamp(namespaceObject.metadata.creationTimestamp) > timestamp("2020-01-01T00:00:00Z")`,
		`int(namespaceObject.metadata.creationTimestamp) > 1`, `namespaceObject.metadata.creationTimestamp.getFullYear() == 2026`,
		`namespaceObject.metadata.creationTimestamp < timestamp("2030-01-01T00:00:00Z")`,
		`namespaceObject.metadata.creationTimestamp == timestamp("2026-01-01T00:00:00Z")`,
		`namespaceObject.metadata.creationTimestamp + duration("1h") > timestamp("2020-01-01T00:00:00Z")`,
		`dyn(namespaceObject.metadata.creationTimestamp) == "2026-01-01T00:00:00Z"`,
		`string(dyn(namespaceObject).metadata.creationTimestamp) == "x"`, `type(dyn(namespaceObject)) == map`,
		`namespaceObject.metadata.UID == "5a1c"`, `dyn(namespaceObject.metadata).uid == "x"`, `has(namespaceObject.metadata.deletionTimestamp)`,
		`namespaceObject.metadata.deletionTimestamp == null`,
		`namespaceObject.metadata.generation == 0`,
		`has(namespaceObject.metadata.generateName)`,
		`namespaceObject.status.conditions.size() == 0`,
		`namespaceObject.metadata.?labels[?"tier"].orValue("") == "prod"`,
		`namespaceObject.metadata.labels.all(k, v, v == "prod")`,
		`"tier" in namespaceObject.metadata.labels`,
		`namespaceObject.metadata.labels == {"tier": "prod"}`,
		`namespaceObject.metadata.labels.no == "x"`,
		`namespaceObject.metadata.labels.map(k, namespaceObject.metadata.labels[k]) == ["prod"]`, `namespaceObject.spec.finalizers[1] == "x"`,
		`namespaceObject.metadata.finalizers.exists(f, f == "x")`,
		`namespaceObject == namespaceObject`,
		`optional.of(namespaceObject.metadata.name).orValue("") == "shop"`,
	), want: "no such overload"},
	{name: "namespaceObject by variables", spec: `{variables: [{name: labels, expression: 'namespaceObject.metadata.labels'}, ` +
		`{name: name, expression: 'namespaceObject.metadata.name'}, {name: any, expression: 'dyn(namespaceObject.metadata)'}, ` +
		`{name: at, expression: 'dyn(namespaceObject.metadata.creationTimestamp)'}], ` +
		namespaceValidations(`variables.labels.tier == "x"`, `variables.name == "x"`, `string(variables.any.creationTimestamp) == ""`,
			`string(variables.at) == ""`, `variables.at == timestamp("2026-01-01T00:00:00Z")`)[1:],
		want: "422 Invalid: "},
	{
		name: "namespaceObject in a variable with a time",
		spec: `{variables: [{name: at, expression: 'namespaceObject.metadata.creationTimestamp'}], ` +
			`validations: [{expression: 'string(variables.at) == ""'}]}`,
		want: "no such overload",
	},
	{
		name: "namespaceObject and matchConditions",
		spec: `{variables: [{name: name, expression: 'namespaceObject.metadata.name'}, ` +
			`{name: pod, expression: 'object.metadata.name'}], matchConditions: [{name: a, expression: 'variables.pod == "web"'}], ` +
			`validations: [{expression: 'variables.name == variables.pod', messageExpression: 'variables.name'}]}`,
		want: "422 Invalid: shop",
	},
	{name: "namespaceObject of a namespace", spec: `validations: [{expression: 'namespaceObject != null', message: none}]`, want: "422 Invalid: none", on: "create namespace"},
	{name: "namespaceObject of a cluster-scoped object", spec: `validations: [{expression: 'namespaceObject != null', message: none}]`, want: "422 Invalid: none", on: "create cluster role"},
	{name: "oldObject on create", spec: `validations: [{expression: 'oldObject != null', message: none}]`, want: "422 Invalid: none"},
	{name: "oldObject on update", spec: `validations: [{expression: 'object.metadata.labels.team == oldObject.metadata.labels.team', messageExpression: 'string(oldObject.metadata.labels.team)'}]`, want: "422 Invalid: old", on: "update pod"},
	{name: "object on delete", spec: `validations: [{expression: 'object != null', message: none}]`, want: "422 Invalid: none", on: "delete pod"},
	{name: "oldObject on delete", spec: `validations: [{expression: 'oldObject == null', messageExpression: 'string(oldObject.metadata.name)'}]`, want: "422 Invalid: web", on: "delete pod"},
	{name: "object is compared", spec: `validations: [{expression: 'object == oldObject', message: differs}]`, want: "422 Invalid: differs", on: "update pod"},

	{name: "user", spec: `validations: [{expression: 'false', messageExpression: 'request.userInfo.username + request.userInfo.uid + request.userInfo.groups.join(",") + request.userInfo.extra["scopes"].join("+")'}]`, want: "422 Invalid: aliceu1devs,system:authenticateda+b"},
	{name: "user has", spec: `validations: [{expression: 'false', messageExpression: 'string(has(request.userInfo.username)) + string(has(request.userInfo.uid)) + string(has(request.userInfo.groups)) + string(has(request.userInfo.extra)) + string("scopes" in request.userInfo.extra)'}]`, want: "422 Invalid: truetruetruetruetrue"},
	{name: "has on the request", spec: `validations: [{expression: 'false', messageExpression: 'string(has(request.name)) + string(has(request.namespace)) + string(has(request.subResource)) + string(has(request.dryRun)) + string(has(request.options)) + string(has(request.requestSubResource))'}]`, want: "422 Invalid: truetruefalsetruetruefalse"},
	{name: "options", spec: `validations: [{expression: 'request.options.kind == "X"', messageExpression: 'request.options.kind + request.options.apiVersion + string(has(request.options.fieldManager)) + string(has(request.options.dryRun))'}]`, want: "422 Invalid: CreateOptionsmeta.k8s.io/v1truefalse"},
	{name: "options of a deletion", spec: `validations: [{expression: 'request.options.gracePeriodSeconds > 10', messageExpression: 'string(request.options.gracePeriodSeconds + 1)'}]`, want: "422 Invalid: 6", on: "delete pod"},
	{name: "options by another name", spec: `validations: [{expression: 'false', messageExpression: 'string(dyn(request)["opt" + "ions"].kind)'}]`, want: "422 Invalid: CreateOptions"},
	{name: "options in the request as a whole", spec: `validations: [{expression: '!dyn(request).exists(k, k.startsWith("opt"))', message: found}]`, want: "422 Invalid: found"},
	{name: "dryRun", spec: `validations: [{expression: '!request.dryRun', message: dry}]`, want: "422 Invalid: dry", on: "dry run"},
	{name: "subresource", spec: `validations: [{expression: 'request.subResource == ""', messageExpression: 'request.subResource + request.requestSubResource + request.kind.kind'}]`, want: "422 Invalid: execexecPodExecOptions", on: "connect exec"},
	{name: "connect options", spec: `validations: [{expression: '!object.stdin', messageExpression: 'string(object.command[0])'}]`, want: "422 Invalid: sh", on: "connect exec"},
	{name: "converted kind", spec: `validations: [{expression: 'false', messageExpression: 'request.kind.version + request.requestKind.version + request.resource.version + request.requestResource.version + object.apiVersion'}]`, want: "422 Invalid: v1v1beta1v1v1beta1apps/v1", on: "converted deployment"},
	{name: "request", spec: `validations: [{expression: 'false', messageExpression: 'request.operation + request.name + request.namespace + request.kind.group + request.kind.kind + request.resource.resource'}]`, want: "422 Invalid: CREATEwebshopPodpods"},
	{name: "generateName", spec: `validations: [{expression: 'has(object.metadata.name)', messageExpression: 'string(object.metadata.generateName) + string(has(request.name))'}]`, want: "422 Invalid: web-", on: "generateName"},

	{name: "integers", spec: `validations: [{expression: 'type(object.spec.terminationGracePeriodSeconds) != int', messageExpression: 'string(object.spec.terminationGracePeriodSeconds)'}]`, want: "422 Invalid: 30"},
	{name: "int and double of a custom resource", spec: `validations: [{expression: 'type(object.spec.ratio) == int || type(object.spec.count) == double', messageExpression: 'string(type(object.spec.ratio) == double) + string(object.spec.count + 1) + string(object.spec.ratio * 2.0) + string(object.spec.big) + string(object.spec.tiny)'}]`, want: "422 Invalid: true419007199254740993", on: "custom resource"},
	{name: "int plus double", spec: `validations: [{expression: 'object.spec.ratio + object.spec.count > 1'}]`, want: "no such overload", on: "custom resource"},
	{name: "null of a custom resource", spec: `validations: [{expression: 'has(object.spec.none) && object.spec.none != null', messageExpression: 'string(has(object.spec.none)) + string(object.spec.mixed.size()) + string(object.spec.mixed[3] == null)'}]`, want: "422 Invalid: ", on: "custom resource"},
	{name: "quantity", spec: `validations: [{expression: 'object.spec.containers.all(c, quantity(c.resources.limits.cpu).isGreaterThan(quantity("1")))', messageExpression: '"limit " + string(object.spec.containers[0].resources.limits.cpu) + string(type(object.spec.containers[0].resources.limits.cpu) == string)'}]`, want: "422 Invalid"},
	{name: "int or string", spec: `validations: [{expression: 'object.spec.containers[0].livenessProbe.httpGet.port == 1', messageExpression: '"a " + object.spec.containers[0].livenessProbe.httpGet.port'}]`, want: "422 Invalid: a http"},
	{name: "int or string, int", spec: `validations: [{expression: 'object.spec.containers[1].readinessProbe.tcpSocket.port == 81', messageExpression: 'string(object.spec.containers[1].readinessProbe.tcpSocket.port + 1)'}]`, want: "422 Invalid: 81"},
	{name: "timestamp", spec: `validations: [{expression: 'timestamp(object.metadata.creationTimestamp) > timestamp("2030-01-01T00:00:00Z")', messageExpression: '"at " + object.metadata.creationTimestamp'}]`, want: "422 Invalid: at 2026-01-02T03:04:05Z"},
	{name: "absent and empty", spec: `validations: [{expression: 'false', messageExpression: 'string(has(object.spec.securityContext)) + string(has(object.spec.hostNetwork)) + string(has(object.spec.volumes)) + string(has(object.status)) + string(has(object.spec.containers[1].resources))'}]`, want: "422 Invalid: truefalse"},
	{name: "optional", spec: `validations: [{expression: 'object.?spec.?hostNetwork.orValue(true) == false', messageExpression: 'object.metadata.?labels["team"].orValue("none")'}]`, want: "422 Invalid: shop"},
	{name: "index out of range", spec: `validations: [{expression: 'object.spec.containers[7].name == ""'}]`, want: "index out of bounds"},
	{name: "map of labels", spec: `validations: [{expression: 'object.metadata.labels.all(k, v, v == "shop")', messageExpression: 'string(object.metadata.labels.size())'}]`, want: "422 Invalid: 2"},
	{name: "library", spec: `validations: [{expression: 'url("https://example.com:80/").getPort() == "81" || ip("10.0.0.1").family() == 6 || semver("1.2.3").isLessThan(semver("1.0.0"))', messageExpression: '"%s".format([object.metadata.name.upperAscii()])'}]`, want: "422 Invalid: WEB"},
	{name: "two-variable comprehension", spec: `validations: [{expression: 'object.spec.containers.exists(i, c, i == 1 && c.name == "app")', message: order}]`, want: "422 Invalid: order"},
	{name: "object as a whole", spec: `validations: [{expression: 'dyn(object).exists(k, k == "status") && object.metadata == {}', messageExpression: 'string(object.size()) + string(object.all(k, k != ""))'}]`, want: "422 Invalid"},
}
