package policy

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// actionSets are what bindings without validationActions of their own are tried with.
var actionSets = map[string][]admissionregistrationv1.ValidationAction{
	"deny":       {admissionregistrationv1.Deny},
	"warn":       {admissionregistrationv1.Warn},
	"audit":      {admissionregistrationv1.Audit},
	"deny+audit": {admissionregistrationv1.Deny, admissionregistrationv1.Audit},
	"warn+audit": {admissionregistrationv1.Warn, admissionregistrationv1.Audit},
}

// withActions gives the bindings without actions the ones named, and a policy
// without bindings one that has them.
func withActions(p *v1alpha1.WebhookPolicy, actions []admissionregistrationv1.ValidationAction) *v1alpha1.WebhookPolicy {
	p = p.DeepCopy()
	if len(p.Spec.Bindings) == 0 {
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "b"}}
	}
	for i := range p.Spec.Bindings {
		if b := &p.Spec.Bindings[i]; len(b.ValidationActions) == 0 {
			b.ValidationActions = actions
		}
	}
	return p
}

const (
	ofConfigMaps = "paramKind: {apiVersion: v1, kind: ConfigMap}\n"
	ofLimits     = "paramKind: {apiVersion: example.com/v1, kind: Limit}\n"
	tooFew       = `validations: [{expression: 'int(params.data.max) > 2', messageExpression: '"at most " + params.data.max + " by " + params.metadata.name'}]` + "\n"
	anyParam     = `validations: [{expression: 'params == null', messageExpression: 'string(params.metadata.name)'}]` + "\n"
)

func bound(bindings ...string) string { return "bindings: [" + strings.Join(bindings, ", ") + "]" }

var paramCases = []nativeCase{
	{name: "by name", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: second, parameterNotFoundAction: Deny}}`), want: "422 Invalid: at most 2 by second"},
	{name: "by name, passes", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: third, parameterNotFoundAction: Deny}}`), want: "allowed"},
	{name: "by name in another namespace", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: first, namespace: office, parameterNotFoundAction: Deny}}`), want: "allowed"},
	{name: "by selector", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {matchLabels: {set: a}}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: at most 1 by first"},
	{name: "by empty selector", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Allow}}`), want: "422 Invalid: at most 1 by first"},
	{name: "by selector, all pass", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {matchLabels: {set: b}}, parameterNotFoundAction: Deny}}`), want: "allowed"},
	{name: "by malformed selector", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {matchExpressions: [{key: a, operator: Near}]}, parameterNotFoundAction: Allow}}`), want: `failed to configure binding: "Near" is not a valid label selector operator`},
	{name: "missing, Allow", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: none, parameterNotFoundAction: Allow}}`), want: "allowed"},
	{name: "missing, Deny", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: none, parameterNotFoundAction: Deny}}`), want: "422 Invalid: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
	{name: "none selected, Allow", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {matchLabels: {set: z}}, parameterNotFoundAction: Allow}}`), want: "allowed"},
	{name: "none selected, Deny", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {selector: {matchLabels: {set: z}}, parameterNotFoundAction: Deny}}`), want: "failed to configure binding: no params found"},
	{name: "namespaced for a cluster-scoped request", on: "create cluster role", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: first, parameterNotFoundAction: Allow}}`), want: "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"},
	{name: "namespaced for a cluster-scoped request, namespace given", on: "create cluster role", spec: ofConfigMaps + tooFew + bound(`{name: b, paramRef: {name: second, namespace: shop, parameterNotFoundAction: Allow}}`), want: "422 Invalid: at most 2 by second"},
	{name: "cluster-scoped", spec: ofLimits + `validations: [{expression: 'params.spec.max > 5', messageExpression: '"at most " + string(params.spec.max) + params.apiVersion'}]` + "\n" + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: at most 2example.com/v1"},
	{name: "cluster-scoped for a cluster-scoped request", on: "create cluster role", spec: ofLimits + `validations: [{expression: 'params.spec.max > 5', message: low}]` + "\n" + bound(`{name: b, paramRef: {name: low, parameterNotFoundAction: Deny}}`), want: "422 Invalid: low"},
	{name: "cluster-scoped with a namespace", spec: ofLimits + anyParam + bound(`{name: b, paramRef: {name: low, namespace: shop, parameterNotFoundAction: Allow}}`), want: "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"},
	{name: "name and selector", spec: ofConfigMaps + anyParam + bound(`{name: b, paramRef: {name: first, selector: {}, parameterNotFoundAction: Allow}}`), want: "failed to configure binding: paramRef.name and paramRef.selector are mutually exclusive"},
	{name: "neither name nor selector", spec: ofConfigMaps + anyParam + bound(`{name: b, paramRef: {parameterNotFoundAction: Allow}}`), want: "failed to configure binding: one of name or selector must be provided"},
	{name: "unknown kind", spec: "paramKind: {apiVersion: v1, kind: Nope}\n" + anyParam + bound(`{name: b, paramRef: {name: first, parameterNotFoundAction: Allow}}`), want: "failed to configure binding: paramKind kind `&ParamKind{APIVersion:v1,Kind:Nope,}` not known"},
	{name: "binding without paramRef", spec: ofConfigMaps + anyParam + bound(`{name: b}`), want: "allowed"},
	{name: "binding without paramRef reads them", spec: ofConfigMaps + tooFew + bound(`{name: b}`), want: "422 Invalid: expression 'int(params.data.max) > 2' resulted in error: no such key: data"},
	{name: "apiVersion and kind of a built-in kind", spec: ofConfigMaps + `validations: [{expression: 'false', messageExpression: 'params.apiVersion + params.kind + string(params.data.size()) + string(has(params.binaryData)) + string(has(params.metadata.creationTimestamp))'}]` + "\n" + bound(`{name: b, paramRef: {name: first, parameterNotFoundAction: Deny}}`), want: "422 Invalid: v1ConfigMap1falsefalse"},
	{name: "values of a custom kind", spec: ofLimits + `validations: [{expression: 'false', messageExpression: 'string(params.spec.names[1] == null) + string(params.spec.names[2]) + string(type(params.spec.max) == int)'}]` + "\n" + bound(`{name: b, paramRef: {name: low, parameterNotFoundAction: Deny}}`), want: "422 Invalid: true1.5true"},
	{name: "in a match condition", spec: ofConfigMaps + `matchConditions: [{name: c, expression: 'params.metadata.name != "first"'}]` + "\n" + tooFew + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: at most 2 by second"},
	{name: "in a match condition that fails", spec: ofConfigMaps + `matchConditions: [{name: c, expression: 'params.data.nope == ""'}]` + "\n" + tooFew + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: expression 'params.data.nope == \"\"' resulted in error: no such key: nope"},
	{name: "in variables", spec: ofConfigMaps + `variables: [{name: most, expression: 'int(params.data.max)'}, {name: twice, expression: 'variables.most * 2'}]` + "\n" + `validations: [{expression: 'variables.twice > 4', messageExpression: '"twice " + string(variables.twice)'}]` + "\n" + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: twice 2"},
	{name: "in variables, one param fails", spec: ofConfigMaps + `variables: [{name: share, expression: '6 / (int(params.data.max) - 2)'}]` + "\n" + `validations: [{expression: 'variables.share > 4', messageExpression: 'string(variables.share)'}]` + "\n" + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: "422 Invalid: -6"},
	{name: "read twice", spec: ofConfigMaps + tooFew + bound(`{name: one, paramRef: {name: first, parameterNotFoundAction: Deny}}`, `{name: two, paramRef: {name: first, parameterNotFoundAction: Deny}}`), want: "with binding 'one' denied request: at most 1 by first"},
	{name: "one binding fails, one denies", spec: ofConfigMaps + tooFew + bound(`{name: one, paramRef: {name: none, parameterNotFoundAction: Deny}}`, `{name: two, paramRef: {name: first, parameterNotFoundAction: Deny}}`), want: "with binding 'one' denied request: failed to configure binding: no params"},
	{name: "bindings with and without", spec: ofConfigMaps + anyParam + bound(`{name: one}`, `{name: two, paramRef: {name: first, parameterNotFoundAction: Deny}}`, `{name: three}`), want: "with binding 'two' denied request: first"},
	{name: "a binding of each action", spec: ofConfigMaps + tooFew + bound(`{name: one, validationActions: [Warn], paramRef: {selector: {}, parameterNotFoundAction: Deny}}`, `{name: two, validationActions: [Audit], paramRef: {name: none, parameterNotFoundAction: Allow}}`, `{name: three, validationActions: [Deny, Audit], paramRef: {name: second, parameterNotFoundAction: Deny}}`), want: "with binding 'three' denied request: at most 2 by second"},
	{name: "paramRef without paramKind", spec: "validations: [{expression: 'false', message: m}]\n" + bound(`{name: b, paramRef: {name: first, parameterNotFoundAction: Deny}}`), want: "422 Invalid: m"},
}

const no = "validations: [{expression: 'false', message: m}]\n"

var bindingCases = []nativeCase{
	{name: "namespace selector", spec: no + bound(`{name: b, matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}`), want: "422 Invalid: m"},
	{name: "namespace selector on a cluster-scoped request", on: "create cluster role", spec: no + bound(`{name: b, matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}`), want: "422 Invalid: m"},
	{name: "namespace selector on a namespace", on: "create namespace", spec: no + bound(`{name: b, matchResources: {namespaceSelector: {matchLabels: {team: shop}}}}`), want: "422 Invalid: m"},
	{name: "another namespace selector", spec: no + bound(`{name: b, matchResources: {namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]}}}`), want: "allowed"},
	{name: "malformed namespace selector", spec: no + bound(`{name: b, matchResources: {namespaceSelector: {matchExpressions: [{key: tier, operator: Near}]}}}`), want: `failed to configure binding: `},
	{name: "object selector", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchLabels: {team: shop}}}}`), want: "422 Invalid: m"},
	{name: "object selector on an update", on: "update pod", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchExpressions: [{key: team, operator: NotIn, values: [shop]}]}}}`), want: "422 Invalid: m"},
	{name: "object selector on a deletion", on: "delete pod", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchExpressions: [{key: team, operator: Exists}]}}}`), want: "422 Invalid: m"},
	{name: "object selector on what has no labels", on: "connect exec", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}}`), want: "allowed"},
	{name: "another object selector", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchLabels: {team: other}}}}`), want: "allowed"},
	{name: "malformed object selector", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchLabels: {"a b": c}}}}`), want: `failed to configure binding: Internal error occurred: key: Invalid value: "a b"`},
	{name: "malformed selector of another resource", spec: no + bound(`{name: b, matchResources: {objectSelector: {matchLabels: {"a b": c}}, resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [nodes]}]}}`), want: "allowed"},
	{name: "rules", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}`), want: "422 Invalid: m"},
	{name: "rules of another operation", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE, DELETE, CONNECT], resources: [pods, pods/exec]}]}}`), want: "allowed"},
	{name: "rules of a subresource", on: "connect exec", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/exec']}]}}`), want: "422 Invalid: m"},
	{name: "rules with names", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*'], resourceNames: [other, web]}]}}`), want: "422 Invalid: m"},
	{name: "rules with names of an object without one", on: "generateName", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*'], resourceNames: [web]}]}}`), want: "allowed"},
	{name: "rules of the version that was sent", on: "converted deployment", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}]}}`), want: "422 Invalid: m"},
	{name: "rules of that version, Exact", on: "converted deployment", spec: no + bound(`{name: b, matchResources: {matchPolicy: Exact, resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}]}}`), want: "allowed"},
	{name: "rules of the client's version, Exact", on: "converted deployment", spec: no + bound(`{name: b, matchResources: {matchPolicy: Exact, resourceRules: [{apiGroups: [apps], apiVersions: [v1beta1], operations: ['*'], resources: [deployments]}]}}`), want: "422 Invalid: m"},
	{name: "excluded", spec: no + bound(`{name: b, matchResources: {excludeResourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}`), want: "allowed"},
	{name: "excluded by name", spec: no + bound(`{name: b, matchResources: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}], excludeResourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods], resourceNames: [other]}]}}`), want: "422 Invalid: m"},
	{name: "excluded in another version", on: "converted deployment", spec: no + bound(`{name: b, matchResources: {excludeResourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}]}}`), want: "allowed"},
	{name: "excluded in another version, Exact", on: "converted deployment", spec: no + bound(`{name: b, matchResources: {matchPolicy: Exact, excludeResourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}]}}`), want: "422 Invalid: m"},
	{name: "empty matchResources", spec: no + bound(`{name: b, matchResources: {}}`), want: "422 Invalid: m"},
	{name: "the second matches", spec: no + bound(`{name: one, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {team: other}}}}`, `{name: two, matchResources: {objectSelector: {matchLabels: {team: shop}}}}`, `{name: three, validationActions: [Warn, Audit]}`), want: "with binding 'two' denied request: m"},
	{name: "errors, and none of them matches", spec: "validations: [{expression: 'object.nope == 1'}]\n" + bound(`{name: one, matchResources: {objectSelector: {matchLabels: {team: other}}}}`), want: "allowed"},
	{name: "errors, and one of them matches", spec: "validations: [{expression: 'object.nope == 1'}]\n" + bound(`{name: one, matchResources: {objectSelector: {matchLabels: {team: other}}}}`, `{name: two, matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}}`), want: "with binding 'two' denied request: expression 'object.nope == 1'"},
	{name: "cost is counted for each binding anew", spec: "validations: [" + strings.TrimSuffix(strings.Repeat("{expression: '"+costly+"'},", 15), ",") + "]\n" + bound(`{name: one}`, `{name: two, matchResources: {}}`, `{name: three}`), want: "allowed"},
}

// check is a question to the authorizer as an expression.
func check(verb string) string { return `authorizer.requestResource.check("` + verb + `")` }

var authorizerCases = []nativeCase{
	{name: "allowed", spec: `validations: [{expression: '` + check("allow") + `.allowed()'}]`, want: "allowed"},
	{name: "denied", spec: `validations: [{expression: '` + check("deny") + `.allowed()'}]`, want: "422 Invalid: failed expression"},
	{name: "no opinion", spec: `validations: [{expression: '` + check("none") + `.allowed()'}]`, want: "422 Invalid: failed expression"},
	{name: "error, asked whether allowed", spec: `validations: [{expression: '` + check("fail") + `.allowed()'}]`, want: "422 Invalid: failed expression"},
	{name: "error, asked about", spec: `validations: [{expression: '` + check("fail") + `.errored() && ` + check("fail") + `.error() == "the authorizer is gone"'}]`, want: "allowed"},
	{name: "error of an answer", spec: `validations: [{expression: '` + check("partly") + `.allowed() && ` + check("partly") + `.errored()'}]`, want: "allowed"},
	{name: "no error", spec: `validations: [{expression: '!` + check("allow") + `.errored() && ` + check("allow") + `.error() == ""'}]`, want: "allowed"},
	{name: "reason", spec: `variables: [{name: r, expression: '` + check("deny") + `.reason()'}]` + "\n" + `validations: [{expression: 'variables.r == ""', messageExpression: '"why"'}]`, want: "422 Invalid: why"},
	{name: "reason is in the message", spec: `variables: [{name: r, expression: '` + check("deny") + `.reason()'}]` + "\n" + `validations: [{expression: 'false', message: m, messageExpression: 'variables.r'}]`, want: "422 Invalid: m"},
	{name: "what is asked", spec: `validations: [{expression: '{"a": true}[` + check("deny-1") + `.reason()]'}]`, want: "no such key: &{alice u1 [devs system:authenticated] map[scopes:[a b]]}deny-1shop*podswebtrue"},
	{name: "another resource", spec: `validations: [{expression: '{"a": true}[authorizer.group("apps").resource("deployments").subresource("scale").namespace("x").name("n").check("allow").reason()]'}]`, want: "no such key: &{alice"},
	{name: "another resource with selectors", spec: `validations: [{expression: '{"a": true}[authorizer.group("").resource("pods").fieldSelector("spec.nodeName=n").labelSelector("a in (b)").check("allow").reason()]'}]`, want: "no such key: &{alice"},
	{name: "a path", spec: `validations: [{expression: '{"a": true}[authorizer.path("/healthz").check("allow").reason()]'}]`, want: "no such key: &{alice"},
	{name: "another user", spec: `validations: [{expression: '{"a": true}[authorizer.serviceAccount("shop", "robot").group("").resource("secrets").check("deny").reason()]'}]`, want: "no such key: &{system:serviceaccount:shop:robot"},
	{name: "in a match condition", spec: `matchConditions: [{name: c, expression: '!` + check("allow") + `.allowed()'}]` + "\n" + no, want: "allowed"},
	{name: "in a match condition that holds", spec: `matchConditions: [{name: c, expression: '` + check("allow") + `.allowed()'}]` + "\n" + no, want: "422 Invalid: m"},
	{name: "in a match condition by a variable", spec: `variables: [{name: may, expression: 'authorizer.path("/x").check("deny").allowed()'}]` + "\n" + `matchConditions: [{name: c, expression: 'variables.may'}]` + "\n" + no, want: "allowed"},
	{name: "by a variable in a message", spec: `variables: [{name: may, expression: '` + check("allow") + `.allowed()'}]` + "\n" + `validations: [{expression: 'false', message: m, messageExpression: '"may " + string(variables.may)'}]`, want: "422 Invalid: m"},
	{name: "many questions out of budget", spec: `validations: [{expression: '[` + strings.TrimSuffix(strings.Repeat("1,", 40), ",") + `].all(x, ` + check("allow") + `.allowed())'}]`, want: "cost"},
	{name: "as a value", spec: `validations: [{expression: 'type(dyn(authorizer)) == string'}]`, want: "422 Invalid: failed expression"},
}

const yes = "validations: [{expression: 'true'}]\n"

func annotated(annotations ...string) string {
	return "auditAnnotations: [" + strings.Join(annotations, ", ") + "]\n"
}

var annotationCases = []nativeCase{
	{name: "value", spec: yes + annotated(`{key: a, valueExpression: '"v " + request.name'}`), want: `a="v web"`},
	{name: "alone", spec: annotated(`{key: a, valueExpression: '"v"'}`), want: `a="v"`},
	{name: "space around it", spec: yes + annotated(`{key: a, valueExpression: '"  v\n "'}`), want: `a="v"`},
	{name: "null", spec: yes + annotated(`{key: a, valueExpression: 'null'}`), want: "no annotations"},
	{name: "empty", spec: yes + annotated(`{key: a, valueExpression: '" \n"'}`), want: "no annotations"},
	{name: "error", spec: yes + annotated(`{key: a, valueExpression: 'string(object.nope)'}`), want: "422 Invalid: expression 'string(object.nope)' resulted in error: no such key: nope"},
	{name: "error beside a value", spec: yes + annotated(`{key: a, valueExpression: '"v"'}`, `{key: b, valueExpression: 'string(object.nope)'}`, `{key: c, valueExpression: '"w"'}`), want: `a="v" c="w" 422 Invalid: expression 'string(object.nope)'`},
	{name: "error beside a denial", spec: no + annotated(`{key: a, valueExpression: 'string(object.nope)'}`), want: "422 Invalid: m"},
	{name: "value beside a denial", spec: no + annotated(`{key: a, valueExpression: '"v"'}`), want: `a="v" 422 Invalid: m`},
	{name: "skipped", spec: "matchConditions: [{name: c, expression: 'false'}]\n" + yes + annotated(`{key: a, valueExpression: '"v"'}`), want: "no annotations"},
	{name: "long", spec: yes + annotated(`{key: a, valueExpression: '["`+strings.Repeat("abcdefgh", 100)+`"].map(x, x+x+x+x+x+x+x+x+x+x+x+x+x+x)[0]'}`), want: `a="abcdefgh`},
	{name: "long, in two bindings", spec: yes + annotated(`{key: a, valueExpression: '["`+strings.Repeat("abcdefgh", 100)+`"].map(x, x+x+x+x+x+x+x+x+x+x+x+x+x+x)[0] + "x"'}`) + bound("{name: one}", "{name: two}"), want: `a="abcdefgh`},
	{name: "of several params", spec: ofConfigMaps + yes + annotated(`{key: a, valueExpression: '"max " + params.data.max'}`, `{key: b, valueExpression: 'string(params.metadata.labels.set)'}`) + bound(`{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}`), want: `a="max 1, max 2, max 3" b="a, b"`},
	{name: "of several bindings", spec: ofConfigMaps + yes + annotated(`{key: a, valueExpression: 'params == null ? "none" : string(params.data.max)'}`) + bound(`{name: one, paramRef: {name: third, parameterNotFoundAction: Deny}}`, `{name: two}`, `{name: three, paramRef: {name: first, parameterNotFoundAction: Deny}}`, `{name: four}`), want: `a="3, none, 1"`},
	{name: "of a binding that does not match", spec: yes + annotated(`{key: a, valueExpression: '"v"'}`) + bound(`{name: one, matchResources: {objectSelector: {matchLabels: {team: other}}}}`), want: "no annotations"},
	{name: "variables", spec: "variables: [{name: v, expression: 'object.metadata.?labels.team.orValue(\"none\")'}]\n" + yes + annotated(`{key: a, valueExpression: '"team " + variables.v'}`), want: `a="team shop"`},
	{name: "namespaceObject", spec: yes + annotated(`{key: a, valueExpression: 'namespaceObject.metadata.labels.tier'}`), want: `a="prod"`},
	{name: "authorizer is declared, and not there", spec: yes + annotated(`{key: a, valueExpression: '`+check("allow")+`.allowed() ? "may" : "may not"'}`), want: "no such attribute(s): authorizer.requestResource"},
	{name: "authorizer by a variable", spec: "variables: [{name: may, expression: 'authorizer.path(\"/x\").check(\"allow\").allowed()'}]\n" + yes + annotated(`{key: a, valueExpression: 'string(variables.may)'}`), want: `composited variable "may" fails to evaluate: no such attribute(s): authorizer`},
	{name: "budget of their own", spec: "validations: [" + strings.TrimSuffix(strings.Repeat("{expression: '"+costly+"'},", 20), ",") + "]\n" + annotated(`{key: a, valueExpression: '`+costly+` ? "v" : "w"'}`), want: `a="v"`},
	{name: "out of budget", spec: no + annotated(strings.Split(strings.TrimSuffix(strings.Repeat(`{key: a, valueExpression: '`+costly+` ? "v" : "w"'};`, 26), ";"), ";")...), want: "422 Invalid: validation failed due to running out of cost budget"},
	{name: "too costly", spec: yes + annotated(`{key: a, valueExpression: '`+tooCostly+` ? "v" : "w"'}`), want: "cost limit"},
}

// summary is an outcome with its annotations, but for failures, ahead.
func (o outcome) summary() string {
	var out strings.Builder
	for _, key := range []string{"p.a", "p.b", "p.c"} {
		if value, ok := o.Annotations[key]; ok {
			fmt.Fprintf(&out, "%s=%q ", strings.TrimPrefix(key, "p."), value)
		}
	}
	if out.Len() == 0 && o.Allowed {
		return "allowed, no annotations"
	}
	return out.String() + o.String()
}

// TestSameAnswerAsKubernetesWithBindings puts policies with params, several
// bindings, an authorizer and audit annotations before every kind of request.
func TestSameAnswerAsKubernetesWithBindings(t *testing.T) {
	inputs := testInputs(t)
	for set, cases := range map[string][]nativeCase{"params": paramCases, "bindings": bindingCases, "authorizer": authorizerCases, "annotations": annotationCases} {
		for _, tc := range cases {
			t.Run(set+"/"+tc.name, func(t *testing.T) {
				p := policyFrom(t, "p", tc.spec)
				for _, failurePolicy := range failurePolicies {
					p := variant(p, p.Spec.Bindings, failurePolicy)
					oracle := newOracle([]*v1alpha1.WebhookPolicy{p}, testWorld)
					for effect, actions := range actionSets {
						policies := []*v1alpha1.WebhookPolicy{withActions(p, actions)}
						oracle, group := oracle.with(policies), groupOf(t, policies)
						for name, in := range inputs {
							got := compareFor(t, fmt.Sprintf("%s/%s/%s", failurePolicy, effect, name), oracle, group, in)
							if failurePolicy == admissionregistrationv1.Fail && effect == "deny" && name == tc.request() {
								const prefix = "WebhookPolicy 'p' with binding 'b' denied request: "
								if text := strings.Replace(got.summary(), prefix, "", 1); !strings.Contains(text, tc.want) || tc.want == "" {
									t.Errorf("native answer = %.600s, want %s", text, tc.want)
								}
							}
						}
					}
				}
			})
		}
	}
}

// compareFor compares under a name of its own.
func compareFor(t *testing.T, name string, oracle *oracle, group *Group, in input) (out outcome) {
	t.Helper()
	t.Run(name, func(t *testing.T) { out = compare(t, oracle, group, in) })
	return out
}

// TestSameAnswerAsKubernetesForVersions lets the native engine say in which
// version a request is sent for a policy's rules, and then compares what the
// two make of the rules that exclude.
func TestSameAnswerAsKubernetesForVersions(t *testing.T) {
	rule := func(version, operations, names string) string {
		return "{apiGroups: [apps], apiVersions: ['" + version + "'], operations: ['" + operations + "'], resources: [deployments]" + names + "}"
	}
	base := testInputs(t)["converted deployment"]
	matched, excluded := 0, 0
	for _, policy := range []string{"Equivalent", "Exact"} {
		for _, include := range []string{"v1", "v1beta1", "*"} {
			for _, exclude := range []string{"", rule("v1", "*", ""), rule("v1beta1", "*", ""), rule("v1beta2", "*", ""), rule("*", "CREATE", ""), rule("v1", "*", ", resourceNames: [web]"), rule("v1beta1", "UPDATE", ", resourceNames: [other]")} {
				for _, version := range []string{"v1", "v1beta1"} {
					name := fmt.Sprintf("%s/%s/without %s/request in %s", policy, include, exclude, version)
					t.Run(name, func(t *testing.T) {
						p := policyFrom(t, "p", no+"bindings: [{name: b, validationActions: [Deny]}]\nmatchConstraints: {matchPolicy: "+policy+", resourceRules: ["+rule(include, "*", "")+"]}")
						in := base
						in.resource.Version, in.kind.Version = version, version
						in.object, in.old = deployment(t, version), deployment(t, version)
						sent, resource, kind, err := newOracle([]*v1alpha1.WebhookPolicy{p}, testWorld).engine.Matches(in.attributes())
						if err != nil {
							t.Fatal(err)
						}
						if !sent {
							return // the API server makes no call
						}
						in.sentResource, in.sentKind = resource, kind
						if exclude != "" {
							p = policyFrom(t, "p", no+"bindings: [{name: b, validationActions: [Deny]}]\nmatchConstraints: {matchPolicy: "+policy+", resourceRules: ["+rule(include, "*", "")+"], excludeResourceRules: ["+exclude+"]}")
						}
						policies := []*v1alpha1.WebhookPolicy{p}
						if compare(t, newOracle(policies, testWorld), groupOf(t, policies), in).Allowed {
							excluded++
						} else {
							matched++
						}
					})
				}
			}
		}
	}
	if matched < 10 || excluded < 10 {
		t.Errorf("%d matched and %d excluded: the cases show nothing", matched, excluded)
	}
}
