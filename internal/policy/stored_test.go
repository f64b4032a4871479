package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/celsyntax"
)

// namespaceUpdate adds the label tier to a Namespace.
func namespaceUpdate(tb testing.TB) *admissionv1.AdmissionRequest {
	tb.Helper()
	return input{
		operation: admission.Update, kind: corev1.SchemeGroupVersion.WithKind("Namespace"), resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
		namespace: "shop", name: "shop", user: alice,
		object: typed(tb, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: prod}}\n"),
		old:    typed(tb, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"),
	}.review(tb)
}

// TestRatchetNeedsAPolicyForTheStoredObject: an object to which the policy does not apply
// can be created with any content. An update that makes the policy apply to it must not
// pass for the reason that the stored object fails the validation too.
func TestRatchetNeedsAPolicyForTheStoredObject(t *testing.T) {
	const (
		// The update changes the label team of a Pod from "old" to "shop".
		fails     = "validations: [{expression: 'false', message: m, ratchet: true}]\n"
		ofConfig  = "paramKind: {apiVersion: v1, kind: ConfigMap}\n"
		ofNew     = "{matchLabels: {team: shop}}"
		ofBoth    = "{matchExpressions: [{key: team, operator: In, values: [shop, old]}]}"
		anyPod    = "[{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods]"
		namespace = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [namespaces]}]"
		denied    = "WebhookPolicy 'p' denied request: m"
	)
	conditions := func(expressions ...string) string {
		var out strings.Builder
		out.WriteString(fails + "matchConditions:\n")
		for i, e := range expressions {
			out.WriteString("- {name: c" + string(rune('0'+i)) + ", expression: '" + e + "'}\n")
		}
		return out.String()
	}
	bindings := func(all ...string) string { return fails + "bindings: [" + strings.Join(all, ", ") + "]\n" }
	bound := func(name, match string) string {
		return "{name: " + name + ", validationActions: [Deny], matchResources: {" + match + "}}"
	}
	deniedBy := func(binding string) string {
		return "WebhookPolicy 'p' with binding '" + binding + "' denied request: m"
	}
	tests := map[string]struct {
		spec          string
		request       *admissionv1.AdmissionRequest // default: the update of a Pod
		authorizer    authorizer.UnconditionalAuthorizer
		want          string // empty: the request passes
		wantRatcheted string
	}{
		"no conditions":                         {spec: fails, wantRatcheted: "spec.validations[0]"},
		"a condition on the new object":         {spec: conditions(`object.metadata.labels.team == "shop"`), want: denied},
		"a condition on the stored object":      {spec: conditions(`oldObject == null || oldObject.metadata.labels.team == "old"`), wantRatcheted: "spec.validations[0]"},
		"a condition on both":                   {spec: conditions(`object.metadata.labels.team in ["shop", "old"]`), wantRatcheted: "spec.validations[0]"},
		"a condition on the change":             {spec: conditions(`object.metadata.labels.team != oldObject.metadata.labels.team`), want: denied},
		"the second condition":                  {spec: conditions("true", `object.metadata.labels.team == "shop"`), want: denied},
		"a condition with an error":             {spec: conditions(`object.metadata.labels.team == "shop" || object.nope == 1`), want: denied},
		"a condition with an error, Ignore":     {spec: "failurePolicy: Ignore\n" + conditions(`object.metadata.labels.team == "shop" || object.nope == 1`), want: denied},
		"a condition on a variable":             {spec: "variables: [{name: team, expression: object.metadata.labels.team}]\n" + conditions(`variables.team == "shop"`), want: denied},
		"a condition on the user":               {spec: conditions(`request.userInfo.username == "alice"`), wantRatcheted: "spec.validations[0]"},
		"a condition on params":                 {spec: ofConfig + conditions(`object.metadata.labels.team == "old" ? params.data.max == "9" : true`) + "bindings: [{name: b, validationActions: [Deny], paramRef: {name: first, parameterNotFoundAction: Deny}}]", want: deniedBy("b")},
		"a condition without an authorizer":     {spec: "failurePolicy: Ignore\n" + conditions(`object.metadata.labels.team == "shop" || authorizer.path("/").check("get").allowed()`), authorizer: unavailable(), want: denied},
		"a condition too costly for the stored": {spec: conditions(`object.metadata.labels.team == "shop" || ` + strings.Repeat("[1,2,3,4,5,6,7,8,9,0].all(x, ", 7) + "object != null" + strings.Repeat(")", 7)), want: denied},

		"objectSelector of the policy":                {spec: fails + "matchConstraints: {resourceRules: " + anyPod + "}], objectSelector: " + ofNew + "}", want: denied},
		"objectSelector of the policy, both":          {spec: fails + "matchConstraints: {resourceRules: " + anyPod + "}], objectSelector: " + ofBoth + "}", wantRatcheted: "spec.validations[0]"},
		"namespaceSelector of the policy":             {spec: fails + "matchConstraints: {resourceRules: " + anyPod + "}], namespaceSelector: {matchLabels: {tier: prod}}}", wantRatcheted: "spec.validations[0]"},
		"namespaceSelector on a Namespace":            {request: namespaceUpdate(t), spec: fails + namespace + ", namespaceSelector: {matchLabels: {tier: prod}}}", want: denied},
		"namespaceSelector on a Namespace, both":      {request: namespaceUpdate(t), spec: fails + namespace + ", namespaceSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}}", wantRatcheted: "spec.validations[0]"},
		"namespaceSelector of a binding, a Namespace": {request: namespaceUpdate(t), spec: bindings(bound("b", "namespaceSelector: {matchLabels: {tier: prod}}")), want: deniedBy("b")},
		"resourceNames of the policy":                 {spec: fails + "matchConstraints: {resourceRules: " + anyPod + ", resourceNames: [web]}]}", wantRatcheted: "spec.validations[0]"},
		"excludeResourceRules of the policy":          {spec: fails + "matchConstraints: {resourceRules: " + anyPod + "}], excludeResourceRules: " + anyPod + ", resourceNames: [other]}]}", wantRatcheted: "spec.validations[0]"},

		"objectSelector of a binding":         {spec: bindings(bound("b", "objectSelector: "+ofNew)), want: deniedBy("b")},
		"objectSelector of a binding, both":   {spec: bindings(bound("b", "objectSelector: "+ofBoth)), wantRatcheted: "spec.validations[0]"},
		"objectSelector of a binding, stored": {spec: bindings(bound("b", "objectSelector: {matchLabels: {team: old}}")), wantRatcheted: "spec.validations[0]"},
		"namespaceSelector of a binding":      {spec: bindings(bound("b", "namespaceSelector: {matchLabels: {tier: prod}}")), wantRatcheted: "spec.validations[0]"},
		"resourceNames of a binding":          {spec: bindings(bound("b", "resourceRules: "+anyPod+", resourceNames: [web]}]")), wantRatcheted: "spec.validations[0]"},
		"excludeResourceRules of a binding":   {spec: bindings(bound("b", "objectSelector: "+ofNew+", excludeResourceRules: "+anyPod+", resourceNames: [other]}]")), want: deniedBy("b")},
		"two bindings, of which one ratchets": {spec: bindings(bound("all", ""), bound("new", "objectSelector: "+ofNew)), want: deniedBy("new"), wantRatcheted: "spec.validations[0]"},
		"two bindings, in the other order":    {spec: bindings(bound("a-new", "objectSelector: "+ofNew), bound("b-all", "")), want: deniedBy("a-new"), wantRatcheted: "spec.validations[0]"},
		"params that a binding selects": {
			spec: ofConfig + bindings("{name: b, validationActions: [Deny], paramRef: {selector: {matchLabels: {set: b}}, parameterNotFoundAction: Deny}, matchResources: {objectSelector: "+ofNew+"}}"), want: deniedBy("b"),
		},
		"params that two bindings share": {
			spec: ofConfig + bindings("{name: all, validationActions: [Warn], paramRef: {name: first, parameterNotFoundAction: Deny}}", "{name: new, validationActions: [Deny], paramRef: {name: first, parameterNotFoundAction: Deny}, matchResources: {objectSelector: "+ofNew+"}}"),
			want: deniedBy("new"), wantRatcheted: "spec.validations[0]",
		},

		// Who wrote the stored object is not known: see Compiled.RatchetRisks.
		"a validation that depends on the user": {spec: "ratchet: true\nvalidations: [{expression: 'request.userInfo.username == \"admin\"', message: m}]", wantRatcheted: "spec.validations[0]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			if tc.authorizer != nil {
				host.Authorizer = tc.authorizer
			}
			if tc.request == nil {
				tc.request = podInput(t, admission.Update).review(t)
			}
			resp := evaluate(t, groupFrom(t, map[string]string{"p": tc.spec}), tc.request, host)
			got := ""
			if !resp.Allowed {
				got = resp.Result.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if got := resp.AuditAnnotations["p."+auditRatchetedKey]; got != tc.wantRatcheted {
				t.Errorf("ratcheted = %q, want %q", got, tc.wantRatcheted)
			}
		})
	}
}

// unavailable gives no answer.
func unavailable() authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", &accessreview.UnavailableError{Err: errors.New("gone")}
	})
}

// TestRatchetOfTemplates is TestRatchetNeedsAPolicyForTheStoredObject for the Pods of
// templates.
func TestRatchetOfTemplates(t *testing.T) {
	const fails = "validations: [{expression: 'object == null', message: m, ratchet: true}]\npodTemplates: {}\n"
	const pods = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]"
	const denied, deniedByB = "WebhookPolicy 'p' denied request: spec.template: m", "WebhookPolicy 'p' with binding 'b' denied request: spec.template: m"
	template := func(tier string) string {
		return "{metadata: {labels: {tier: " + tier + "}}, spec: {containers: [{name: web, image: v1}]}}"
	}
	workload := func(metadata, tier string) string {
		return workloadYAML("ReplicaSet", metadata, "{template: "+template(tier)+"}")
	}
	const owner = ", ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, controller: true}]"
	tests := map[string]struct{ spec, old, want string }{
		"the policy applies to both":          {spec: fails},
		"a condition on the new template":     {spec: fails + "matchConditions: [{name: c, expression: 'object.metadata.labels.tier == \"prod\"'}]", want: denied},
		"an objectSelector":                   {spec: fails + pods + ", objectSelector: {matchLabels: {tier: prod}}}", want: denied},
		"an objectSelector of both":           {spec: fails + pods + ", objectSelector: {matchExpressions: [{key: tier, operator: Exists}]}}"},
		"an objectSelector of a binding":      {spec: fails + "bindings: [{name: b, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {tier: prod}}}}]", want: deniedByB},
		"a binding that matches both":         {spec: fails + "bindings: [{name: b, validationActions: [Deny], matchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}}]"},
		"the stored one has a controller":     {spec: fails, old: workload(owner, "test"), want: denied},
		"the stored one has another owner":    {spec: fails, old: workload(strings.Replace(owner, "Deployment", "Fleet", 1), "test")},
		"labels of the workload are not read": {spec: fails + "matchConditions: [{name: c, expression: 'object.metadata.labels.tier in [\"prod\", \"test\"]'}]", old: workload(", labels: {tier: none}", "test")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := tc.old
			if old == "" {
				old = workload("", "test")
			}
			request := workloadRequest(t, replicaSetsResource, workload("", "prod"), old)
			resp := evaluate(t, templateGroupFrom(t, map[string]string{"p": tc.spec}), request, testWorld.host())
			got := ""
			if !resp.Allowed {
				got = resp.Result.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRatchetRisks(t *testing.T) {
	risk := func(validation int, reads string) []celsyntax.RatchetRisk {
		return []celsyntax.RatchetRisk{{Validation: validation, Reads: reads}}
	}
	const whole = "the whole request, which includes request.userInfo"
	tests := map[string]struct {
		spec string
		want []celsyntax.RatchetRisk
	}{
		"the object":                  {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1 && request.operation != \"DELETE\"'}]"},
		"the user":                    {spec: "ratchet: true\nvalidations: [{expression: 'true || object == null'}, {expression: 'object.spec.x == 1 || request.userInfo.username == \"a\"'}]", want: risk(1, "request.userInfo")},
		"the user, no ratchet":        {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1 || request.userInfo.username == \"a\"', ratchet: false}]"},
		"the user by variables":       {spec: "ratchet: true\nvariables: [{name: u, expression: request.userInfo.username}, {name: admin, expression: 'variables.u == \"a\"'}]\nvalidations: [{expression: 'variables.admin || object.spec.x == 1'}]", want: risk(0, "request.userInfo")},
		"a variable that is not read": {spec: "ratchet: true\nvariables: [{name: u, expression: request.userInfo.username}]\nvalidations: [{expression: 'object.spec.x == 1'}]"},
		"the user in a message":       {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1', messageExpression: request.userInfo.username}]"},
		"the authorizer":              {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1 || authorizer.requestResource.check(\"admin\").allowed()'}]", want: risk(0, "authorizer")},
		"the request":                 {spec: "ratchet: true\nvariables: [{name: r, expression: request}]\nvalidations: [{expression: 'object.spec.x == 1 || variables.r.name == \"a\"'}]", want: risk(0, whole)},
		"options":                     {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1 || request.options.fieldManager == \"a\"'}]", want: risk(0, "request.options")},
		"a dry run":                   {spec: "ratchet: true\nvalidations: [{expression: 'object.spec.x == 1 || request.dryRun'}]", want: risk(0, "request.dryRun")},
		"not the object":              {spec: "ratchet: true\nvalidations: [{expression: 'namespaceObject.metadata.name != \"a\" && oldObject != null'}]", want: risk(0, "")},
		"the object by a variable":    {spec: "ratchet: true\nvariables: [{name: x, expression: object.spec.x}]\nvalidations: [{expression: 'variables.x == 1'}]"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := mustCompile(t, sharedCompiler, policyFrom(t, "p", tc.spec)).RatchetRisks()
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("risks (-want +got):\n%s", diff)
			}
		})
	}
}
