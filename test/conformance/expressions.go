package conformance

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// expressions are written at random for one policy. Nothing in them depends on
// what two API servers never agree on: uids, times, versions of resources.
type expressions struct {
	author
	variables    []variable
	params       *admissionregistrationv1.ParamKind
	target       target
	noAuthorizer bool
}

// variablesOf are references to the variables of one type.
func (e expressions) variablesOf(kind byte) []string {
	var out []string
	for _, v := range e.variables {
		if v.kind == kind {
			out = append(out, "variables."+v.name)
		}
	}
	return out
}

// text is an expression of type string. Letters alone are vowels: generated names, which
// differ between the two sides, have none.
func (e expressions) text(depth int) string {
	if depth > 0 && e.IntN(3) == 0 {
		return pick(e.author,
			e.text(depth-1)+" + "+e.text(depth-1),
			"("+e.truth(depth-1)+" ? "+e.text(depth-1)+" : "+e.text(depth-1)+")",
			"string("+e.number(depth-1)+")",
			e.text(0)+".upperAscii()",
			`"%s/%d".format([`+e.text(0)+", "+e.number(0)+"])",
		)
	}
	all := []string{
		`"u"`, `""`, `" a b "`, `"l1\nl2"`, "request.operation", "request.name", "request.namespace", "request.userInfo.username",
		"request.kind.kind", "request.kind.version", "request.subResource", "request.requestSubResource",
		"request.resource.version", "request.resource.resource",
		"request.requestKind.version", "request.requestResource.version", "string(request.options.kind)", "string(object.metadata.name)",
		"string(object.metadata.labels.team)", "string(oldObject.metadata.labels.team)", "string(object.kind)", "string(object.apiVersion)",
		"namespaceObject.metadata.name", `namespaceObject.metadata.labels["tier"]`, "namespaceObject.metadata.labels.?tier.orValue('none')",
		"string(object.metadata.?generateName.orValue('none'))", "string(object.absent)",
		`request.userInfo.groups.join("/")`, "string(has(request.dryRun))",
		`"u".replace("u", "i")`, `["b", "a"].join("-")`, `string(quantity("1k").asInteger())`, "string(type(object))",
		"string(type(object.spec.ratio))",
	}
	all = append(all, e.target.texts...)
	if e.chance(4) {
		all = optionalTexts()
	}
	all = append(all, e.variablesOf('t')...)
	if e.params != nil {
		all = append(all, "string(params.metadata.name)", "string(params.data.team)", "string(params.spec.allowed[0])",
			"string(params.kind)", "string(params == null)")
	}
	return pick(e.author, all...)
}

// number is an expression of type int.
func (e expressions) number(depth int) string {
	if depth > 0 && e.IntN(3) == 0 {
		return pick(e.author,
			e.number(depth-1)+" "+pick(e.author, "+", "-", "*", "/", "%")+" "+e.number(0),
			"("+e.truth(depth-1)+" ? "+e.number(depth-1)+" : "+e.number(depth-1)+")",
			"("+e.text(depth-1)+").size()",
		)
	}
	all := []string{
		"0", "1", "3", "int(object.spec.replicas)", "object.metadata.labels.size()", "int(request.options.gracePeriodSeconds)",
		"size(request.userInfo.groups)", "9223372036854775807", "int(oldObject.spec.replicas)", "size(request.name)",
		"int('12')", "int(object.spec.absent)",
	}
	all = append(all, e.target.numbers...)
	if e.chance(4) {
		all = optionalNumbers()
	}
	all = append(all, e.variablesOf('n')...)
	if e.params != nil {
		all = append(all, "int(params.data.max)", "int(params.spec.max)", "params.data.size()")
	}
	return pick(e.author, all...)
}

// truth is an expression of type bool.
func (e expressions) truth(depth int) string {
	if depth > 0 && e.IntN(3) > 0 {
		return pick(e.author,
			"("+e.truth(depth-1)+" "+pick(e.author, "&&", "||", "==", "!=")+" "+e.truth(depth-1)+")",
			"!("+e.truth(depth-1)+")",
			e.text(depth-1)+" "+pick(e.author, "==", "!=")+" "+e.text(depth-1),
			e.number(depth-1)+" "+pick(e.author, "==", "!=", "<", ">=")+" "+e.number(depth-1),
			e.text(0)+pick(e.author, ".contains", ".startsWith", ".matches", ".endsWith")+"("+e.text(0)+")",
			"object.metadata.labels.all(k, k != "+e.text(0)+")",
			"dyn("+e.number(0)+") == "+pick(e.author, "1.0", "3", "object.spec.ratio"),
		)
	}
	all := []string{
		"true", "false", "false", "object == null", "oldObject != null", "namespaceObject == null",
		"has(object.metadata.labels.team)", "request.dryRun",
		"object == oldObject", "object.absent == 1", "has(request.options.fieldManager)", "has(object.absent)",
		"object.metadata.labels.team == 'shop'",
		"'devs' in request.userInfo.groups", "type(object.spec.replicas) == int", "namespaceObject.spec.finalizers == ['kubernetes']",
		"request.operation in ['CREATE', 'CONNECT']", "has(request.userInfo.extra.scopes)", "object.?metadata.?labels[?'team'].hasValue()",
		"has(object.metadata.annotations)", "object.metadata == oldObject.metadata", "has(request.subResource)", "has(request.name)",
	}
	all = append(all, e.target.truths...)
	if e.chance(4) {
		all = optionalTruths()
	}
	all = append(all, e.variablesOf('b')...)
	if e.params != nil {
		all = append(all, "params == null", "has(params.data)", "params.data.team == 'shop'",
			"'red' in params.spec.allowed", "int(params.spec.max) > 2")
	}
	if !e.noAuthorizer && e.chance(3) {
		all = append(all, authorizations()...)
	}
	return pick(e.author, all...)
}

// The engines of Kubernetes versions differ in what they do with receivers that are not
// optional, and in some functions.
func optionalTexts() []string {
	return []string{
		`string(object.metadata.name.orValue("u"))`, `string(object.metadata.labels.team.orValue("u"))`,
		`string(object.?metadata.labels.?team.orValue("u"))`,
		`string(oldObject.?metadata.name.orValue("u"))`, `string(oldObject.orValue("u"))`,
		`string(dyn(object.metadata.name.or(optional.of("u"))))`,
		`object.?absent.or(object.metadata.?name).orValue("u")`, `object.?metadata.optMap(m, string(m.name)).orValue("u")`,
		`string(object.metadata.labels.map(k, k.orValue("u")).exists(k, k == "team"))`,
		`string(object.metadata.?labels.optFlatMap(l, l[?"team"]).orValue("u"))`,
	}
}

func optionalNumbers() []string {
	return []string{
		"int(object.spec.replicas.orValue(3))", "int(object.?spec.?replicas.orValue(3))",
		"int(object.spec.?absent.orValue('7'))", "[1, 2].first().orValue(3)",
		"lists.range(-1).size()", "lists.range(2).size()", "duration(object.spec.replicas).getSeconds()",
		"object.metadata.labels.orValue({}).size()",
		"optional.unwrap([optional.of(1), optional.none()]).size()",
	}
}

func optionalTruths() []string {
	return []string{
		"dyn(object.spec.orValue(null)) == null", "object.?absent.orValue(null) == null", "null == object.absent",
		"oldObject == null", "object.metadata != null",
		"dyn(object.?metadata) == null", "object.spec.replicas != null", "[null] == [oldObject]",
		"{'a': null} == {'a': object}", "null in [object.spec]",
		"object.?spec == optional.none()", "optional.ofNonZeroValue(request.name).hasValue()",
		"object.?absent.value() == 1", "object.metadata.hasValue()", "has(object.?metadata.name)",
		"type(null) == type(oldObject)", "object.spec.or(object.?metadata).hasValue()",
	}
}

func authorizations() []string {
	return strings.Split(strings.TrimSpace(`
authorizer.path("/healthz").check("get").allowed()
authorizer.path("/metrics").check("get").allowed()
authorizer.group("").resource("pods").namespace("{ns}").check("create").allowed()
authorizer.group("").resource("pods").subresource("exec").namespace("{ns}").name("web").check("breakglass").allowed()
authorizer.group("conformance.test").resource("widgets").check("paint").allowed()
authorizer.group("conformance.test").resource("widgets").check("paint").reason() == ""
authorizer.group("conformance.test").resource("widgets").check("paint").errored()
authorizer.requestResource.check("break").allowed()
authorizer.requestResource.check("update").allowed()
authorizer.requestResource.subresource("status").check("update").allowed()
authorizer.serviceAccount("{ns}", "default").group("").resource("pods").check("get").allowed()
authorizer.serviceAccount("{ns}", "default").path("/healthz").check("get").reason() != "no"
authorizer.group("").resource("secrets").fieldSelector("metadata.name=a").check("list").allowed()
authorizer.group("").resource("secrets").labelSelector("a in (").check("list").errored()
`), "\n")
}
