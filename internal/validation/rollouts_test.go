package validation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	onPods      = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n"
	validations = "validations: [{expression: 'true'}]\n"
)

func TestActionsOfBindings(t *testing.T) {
	const (
		at         = "spec.bindings[0]."
		mutation   = "mutationAction: Forbidden: remove mutationAction: the policy has no mutations"
		validation = "validationActions: Forbidden: remove validationActions: the policy has no validations, and only Warn beside " +
			"mutationAction Preview has an effect without them"
	)
	rollout := func(step, final string) string {
		return "bindings: [{name: b, rollout: {steps: [{name: s, minDurationSeconds: 1, " + step + "}], final: {" + final + "}}}]"
	}
	tests := map[string]struct {
		spec string
		want []string
	}{
		"a preview":                   {spec: mutations + "bindings: [{name: b, mutationAction: Preview}]"},
		"a preview of a plugin":       {spec: "plugin: {name: DefaultTolerationSeconds}\nbindings: [{name: b, mutationAction: Preview}]"},
		"a preview without mutations": {spec: validations + "bindings: [{name: b, mutationAction: Preview}]", want: []string{at + mutation}},
		"applied without mutations":   {spec: validations + "bindings: [{name: b, mutationAction: Apply}]", want: []string{at + mutation}},
		"a preview of a plugin that changes nothing": {
			spec: "plugin: {name: AlwaysDeny}\nbindings: [{name: b, mutationAction: Preview}]", want: []string{at + mutation},
		},
		"a rollout of validations":  {spec: validations + rollout("validationActions: [Warn]", "validationActions: [Deny]")},
		"a rollout of both":         {spec: mutations + validations + rollout("validationActions: [Warn]", "mutationAction: Preview")},
		"a rollout of mutations":    {spec: mutations + rollout("mutationAction: Preview", "mutationAction: Apply")},
		"a warning about a preview": {spec: mutations + rollout("validationActions: [Warn]", "mutationAction: Apply")},
		"a warning about a mutation": {
			spec: mutations + rollout("mutationAction: Apply, validationActions: [Warn]", "mutationAction: Apply"),
			want: []string{at + "rollout.steps[0]." + validation},
		},
		"an audit of mutations": {
			spec: mutations + rollout("validationActions: [Audit]", "mutationAction: Apply"),
			want: []string{at + "rollout.steps[0]." + validation},
		},
		"a denial of mutations": {
			spec: mutations + rollout("mutationAction: Preview", "validationActions: [Deny]"),
			want: []string{at + "rollout.final." + validation},
		},
		"a final warning of a preview": {
			spec: mutations + rollout("mutationAction: Preview", "mutationAction: Preview, validationActions: [Warn]"),
		},
		"a rollout of no mutations": {
			spec: validations + rollout("mutationAction: Preview", "mutationAction: Apply"),
			want: []string{at + "rollout.steps[0]." + mutation, at + "rollout.final." + mutation},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, onPods+tt.spec)
			var got []string
			for _, e := range Check(p) {
				text := e.Field + ": " + e.Type.String() + ": " + e.Detail
				if strings.HasPrefix(e.Field, "spec.bindings") {
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsAboutRollouts(t *testing.T) {
	p := parse(t, onPods+validations+
		"bindings: [{name: a}, {name: b, rollout: {steps: [{name: s, minDurationSeconds: 1, validationActions: [Warn]}], "+
		"final: {validationActions: [Deny]}}}]")
	p.Spec.MatchConstraints.ObjectSelector = nil
	single := ClusterInfo{Replicas: 1}
	if got := Warnings(p, single); len(got) != 1 || !strings.HasPrefix(got[0], "spec.failurePolicy: Fail with a single replica") {
		t.Errorf("in a step: %q, want the risk of the final action", got)
	}
	p.Status.Bindings = []v1alpha1.BindingStatus{{Name: "b", Final: true}}
	want := []string{"spec.bindings[1].rollout: the rollout has reached its final action, which only the status records: replace rollout by " +
		"the content of rollout.final, so that a lost status does not begin it again"}
	if diff := cmp.Diff(want, Warnings(p, ClusterInfo{})); diff != "" {
		t.Errorf("after the last step (-want +got):\n%s", diff)
	}
}
