package validation

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
)

// parse reads the spec of a policy.
func parse(t *testing.T, spec string) *v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// cluster is a small one.
func cluster() ClusterInfo {
	lists := map[schema.GroupVersion][]metav1.APIResource{}
	for gv, names := range map[string]string{
		"v1":                   "pods pods/status pods/exec configmaps nodes nodes/status endpoints",
		"apps/v1":              "deployments deployments/scale",
		"batch/v1":             "jobs cronjobs",
		"autoscaling/v1":       "horizontalpodautoscalers",
		"autoscaling/v2":       "horizontalpodautoscalers",
		"flow.k8s.io/v1":       "flows",
		"flow.k8s.io/v1beta3":  "flows",
		"new.k8s.io/v1alpha1":  "things",
		"example.com/v1alpha1": "widgets",
		"acme.io/v1":           "rockets",
		"acme.io/v1beta1":      "rockets",
	} {
		parsed, _ := schema.ParseGroupVersion(gv)
		for name := range strings.FieldsSeq(names) {
			lists[parsed] = append(lists[parsed], metav1.APIResource{Name: name})
		}
	}
	lists[schema.GroupVersion{Group: "down.example.com", Version: "v1"}] = nil // its server does not answer
	return ClusterInfo{Replicas: 2, Resources: lists}
}

// matching is a policy with one rule, which validates.
func matching(rule, more string) string {
	return "matchConstraints: {resourceRules: [" + rule + "]}\nvalidations: [{expression: 'true'}]\n" + more
}

const mutations = "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[]'}}]\n"

func TestWarnings(t *testing.T) {
	const (
		pods     = `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`
		escape   = "the client that writes an object chooses its labels and can evade Deny; use namespaceSelector, or match every object"
		wideFail = ` with failurePolicy Fail: while Ostiary does not answer, writes to all these resources are denied; name ` +
			`the resources, or set failurePolicy: Ignore`
		resource = "spec.matchConstraints.resourceRules[0].resources[0]: "
		names    = "spec.matchConstraints.resourceRules[0].resourceNames: "

		collection = names + "a DELETE of a collection has no name and does not match; remove resourceNames and compare " +
			"oldObject.metadata.name in an expression"
		generated = names + "an object with generateName has no name in mutations and a random suffix in validations, and " +
			"does not match; compare object.metadata.generateName in an expression if it matters"
	)
	named := func(operations string) string {
		return fmt.Sprintf(`{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [%s], resourceNames: [x]}`, operations)
	}
	rule := func(group, version, resource string) string {
		return fmt.Sprintf(`{apiGroups: [%q], apiVersions: [%q], resources: [%q], operations: [CREATE]}`, group, version, resource)
	}
	single := cluster()
	single.Replicas = 1
	tests := map[string]struct {
		spec  string
		facts ClusterInfo
		want  []string
	}{
		"nothing": {spec: matching(pods, ""), facts: cluster()},
		"a lookup that no expression reads": {
			spec: matching(pods, "lookups: [{name: a, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '[]'},\n"+
				"{name: ab, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '[]'}]\n"+
				"variables: [{name: v, expression: lookups.ab.size()}]"),
			facts: cluster(),
			want:  []string{"spec.lookups[0].name: no expression reads lookups.a, and its index takes memory: remove it"},
		},
		"a long timeout": {
			spec: matching(pods, "timeoutSeconds: 11"),
			want: []string{
				"spec.timeoutSeconds: requests wait up to 11 seconds while Ostiary does not answer, longer than many clients do; choose 10 or less",
			},
		},
		"a timeout of 10": {spec: matching(pods, "timeoutSeconds: 10")},
		"one replica": {
			spec:  matching(pods, ""),
			facts: single,
			want: []string{
				"spec.failurePolicy: Fail with a single replica of Ostiary: while it restarts, matching requests are denied; run two or more",
			},
		},
		"one replica, Ignore": {spec: matching(pods, "failurePolicy: Ignore"), facts: single},
		"one replica, nothing denies": {
			spec:  matching(pods, "bindings: [{name: b, validationActions: [Audit]}]"),
			facts: single,
		},
		"an unknown number of replicas": {spec: matching(pods, "")},
		"an objectSelector": {
			spec: "matchConstraints: {objectSelector: {matchLabels: {a: b}}, resourceRules: [" + pods +
				"]}\nvalidations: [{expression: 'true'}]",
			want: []string{"spec.matchConstraints.objectSelector: " + escape},
		},
		"an objectSelector of a binding": {
			spec: matching(pods, "bindings: [{name: a}, {name: b, matchResources: {objectSelector: {matchExpressions: [{key: "+
				"a, operator: Exists}]}}}]"),
			want: []string{"spec.bindings[1].matchResources.objectSelector: " + escape},
		},
		"an objectSelector to audit": {
			spec: "matchConstraints: {objectSelector: {matchLabels: {a: b}}, resourceRules: [" + pods +
				"]}\nvalidations: [{expression: 'true'}]\nbindings: [{name: b, validationActions: [Audit]}]",
		},
		"an objectSelector that is empty": {
			spec: "matchConstraints: {objectSelector: {}, resourceRules: [" + pods + "]}\nvalidations: [{expression: 'true'}]",
		},
		"an objectSelector of mutations": {
			spec: "matchConstraints: {objectSelector: {matchLabels: {a: b}}, resourceRules: [" + pods + "]}\n" + mutations,
		},

		"wildcard": {spec: matching(rule("*", "*", "*"), ""), facts: cluster(), want: []string{resource + `"*"` + wideFail}},
		"wildcard of a group": {
			spec:  matching(rule("apps", "v1", "*/*"), ""),
			facts: cluster(),
			want:  []string{resource + `"*/*"` + wideFail},
		},
		"wildcard, Ignore":         {spec: matching(rule("*", "*", "*"), "failurePolicy: Ignore"), facts: cluster()},
		"wildcard of subresources": {spec: matching(rule("", "v1", "pods/*"), "failurePolicy: Ignore"), facts: cluster()},
		"wildcard that mutates": {
			spec:  "matchConstraints: {resourceRules: [" + rule("*", "*", "*") + "]}\nfailurePolicy: Ignore\n" + mutations,
			facts: cluster(),
			want:  []string{resource + `"*" with mutations: they change objects of controllers, which then write them again; name the resources`},
		},
		"wildcard for some names": {
			spec: matching(`{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: [UPDATE], resourceNames: [x]}`, ""),
		},

		"DELETE of some names":          {spec: matching(named("DELETE"), ""), want: []string{collection}},
		"CREATE of some names":          {spec: matching(named("CREATE, UPDATE"), ""), want: []string{generated}},
		"every operation on some names": {spec: matching(named("'*'"), ""), want: []string{collection, generated}},

		"reviews": {
			spec: matching(`{apiGroups: [apps, authentication.k8s.io], apiVersions: [v1], resources: [tokenreviews], `+
				`operations: [CREATE]}`, "allowCriticalResources: true"),
			want: []string{"spec.matchConstraints.resourceRules[0].apiGroups[1]: kubelets and other API servers send these " +
				"reviews to authenticate and authorize callers, " +
				"and reject all callers while Ostiary does not answer: set failurePolicy: Ignore"},
		},
		"reviews, Ignore": {
			spec: matching(rule("authorization.k8s.io", "v1", "subjectaccessreviews"),
				"allowCriticalResources: true\nfailurePolicy: Ignore"),
		},
		"leases": {
			spec: matching(rule("coordination.k8s.io", "v1", "leases"), "allowCriticalResources: true"),
			want: []string{
				resource + "the control plane writes leases, and its writes are denied while Ostiary does not answer: set failurePolicy: Ignore",
			},
		},
		"what the control plane writes": {
			spec: matching(rule("", "v1", "nodes/status"), ""),
			want: []string{
				resource + "the control plane writes nodes/status, and its writes are denied while Ostiary does not answer: set failurePolicy: Ignore",
			},
		},
		"what the control plane writes, in a family": {
			spec: matching(rule("", "v1", "pods/*"), ""),
			want: []string{
				resource + "the control plane writes pods/status, and its writes are denied while Ostiary does not answer: set failurePolicy: Ignore",
			},
		},
		"what the control plane writes, Ignore": {
			spec: matching(rule("discovery.k8s.io", "v1", "endpointslices"), "failurePolicy: Ignore"),
		},
		"what the control plane writes, mutated": {
			spec: "matchConstraints: {resourceRules: [" + rule("", "v1", "endpoints") + "]}\n" + mutations,
			want: []string{
				resource + "the control plane writes endpoints, and its writes are denied while Ostiary does not answer: set failurePolicy: Ignore",
				resource + "the control plane writes endpoints, and reverts changes of mutations: do not mutate them",
			},
		},
		"what the control plane writes, for a backend": {
			spec: "matchConstraints: {resourceRules: [" + rule("", "v1",
				"endpoints") + "]}\nbackend: {type: Mutating, url: 'https://example.com', admissionReviewVersions: [v1], " +
				"sideEffects: None}\ntimeoutSeconds: 11\n", facts: single,
			want: []string{
				"spec.timeoutSeconds: requests wait up to 11 seconds while the backend does not answer, longer than many clients do; choose 10 or less",
				resource + "the control plane writes endpoints, and its writes are denied while the backend does not answer: set failurePolicy: Ignore",
				resource + "the control plane writes endpoints, and reverts changes of mutations: do not mutate them",
			},
		},
		"a wildcard for a backend": {
			spec: "matchConstraints: {resourceRules: [" + rule("*", "*",
				"*/*") + "]}\nbackend: {type: Validating, url: 'https://example.com', admissionReviewVersions: [v1], sideEffects: None}\n",
			want: []string{
				resource + `"*/*" with failurePolicy Fail: while the backend does not answer, writes to all these resources are ` +
					`denied; name the resources, or set failurePolicy: Ignore`,
			},
		},
		"a resource of that name elsewhere": {spec: matching(rule("example.com", "v1", "nodes"), "")},

		"a group that is not served": {
			spec:  matching(rule("app", "v1", "deployments"), ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiGroups[0]: the API server has no group "app", did you mean "apps"?`,
			},
		},
		"a version that is not served": {
			spec:  matching(rule("apps", "v2", "deployments"), ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[0]: the API server does not serve the version "v2" of these groups: use v1`,
			},
		},
		"a resource that is not served": {
			spec:  matching(rule("apps", "v1", "deployment"), ""),
			facts: cluster(),
			want: []string{
				resource + `the API server does not serve "deployment" in these groups and versions, did you mean "deployments"?`,
			},
		},
		"a subresource that is not served": {
			spec:  matching(rule("", "v1", "pods/statuses"), ""),
			facts: cluster(),
			want: []string{
				resource + `the API server does not serve "pods/statuses" in these groups and versions, did you mean "pods/status"?`,
			},
		},
		"a version that does not answer":  {spec: matching(rule("down.example.com", "v1", "anything"), ""), facts: cluster()},
		"nothing known of what is served": {spec: matching(rule("app", "v9", "deployment"), "")},
		"resources of two groups": {
			spec:  matching(`{apiGroups: [apps, batch], apiVersions: [v1], resources: [deployments, jobs], operations: [CREATE]}`, ""),
			facts: cluster(),
		},
		"one of two groups is not served": {
			spec:  matching(`{apiGroups: [apps, extensions], apiVersions: [v1], resources: [deployments], operations: [CREATE]}`, ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiGroups[1]: the API server has no group "extensions": correct it, ` +
					`unless it is still to be installed`,
			},
		},
		"one of two versions is not served": {
			spec:  matching(`{apiGroups: [apps], apiVersions: [v1, v2], resources: [deployments], operations: [CREATE]}`, ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[1]: the API server does not serve the version "v2" of these groups: use v1`,
			},
		},

		"beside a stable version": {
			spec:  matching(rule("flow.k8s.io", "v1beta3", "flows"), ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[0]: "v1beta3" is not stable, and a later release may not serve it: name "v1"`,
			},
		},
		"beside a stable one, elsewhere": {
			spec:  matching(rule("acme.io", "v1beta1", "rockets"), ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[0]: "v1beta1" is not stable, and a later release may not serve it: name "v1"`,
			},
		},
		"named with the stable version": {
			spec:  matching(`{apiGroups: [acme.io], apiVersions: [v1, v1beta1], resources: [rockets], operations: [CREATE]}`, ""),
			facts: cluster(),
		},
		"unstable alone": {
			spec:  matching(rule("new.k8s.io", "v1alpha1", "things"), ""),
			facts: cluster(),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[0]: "v1alpha1" is not stable, and a later release of Kubernetes may not serve it`,
			},
		},
		"unstable alone, of another group": {spec: matching(rule("example.com", "v1alpha1", "widgets"), ""), facts: cluster()},
		"unstable, nothing known": {
			spec: matching(rule("flow.k8s.io", "v1beta3", "flows"), ""),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiVersions[0]: "v1beta3" is not stable, and a later release of Kubernetes may not serve it`,
			},
		},
		"without rules, as never applied": {
			spec:  "validations: [{expression: 'true'}]",
			facts: single,
			want: []string{
				"spec.failurePolicy: Fail with a single replica of Ostiary: while it restarts, matching requests are denied; run two or more",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, tt.spec)
			before := p.DeepCopy()
			got := Warnings(p, tt.facts)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the policy was changed (-before +after):\n%s", diff)
			}
			for _, w := range got {
				if len(w) > maxWarning || strings.Contains(w, "\n") {
					t.Errorf("warning of %d bytes: %q", len(w), w)
				}
			}
		})
	}
}

func TestWarningAboutHelp(t *testing.T) {
	p := parse(t, matching(`{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`, ""))
	p.Annotations = map[string]string{v1alpha1.AnnotationHelp: "https://wiki.example.com/labels"}
	if got := Warnings(p, cluster()); len(got) > 0 {
		t.Errorf("warnings %q for a valid URL", got)
	}
	p.Annotations[v1alpha1.AnnotationHelp] = "wiki"
	want := []string{
		"metadata.annotations[admission.ostiary.dev/help]: messages do not contain it: use an http or https URL of at most 256 bytes",
	}
	if diff := cmp.Diff(want, Warnings(p, cluster())); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestWarningAboutSuspensions: a time that replicas do not honour yet has a warning, in a cluster whose time is known.
func TestWarningAboutSuspensions(t *testing.T) {
	noon := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	const at = "metadata.annotations[admission.ostiary.dev/suspended-until]: the policy is not suspended"
	for name, tt := range map[string]struct {
		until string
		now   time.Time
		want  []string
	}{
		"soon":         {until: "2027-03-01T13:00:00Z", now: noon},
		"ended":        {until: "2027-03-01T11:00:00Z", now: noon},
		"the longest":  {until: "2027-03-08T12:00:00Z", now: noon},
		"unknown time": {until: "2027-03-08T12:00:01Z"},
		"too long": {until: "2027-03-08T12:00:01Z", now: noon, want: []string{
			at + " before 2027-03-01T12:00:01Z, because a suspension lasts at most 7 days: write an earlier time",
		}},
		"no time": {until: "1h", now: noon, want: []string{at + ": write a time such as 2027-03-01T12:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, matching(`{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`, ""))
			p.Annotations = map[string]string{v1alpha1.AnnotationSuspendedUntil: tt.until}
			facts := cluster()
			facts.Now = tt.now
			if diff := cmp.Diff(tt.want, Warnings(p, facts), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsAreBounded(t *testing.T) {
	p := parse(t, matching(`{apiGroups: [""], apiVersions: ["*"], resources: [pods], operations: [CREATE]}`, "timeoutSeconds: 30"))
	long := strings.Repeat("ü", maxWarning)
	rule := &p.Spec.MatchConstraints.ResourceRules[0]
	for range 40 {
		rule.Resources = append(rule.Resources, long)
	}
	got := Warnings(p, cluster())
	if len(got) != maxWarnings+1 || got[maxWarnings] != "31 more warnings were left out" {
		t.Errorf("%d warnings, the last %q", len(got), got[len(got)-1])
	}
	for _, w := range got {
		if len(w) > maxWarning || strings.ContainsRune(w, '\uFFFD') {
			t.Errorf("warning of %d bytes: %q", len(w), w)
		}
	}
}

func TestUnserved(t *testing.T) {
	tests := map[string]struct {
		resource string
		facts    ClusterInfo
		want     bool
	}{
		"served":     {resource: "pods", facts: cluster()},
		"not served": {resource: "widgets", facts: cluster(), want: true},
		"unknown":    {resource: "widgets"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, matching(`{apiGroups: [""], apiVersions: ["*"], resources: [`+tt.resource+`], operations: [CREATE]}`, ""))
			if got := Unserved(p, tt.facts); got != tt.want {
				t.Errorf("Unserved() = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestReview(t *testing.T) {
	compiler := policy.NewCompiler()
	const pods = `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`
	tests := map[string]struct {
		spec         string
		wantFields   []string
		wantWarnings int
	}{
		"good":  {spec: matching(pods, "")},
		"risky": {spec: matching(pods, "timeoutSeconds: 30"), wantWarnings: 1},
		"refused": {
			spec:       matching(strings.Replace(pods, "pods", "events", 1), ""),
			wantFields: []string{"spec.matchConstraints.resourceRules[0].resources[0]"},
		},
		"wrong in every way, and risky": {
			spec: "matchConstraints: {resourceRules: [" + strings.Replace(pods, "CREATE", "READ",
				1) + "]}\nvalidations: [{expression: 'object ='}]\ntimeoutSeconds: 30\n" +
				"variables: [{name: v, expression: nonsense}]\n",
			wantFields: []string{
				"spec.matchConstraints.resourceRules[0].operations[0]", "spec.variables[0].expression",
				"spec.validations[0].expression",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, warnings := Review(compiler, parse(t, tt.spec), ClusterInfo{})
			var fields []string
			for _, e := range v.Errors {
				fields = append(fields, e.Field)
			}
			if diff := cmp.Diff(tt.wantFields, fields); diff != "" {
				t.Errorf("fields of the errors (-want +got):\n%s", diff)
			}
			if len(warnings) != tt.wantWarnings {
				t.Errorf("warnings %q, want %d", warnings, tt.wantWarnings)
			}
		})
	}
}

// Risks of ratchet depend on the expressions.
func TestReviewOfRatchet(t *testing.T) {
	const (
		updates = `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE]}`
		at      = "spec.validations[0].expression: "
		reads   = ", and who wrote the stored object is not known: ratchet evaluates it for the current request; set ratchet: false"
	)
	tests := map[string]struct {
		more, expression string
		want             []string
	}{
		"the object": {more: "ratchet: true", expression: `object.spec.hostNetwork == false`},
		"no ratchet": {expression: `request.userInfo.username == "admin"`},
		"the user": {
			more:       "ratchet: true",
			expression: `request.userInfo.username == "admin" || object.spec.hostNetwork == false`,
			want:       []string{at + "it reads request.userInfo" + reads},
		},
		"by a variable": {
			more:       "ratchet: true\nvariables: [{name: may, expression: 'authorizer.requestResource.check(\"admin\").allowed()'}]",
			expression: `variables.may || object.spec.hostNetwork == false`,
			want:       []string{at + "it reads authorizer" + reads},
		},
		"the request": {
			more:       "ratchet: true",
			expression: `[request].size() == 1 || object.spec.hostNetwork == false`,
			want:       []string{at + "it reads the whole request, which includes request.userInfo" + reads},
		},
		"not the object": {
			more:       "ratchet: true",
			expression: `oldObject == null`,
			want: []string{
				at + "it does not read object, so it is false for the stored object too, and with ratchet never denies an UPDATE: set ratchet: false",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, matching(updates, tt.more))
			p.Spec.Validations[0].Expression = tt.expression
			v, warnings := Review(policy.NewCompiler(), p, ClusterInfo{})
			if len(v.Errors) > 0 {
				t.Errorf("errors %v", v.Errors)
			}
			if diff := cmp.Diff(tt.want, advice.Texts(warnings)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(advice.Texts(warnings), Bounded(warnings)); diff != "" {
				t.Errorf("API servers truncate the warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// A backend that is refused is rejected when the policy is applied.
func TestReviewOfBackends(t *testing.T) {
	const backend = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n" +
		"backend: {type: Validating, url: 'https://%s/a', admissionReviewVersions: [v1], sideEffects: None}"
	for name, tt := range map[string]struct {
		rule egress.Rule
		host string
		want string
	}{
		"a name": {host: "a.example.com"},
		"backends disabled": {
			rule: egress.Rule{DisableBackends: true},
			host: "a.example.com",
			want: "spec.backend: Forbidden: remove backend: Ostiary runs with --disable-backends",
		},
		"loopback": {
			host: "127.0.0.1:8443",
			want: "spec.backend.url: Forbidden: 127.0.0.1 is a loopback address: use another server, or permit the address " +
				"with --permitted-backend-addresses",
		},
		"another form": {
			host: "0x7f.1:8443",
			want: `spec.backend.url: Forbidden: "0x7f.1" is an unusual form of an IP address: use four decimal numbers, such as 192.0.2.1`,
		},
		"metadata": {
			host: "metadata.google.internal",
			want: `spec.backend.url: Forbidden: "metadata.google.internal" is a cloud metadata service: use another server`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := Review(policy.NewCompiler(), parse(t, fmt.Sprintf(backend, tt.host)), ClusterInfo{Backends: tt.rule})
			got := ""
			if len(v.Errors) > 0 {
				got = v.Errors[0].Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		operation, expression         string
		wantRegistrable, wantCompiles bool
	}{
		"good":              {operation: "CREATE", expression: "true", wantRegistrable: true, wantCompiles: true},
		"does not compile":  {operation: "CREATE", expression: "nonsense", wantRegistrable: true},
		"cannot register":   {operation: "READ", expression: "true", wantCompiles: true},
		"neither can it be": {operation: "READ", expression: "nonsense"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, matching(`{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`, ""))
			p.Spec.MatchConstraints.ResourceRules[0].Operations[0] = admissionregistrationv1.OperationType(tt.operation)
			p.Spec.Validations[0].Expression = tt.expression
			v := Validate(policy.NewCompiler(), p, egress.Rule{})
			if v.Compiled == nil || v.Registrable != tt.wantRegistrable || v.Compiles != tt.wantCompiles ||
				(len(v.Errors) == 0) != (tt.wantRegistrable && tt.wantCompiles) {
				t.Errorf("got %+v", v)
			}
		})
	}
}

// The example in the documents gets the warnings that stand there.
func TestDocumentedWarnings(t *testing.T) {
	text, err := os.ReadFile("../../docs/policies/review.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, rest, _ := strings.Cut(rest, "```\n")
	_, rest, _ = strings.Cut(rest, "```console\n")
	shown, _, _ := strings.Cut(rest, "```\n")
	p := &v1alpha1.WebhookPolicy{}
	if err := yaml.UnmarshalStrict([]byte(example), p); err != nil {
		t.Fatal(err)
	}
	v, warnings := Review(policy.NewCompiler(), p, cluster())
	if len(v.Errors) > 0 {
		t.Errorf("errors %v", v.Errors)
	}
	if diff := cmp.Diff(shown, "Warning: "+strings.Join(advice.Texts(warnings), "\nWarning: ")+"\n"); diff != "" {
		t.Errorf("warnings (-documented +got):\n%s", diff)
	}
}
