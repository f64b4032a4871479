package policy

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// req is "OPERATION group/version/resource[/subresource] namespace name".
func req(tb testing.TB, text string) *admissionv1.AdmissionRequest {
	tb.Helper()
	fields := strings.Fields(text)
	parts := strings.Split(fields[1], "/")
	for i := range fields {
		fields[i] = strings.Trim(fields[i], "-")
	}
	r := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Operation(fields[0]), Resource: metav1.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]},
		Namespace: fields[2], Name: fields[3],
	}
	if len(parts) > 3 {
		r.SubResource = parts[3]
	}
	resource := r.Resource
	r.RequestResource, r.RequestSubResource = &resource, r.SubResource
	return r
}

func TestMatching(t *testing.T) {
	const pods = "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]"
	tests := map[string]struct {
		include, exclude string
		matches, passes  []string // requests that the policy is for, and not for
	}{
		"plain": {
			include: pods + "}",
			matches: []string{"CREATE /v1/pods shop web", "UPDATE /v1/pods shop web"},
			passes:  []string{"DELETE /v1/pods shop web", "CREATE /v1/pods/status shop web", "CREATE /v1/services shop web", "CREATE apps/v1/pods shop web", "CREATE /v2/pods shop web"},
		},
		"subresource": {
			include: "{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods/exec, services/*]}",
			matches: []string{"CONNECT /v1/pods/exec shop web", "UPDATE /v1/services/status shop web", "UPDATE /v1/services shop web"},
			passes:  []string{"CREATE /v1/pods shop web", "CONNECT /v1/pods/attach shop web"},
		},
		"all resources": {
			include: "{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: ['*']}",
			matches: []string{"CREATE /v1/pods shop web"}, passes: []string{"CREATE /v1/pods/binding shop web", "CREATE apps/v1/deployments shop web"},
		},
		"everything": {
			include: "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}",
			matches: []string{"DELETE apps/v1/deployments/scale shop web", "CREATE /v1/nodes - n"},
		},
		"one subresource of all": {
			include: "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/scale']}",
			matches: []string{"UPDATE apps/v1/deployments/scale shop web"}, passes: []string{"UPDATE apps/v1/deployments shop web"},
		},
		"namespaced scope": {
			include: "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], scope: Namespaced}",
			matches: []string{"CREATE /v1/pods shop web"}, passes: []string{"CREATE /v1/nodes - n", "CREATE /v1/namespaces shop shop"},
		},
		"cluster scope": {
			include: "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*'], scope: Cluster}",
			matches: []string{"CREATE /v1/nodes - n", "CREATE /v1/namespaces shop shop"}, passes: []string{"CREATE /v1/pods shop web"},
		},
		"resource names": {
			include: pods + ", resourceNames: [web, db]}, {apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [pods]}",
			matches: []string{"CREATE /v1/pods shop web", "UPDATE /v1/pods shop db", "DELETE /v1/pods shop other"}, passes: []string{"CREATE /v1/pods shop other", "CREATE /v1/pods shop -"},
		},
		"excluded": {
			include: "{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}", exclude: pods + ", resourceNames: [web]}, {apiGroups: [apps], apiVersions: ['*'], operations: ['*'], resources: ['*']}",
			matches: []string{"CREATE /v1/pods shop other", "DELETE /v1/pods shop web", "CREATE /v1/services shop web"}, passes: []string{"CREATE /v1/pods shop web", "DELETE apps/v1/deployments shop web"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, map[string]string{"p": "validations: [{expression: 'true'}]\nmatchConstraints: {resourceRules: [" + tc.include + "], excludeResourceRules: [" + tc.exclude + "]}"})
			for _, text := range slices.Concat(tc.matches, tc.passes) {
				matched, _ := group.match(newRequest(req(t, text)), Environment{})
				if got, want := len(matched) == 1, slices.Contains(tc.matches, text); got != want {
					t.Errorf("%s: matches = %t, want %t", text, got, want)
				}
			}
		})
	}
}

// TestExclusionLooksAtBothVersions: a rule that excludes the version the client
// named holds although the object was sent converted to another.
func TestExclusionLooksAtBothVersions(t *testing.T) {
	const include = "{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments]}"
	for excluded, want := range map[string]bool{"v1": false, "v1beta1": false, "v1beta2": true} {
		group := groupFrom(t, map[string]string{"p": "validations: [{expression: 'true'}]\nmatchConstraints: {resourceRules: [" + include + "], excludeResourceRules: [{apiGroups: [apps], apiVersions: [" + excluded + "], operations: ['*'], resources: [deployments]}]}"})
		raw := req(t, "CREATE apps/v1/deployments shop web")
		raw.RequestResource.Version = "v1beta1"
		if matched, _ := group.match(newRequest(raw), Environment{}); (len(matched) == 1) != want {
			t.Errorf("with %s excluded: %d policies match, want it to be %t", excluded, len(matched), want)
		}
	}
}

// TestNamesHoldForTheirRuleOnly: names of objects are not registered, so that a
// request is sent in the version of a rule whose names it does not have, while
// a rule for another version has none.
func TestNamesHoldForTheirRuleOnly(t *testing.T) {
	rule := func(version, more string) string {
		return "{apiGroups: [apps], apiVersions: [" + version + "], operations: ['*'], resources: [deployments]" + more + "}"
	}
	tests := map[string]struct {
		rules, policy string
		want          bool
	}{
		"no other rule":                {rules: rule("v1", ", resourceNames: [other]")},
		"a rule for another version":   {rules: rule("v1", ", resourceNames: [other]") + ", " + rule("v1beta1", ""), want: true},
		"one with the name":            {rules: rule("v1", ", resourceNames: [other]") + ", " + rule("v1beta1", ", resourceNames: [web]"), want: true},
		"one with another name":        {rules: rule("v1", ", resourceNames: [other]") + ", " + rule("v1beta1", ", resourceNames: [third]")},
		"a rule for no version of it":  {rules: rule("v1", ", resourceNames: [other]") + ", " + rule("v1beta2", "")},
		"only for the version as such": {rules: rule("v1", ", resourceNames: [other]") + ", " + rule("v1beta1", ""), policy: "matchPolicy: Exact, "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, map[string]string{"p": "validations: [{expression: 'true'}]\nmatchConstraints: {" + tt.policy + "resourceRules: [" + tt.rules + "]}"})
			matched, _ := group.match(newRequest(req(t, "CREATE apps/v1/deployments shop web")), Environment{Objects: testInterfaces()})
			if got := len(matched) == 1; got != tt.want {
				t.Errorf("matches: %t, want %t", got, tt.want)
			}
		})
	}
}

// TestIndexKeepsTheOrderOfNames: policies for one resource and those for all
// are looked at together, in the order of their names.
func TestIndexKeepsTheOrderOfNames(t *testing.T) {
	rules := func(resources string) string {
		return "validations: [{expression: 'true'}]\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: [" + resources + "]}]}"
	}
	group := groupFrom(t, map[string]string{
		"a-all": rules("'*'"), "b-pods": rules("pods"), "c-sub": rules("'*/exec'"), "d-both": rules("services, pods"), "e-all": rules("'*/*'"), "f-twice": rules("pods, pods/exec"), "g-nodes": rules("nodes"),
	})
	tests := map[string][]string{
		"CREATE /v1/pods shop web":       {"a-all", "b-pods", "d-both", "e-all", "f-twice"},
		"CONNECT /v1/pods/exec shop web": {"c-sub", "e-all", "f-twice"},
		"CREATE /v1/services shop web":   {"a-all", "d-both", "e-all"},
		"CREATE /v1/secrets shop web":    {"a-all", "e-all"},
	}
	for text, want := range tests {
		var got []string
		r := newRequest(req(t, text))
		matched, reads := group.match(r, Environment{})
		if err := r.prepare(t.Context(), reads, Environment{}); err != nil {
			t.Fatal(err)
		}
		matched = r.subjects(matched, Environment{})
		for _, turn := range evaluationsOf(t.Context(), matched, Environment{Now: time.Now}) {
			got = append(got, turn.policy.Name())
		}
		mutating := 0
		for _, m := range matched {
			mutating += len(m.policies)
		}
		if mutating != len(got) {
			t.Errorf("%s: %d policies in the mutating phase, %d in the validating", text, mutating, len(got))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if got := len(group.index.candidates("pods").targets); got != 6 {
		t.Errorf("%d candidates for pods, want 6: those for nodes alone are not looked at", got)
	}
	if want := []string{"a-all", "b-pods", "c-sub", "d-both", "e-all", "f-twice", "g-nodes"}; !slices.Equal(group.Names(), want) {
		t.Errorf("Names() = %v", group.Names())
	}
}

// TestReadsOfTargets compares what is kept of the last request with the union, in every order of
// requests.
func TestReadsOfTargets(t *testing.T) {
	rules := func(operations, expression string) string {
		return "validations: [{expression: '" + expression + "'}]\nmatchConstraints: {resourceRules: [" +
			"{apiGroups: [''], apiVersions: [v1], operations: [" + operations + "], resources: [pods]}]}"
	}
	group := groupFrom(t, map[string]string{
		"labels": rules("CREATE", "has(object.metadata.labels)"),
		"spec":   rules("'*'", "object == null || has(object.spec.hostNetwork)"),
		"old":    rules("UPDATE, DELETE", "has(oldObject.status)"),
	})
	all := group.index.candidates("pods")
	union := func(matched []matchedTarget, operation admissionv1.Operation) (out inputs) {
		for _, m := range matched {
			out = out.with(m.readsFor(operation))
		}
		return out
	}
	operations := []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
	for i := range 200 {
		operation := operations[(i*7+i/3)%len(operations)]
		var matched []matchedTarget
		for bit := range all.targets {
			if i>>bit&1 == 1 {
				matched = append(matched, matchedTarget{target: &all.targets[bit]})
			}
		}
		want := union(matched, operation)
		for range 2 {
			if got := all.readsOf(matched, operation); !reflect.DeepEqual(got, want) {
				t.Fatalf("request %d (%s): got %+v, want %+v", i, operation, got, want)
			}
		}
	}
}
