package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
)

// panicOften evaluates a group with a panicking policy p and a neighbour q, and
// gives what was told on the way.
func panicOften(t *testing.T, spec string, times int) (group *Group, host Host, told *[]Quarantine) {
	t.Helper()
	group = groupFrom(t, map[string]string{"p": "validations: [{expression: 'true'}]\n" + spec, "q": "validations: [{expression: 'object.metadata.name != \"no\"', message: q}]"})
	for _, p := range group.policies {
		if p.name == "p" {
			p.validator, p.plain = panicking{}, nil
			p.uid, p.generation = "uid", 7
		}
	}
	group = regroup(group)
	told = &[]Quarantine{}
	host = hostOf()
	host.Panicked = func(string, any, []byte) {}
	host.Quarantined = func(q Quarantine) { *told = append(*told, q) }
	for range times {
		evaluate(t, group, podInput(t, admission.Create).review(t), host)
	}
	return group, host, told
}

func TestPolicyThatPanicsIsQuarantined(t *testing.T) {
	const why = "it is quarantined: its evaluation panicked 3 times on this replica, so it is not evaluated until it is changed"
	tests := map[string]struct {
		spec         string
		panics       int
		wantTold     []Quarantine
		wantMessage  string
		wantWarnings []string
	}{
		"not after two": {panics: 2 - 1, wantMessage: "WebhookPolicy 'p' denied request: internal error: the evaluation panicked"},
		"Fail refuses": {
			panics: 5, wantTold: []Quarantine{{Policy: "p", UID: "uid", Generation: 7}},
			wantMessage: "WebhookPolicy 'p' denied request: " + why,
		},
		"Ignore warns": {
			spec: "failurePolicy: Ignore", panics: 5, wantTold: []Quarantine{{Policy: "p", UID: "uid", Generation: 7}},
			wantWarnings: []string{"WebhookPolicy 'p' has not looked at this request: " + why},
		},
		"a binding that warns": {
			spec: "bindings: [{name: b, validationActions: [Warn]}]", panics: 5, wantTold: []Quarantine{{Policy: "p", UID: "uid", Generation: 7}},
			wantWarnings: []string{"Validation failed for WebhookPolicy 'p' with binding 'b': " + why},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			group, host, told := panicOften(t, tt.spec, tt.panics)
			resp := evaluate(t, group, podInput(t, admission.Create).review(t), host)
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tt.wantMessage {
				t.Errorf("message = %q, want %q", message, tt.wantMessage)
			}
			if diff := cmp.Diff(tt.wantWarnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantTold, *told); len(tt.wantTold)+len(*told) > 0 && diff != "" {
				t.Errorf("told of (-want +got):\n%s", diff)
			}
			raw := podInput(t, admission.Create).review(t)
			raw.Object.Raw = []byte(`{"metadata":{"name":"no"}}`)
			resp, err := group.Validate(t.Context(), raw, host)
			if err != nil || resp.Allowed || !strings.HasSuffix(resp.Result.Message, "WebhookPolicy 'q' denied request: q") {
				t.Errorf("the neighbour's answer is %+v, %v", resp, err)
			}
		})
	}
}

func TestPolicyWhoseMutationPanicsIsQuarantined(t *testing.T) {
	for failurePolicy, want := range map[string]bool{"Fail": false, "Ignore": true} {
		group := groupFrom(t, map[string]string{
			"a": mutations(label("a", `"1"`)), "b": mutations(label("b", "namespaceObject.metadata.name")) + "failurePolicy: " + failurePolicy,
		})
		host := testWorld.host()
		host.Namespaces = nil
		panics := 0
		host.Panicked = func(string, any, []byte) { panics++ }
		var told []Quarantine
		host.Quarantined = func(q Quarantine) { told = append(told, q) }
		for range 5 {
			resp := mutate(t, group, podInput(t, admission.Create).review(t), host)
			if resp.Allowed != want {
				t.Errorf("%s: allowed = %t", failurePolicy, resp.Allowed)
			}
			if warned := len(resp.Warnings) == 1 && strings.Contains(resp.Warnings[0], "WebhookPolicy 'b' has not looked at this request"); warned != (want && panics >= maxPanics) {
				t.Errorf("%s: warnings %q after %d panics", failurePolicy, resp.Warnings, panics)
			}
			if want && !strings.Contains(string(resp.Patch), "/metadata/labels/a") {
				t.Errorf("%s: patch %s, want that of the neighbour", failurePolicy, resp.Patch)
			}
		}
		if panics != maxPanics || len(told) != 1 {
			t.Errorf("%s: %d panics, told of %v", failurePolicy, panics, told)
		}
	}
}
