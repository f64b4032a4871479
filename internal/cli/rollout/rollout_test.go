package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
)

const policyYAML = `
metadata: {name: p, annotations: {admission.ostiary.dev/rollout: "skip other t9, pause gone t0, skip everywhere t1"}}
spec:
  validations: [{expression: "true"}]
  bindings:
  - name: everywhere
    rollout:
      steps:
      - {name: learn, minDurationSeconds: 86400, validationActions: [Audit]}
      - {name: warn-dev, minDurationSeconds: 3600, validationActions: [Warn], maxViolations: 0,
         namespaceSelector: {matchLabels: {tier: dev}}}
      - {name: warn, minDurationSeconds: 7200, validationActions: [Warn, Audit], maxViolations: 5}
      final: {validationActions: [Deny]}
  - name: other
    rollout: {steps: [{name: learn, minDurationSeconds: 60, mutationAction: Preview}], final: {mutationAction: Apply}}
  - name: plain
`

var now = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

func policy(t *testing.T, states ...v1alpha1.BindingStatus) *v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{}
	if err := yaml.UnmarshalStrict([]byte(policyYAML), p); err != nil {
		t.Fatal(err)
	}
	p.Status.Bindings = states
	return p
}

func at(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }

func inWarnDev() v1alpha1.BindingStatus {
	return v1alpha1.BindingStatus{Name: "everywhere", Step: "warn-dev", Token: "t2", Since: at(40 * time.Minute), Next: at(-20 * time.Minute)}
}

func TestStatus(t *testing.T) {
	held := inWarnDev()
	held.Since, held.Next = at(2*time.Hour), at(time.Hour)
	held.HeldBy, held.Examples = "3 objects violate the policy, more than 0", []string{"pods dev/web: team"}
	paused := inWarnDev()
	paused.Paused = true
	final := v1alpha1.BindingStatus{Name: "everywhere", Final: true, Token: "t4", Since: at(48 * time.Hour)}
	tests := map[string]struct {
		states []v1alpha1.BindingStatus
		want   []string // the last column by step, and what is below the table
	}{
		"no state":   {nil, []string{"in effect, not recorded yet", "-", "-", "-"}},
		"in a step":  {[]v1alpha1.BindingStatus{inWarnDev()}, []string{"done", "in effect for 40m, for 20m more", "-", "-"}},
		"paused":     {[]v1alpha1.BindingStatus{paused}, []string{"done", "in effect for 40m, paused", "-", "-"}},
		"final":      {[]v1alpha1.BindingStatus{final}, []string{"done", "done", "done", "in effect for 2d"}},
		"a lost one": {[]v1alpha1.BindingStatus{{Name: "everywhere", Step: "gone"}}, []string{"in effect, not recorded yet", "-", "-", "-"}},
		"held": {[]v1alpha1.BindingStatus{held}, []string{
			"done", "in effect for 120m, held", "-", "-",
			"", "everywhere is held: 3 objects violate the policy, more than 0", "  pods dev/web: team",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policy(t, tt.states...)
			bindings, err := selectBindings(p, "everywhere")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := write(&out, p, bindings, now); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")[1:]
			for i := range min(4, len(lines)) {
				lines[i] = lines[i][strings.LastIndex(lines[i], "   ")+3:]
			}
			if diff := cmp.Diff(tt.want, lines); diff != "" {
				t.Errorf("states (-want +got):\n%s\n%s", diff, out.String())
			}
		})
	}
}

func TestStatusTable(t *testing.T) {
	p := policy(t, inWarnDev())
	bindings, err := selectBindings(p, "")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := write(&out, p, bindings, now); err != nil {
		t.Fatal(err)
	}
	want := `BINDING      STEP       ACTIONS      NAMESPACES   AT LEAST   VIOLATIONS   STATE
everywhere   learn      Audit        all          24h        any          done
everywhere   warn-dev   Warn         tier=dev     60m        at most 0    in effect for 40m, for 20m more
everywhere   warn       Warn,Audit   all          120m       at most 5    -
everywhere   (final)    Deny         all          -          -            -
other        learn      Audit        all          60s        any          in effect, not recorded yet
other        (final)    Deny         all          -          -            -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestCommands(t *testing.T) {
	final := v1alpha1.BindingStatus{Name: "other", Final: true, Token: "t5"}
	tests := map[string]struct {
		states  []v1alpha1.BindingStatus
		binding string
		action  rollout.Action
		want    string // the annotation
		wantErr string
	}{
		"one of two": {
			[]v1alpha1.BindingStatus{inWarnDev(), {Name: "other", Step: "learn", Token: "t9"}}, "everywhere", rollout.Pause,
			"skip other t9, pause everywhere t2", "",
		},
		"both, of which one is final": {[]v1alpha1.BindingStatus{inWarnDev(), final}, "", rollout.Skip, "skip everywhere t2", ""},
		"both restart": {
			[]v1alpha1.BindingStatus{inWarnDev(), final}, "", rollout.Restart,
			"restart everywhere t2, restart other t5", "",
		},
		"one at its final action": {
			[]v1alpha1.BindingStatus{final}, "other", rollout.Complete, "",
			`binding "other" has reached its final action: only restart changes it`,
		},
		"without a recorded step": {
			nil, "other", rollout.Complete, "",
			`the step of binding "other" is not recorded yet: wait until a replica of Ostiary leads, see kubectl ostiary doctor`,
		},
		"a binding without a rollout": {
			nil, "plain", rollout.Skip, "", `the policy p has no binding "plain" with a rollout: choose one of everywhere, other`,
		},
		"a binding that does not exist": {
			nil, "othr", rollout.Skip, "", `the policy p has no binding "othr" with a rollout: choose one of everywhere, other`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := policy(t, tt.states...)
			bindings, err := selectBindings(p, tt.binding)
			var commands []rollout.Command
			if err == nil {
				commands, err = commandsFor(p, bindings, tt.action, tt.binding != "")
			}
			got, gotErr := "", ""
			if err != nil {
				gotErr = err.Error()
			} else {
				got = rollout.FormatCommands(append(waiting(p, commands), commands...))
			}
			if diff := cmp.Diff([]string{tt.want, tt.wantErr}, []string{got, gotErr}); diff != "" {
				t.Errorf("annotation and error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangedStep: a command is for the step that its user has seen.
func TestChangedStep(t *testing.T) {
	commands := []rollout.Command{{Action: rollout.Skip, Binding: "everywhere", Token: "t1"}}
	after := inWarnDev()
	after.Action = "Warn 2/3"
	want := `the step of binding "everywhere" has changed meanwhile, to Warn 2/3: ` +
		`look at kubectl ostiary rollout status p, and repeat the command`
	if err := checkCurrent(policy(t, after), commands); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	after.Token = "t1"
	if err := checkCurrent(policy(t, after), commands); err != nil {
		t.Errorf("the same step: %v", err)
	}
}

func TestArguments(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"none": {nil, "write what to do (status, pause, resume, skip, restart, complete) and the name of a policy"},
		"a typo": {
			[]string{"staus", "p"},
			`unknown command "staus": write one of status, pause, resume, skip, restart, complete, did you mean "status"?`,
		},
		"no policy":  {[]string{"skip"}, "name one policy: kubectl get whp lists them"},
		"two":        {[]string{"skip", "p", "q"}, "name one policy: kubectl get whp lists them"},
		"as written": {[]string{"skip", "p"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := checkArgs(nil, tt.args); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
