package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/registration"
)

var now = time.Date(2026, time.June, 1, 12, 0, 10, 0, time.UTC)

func dump(t *testing.T) *doctor.Dump {
	t.Helper()
	d, err := cluster.Read(context.Background(), []string{"../testdata/examples/cluster.yaml"}, nil, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// addRollouts adds rollouts in several states.
func addRollouts(d *doctor.Dump) {
	steps := []v1alpha1.RolloutStep{{Name: "learn"}, {Name: "warn"}}
	for i := range d.Policies {
		if p := &d.Policies[i]; p.Name == "allowed-teams" {
			p.Spec.Bindings = []v1alpha1.Binding{
				{Name: "done", Rollout: &v1alpha1.Rollout{Steps: steps}},
				{Name: "held", Rollout: &v1alpha1.Rollout{Steps: steps}},
				{Name: "learning", Rollout: &v1alpha1.Rollout{Steps: steps[:1]}},
			}
			p.Status.Bindings = []v1alpha1.BindingStatus{
				{Name: "done", Final: true, Action: "Deny"},
				{Name: "held", Step: "warn", Action: "Warn 2/2", HeldBy: "3 objects", Since: &metav1.Time{Time: now.Add(-30 * time.Hour)}},
			}
		}
	}
}

func TestWrite(t *testing.T) {
	const rows = `
POLICY               ACTIONS   READY   REASON           FAILURE-POLICY   DENIED   DENIED/MIN   AGE
allowed-teams        Deny      False   ParamsNotReady   Fail             NO       RATE         24h
require-team-label   Deny      True    Enforced         Fail             REQUIRED RATE         31d

allowed-teams: the API server has no kind Teams in example.com/v1
`
	table := func(summary string, values ...string) string {
		return summary + "\n" + strings.NewReplacer(values...).Replace(rows)
	}
	for name, tc := range map[string]struct {
		change  func(*doctor.Dump)
		metrics *metrics
		why     error // without metrics
		at      time.Time
		want    string
	}{
		"without metrics": {
			at: now,
			want: table("Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde", "NO      ", "-       ", "REQUIRED",
				"-       ", "RATE", "-   "),
		},
		"with metrics": {
			at: now, metrics: &metrics{denied: map[string]int{"require-team-label": 12}, expires: now.Add(48 * time.Hour)},
			want: table("Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde, certificate expires in 2d",
				"NO      ", "0       ", "REQUIRED", "12      ", "RATE", "-   "),
		},
		"after its Leases have expired": {
			at: now.Add(time.Hour), want: table("Ostiary in ostiary-system: 0 replicas, no leader\n\n"+
				"No replica leads: the columns READY and REASON are what the last leader wrote, and can be wrong. See kubectl "+
				"ostiary doctor", "NO      ", "-       ", "REQUIRED", "-       ", "RATE", "-   ", "24h", "25h"),
		},
		"without a token": {
			at: now, why: errors.New("the context has no token"),
			want: table("Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde", "NO      ", "n/a     ", "REQUIRED",
				"n/a     ", "RATE", "n/a ",
				"\nallowed-teams: ", "\nDENIED is not known: the context has no token\n\nallowed-teams: "),
		},
		"without leader election": {
			at: now, change: withoutElection,
			want: table("Ostiary in ostiary-system: 1 of 1 replicas, without leader election", "NO      ", "-       ",
				"REQUIRED", "-       ", "RATE", "-   "),
		},
		"without leader election, ended": {
			at: now.Add(time.Hour), change: withoutElection, want: table("Ostiary in ostiary-system: 0 of 1 replicas, without leader election\n\n"+
				"No replica leads: the columns READY and REASON are what the last leader wrote, and can be wrong. See kubectl "+
				"ostiary doctor", "NO      ", "-       ", "REQUIRED", "-       ", "RATE", "-   ", "24h", "25h"),
		},
		"without Ostiary": {
			at: now, change: func(d *doctor.Dump) { d.Leases, d.Policies = []coordinationv1.Lease{}, nil },
			want: "No replica of Ostiary has ever led in this cluster\n\nThere are no policies\n",
		},
		"several calls": {
			at: now, change: func(d *doctor.Dump) { d.Validating = append(d.Validating, differentTimeouts()...) },
			want: table("Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde", "NO      ", "-       ", "REQUIRED",
				"-       ", "RATE", "-   ",
				"\nallowed-teams: ", "\nRequests that can cost several calls: pods (0 mutating, 2 validating)\n\nallowed-teams: "),
		},
		"rollouts": {
			at: now, change: addRollouts,
			want: table("Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde", "NO      ", "-       ", "REQUIRED",
				"-       ", "RATE", "-   ",
				"\nallowed-teams: ", "\nROLLOUT                  ACTION     STEPS                      STATE                         HELD BY\n"+
					"allowed-teams/held       Warn 2/2   learn > [warn] > (final)   in effect for 30h, held       3 objects\n"+
					"allowed-teams/learning   -          [learn] > (final)          in effect, not recorded yet   -\n"+
					"\nallowed-teams: "),
		},
		"without access to Leases": {
			at: now, change: func(d *doctor.Dump) { d.Leases, d.Policies = nil, nil },
			want: "Whether Ostiary runs in this cluster is not known, because its Leases were not read\n\nThere are no policies\n",
		},
		"a new generation": {
			at: now, change: func(d *doctor.Dump) { d.Policies = d.Policies[:1]; d.Policies[0].Generation = 2 },
			want: "Ostiary in ostiary-system: 1 replica, leader ostiary-5d9f-abcde\n\n" +
				"POLICY               ACTIONS   READY     REASON   FAILURE-POLICY   DENIED   DENIED/MIN   AGE\n" +
				"require-team-label   Deny      Unknown            Fail             -        -            31d\n\n" +
				"require-team-label: Ostiary has not reported the policy yet\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := dump(t)
			if tc.change != nil {
				tc.change(d)
			}
			var out strings.Builder
			if err := statusOf(d, tc.metrics, tc.why, tc.at).write(&out, output.Style{}, false, tc.at); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// differentTimeouts returns the configurations of two policies for Pods.
func differentTimeouts() []admissionregistrationv1.ValidatingWebhookConfiguration {
	var out []admissionregistrationv1.ValidatingWebhookConfiguration
	in := registration.Input{Endpoint: registration.Endpoint{URL: "https://127.0.0.1:9443"}}
	for i := range int32(2) {
		in.Policies = append(in.Policies, &v1alpha1.WebhookPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: string('a' + i)},
			Spec: v1alpha1.WebhookPolicySpec{
				TimeoutSeconds: new(i + 1),
				Validations:    []v1alpha1.Validation{{Expression: "true"}},
				MatchConstraints: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
						},
					}},
				},
			},
		})
	}
	for _, g := range registration.Build(in).Groups {
		if c, ok := g.Configuration.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
			out = append(out, *c)
		}
	}
	return out
}

// withoutElection replaces the Lease of the leader by a Deployment without leader election.
func withoutElection(d *doctor.Dump) {
	d.Leases = slices.DeleteFunc(d.Leases, func(l coordinationv1.Lease) bool { return l.Name == doctor.LeaderLease })
	replicas := int32(1)
	d.Deployments = []appsv1.Deployment{{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "ostiary",
			Namespace: "ostiary-system",
			Labels:    map[string]string{"app.kubernetes.io/name": "ostiary"},
		},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Args: []string{"--leader-elect=false"}}}},
		}},
	}}
}

// TestWide has the columns of kubectl get whp -o wide.
func TestWide(t *testing.T) {
	d := dump(t)
	d.Policies = d.Policies[:1]
	d.Policies[0].Status.Audit = &v1alpha1.AuditStatus{Summary: "≥ 12"}
	d.Policies[0].Status.Webhooks = []v1alpha1.WebhookReference{{Configuration: "ostiary-validate-1"}, {Configuration: "ostiary-mutate-2"}}
	var out strings.Builder
	if err := statusOf(d, nil, nil, now).write(&out, output.Style{}, true, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AGE   VIOLATIONS   WEBHOOKS", " ≥ 12         ostiary-validate-1,ostiary-mutate-2   "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s, want %q", out.String(), want)
		}
	}
}

const exposed = `# TYPE ostiary_policy_requests_total counter
ostiary_policy_requests_total{decision="deny",operation="CREATE",policy="a"} 3
ostiary_policy_requests_total{decision="deny",operation="UPDATE",policy="a"} 2
ostiary_policy_requests_total{decision="allow",operation="CREATE",policy="a"} 100
# TYPE ostiary_certificate_expiry_timestamp_seconds gauge
ostiary_certificate_expiry_timestamp_seconds{certificate="leaf"} 1.79e+09
ostiary_certificate_expiry_timestamp_seconds{certificate="ca"} 1.7e+09
`

func TestParse(t *testing.T) {
	m := &metrics{denied: map[string]int{}}
	for range 2 { // replicas
		if err := m.parse(strings.NewReader(exposed)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 10}, m.denied); diff != "" {
		t.Errorf("denied (-want +got):\n%s", diff)
	}
	if want := time.Unix(1.79e9, 0).UTC(); !m.expires.Equal(want) {
		t.Errorf("the certificate expires %s, want %s", m.expires, want)
	}
	if err := m.parse(strings.NewReader("<html>")); err == nil {
		t.Error("no error for a page")
	}
}

func TestDeniedPerMinute(t *testing.T) {
	var h history
	for i, step := range []struct {
		after  time.Duration
		denied int
		want   float64 // -1 is unknown
	}{
		{after: 0, denied: 100, want: -1},
		{after: 30 * time.Second, denied: 110, want: 20},
		{after: 60 * time.Second, denied: 130, want: 30},
		{after: 90 * time.Second, denied: 140, want: 30}, // since the second sample
		{after: 100 * time.Second, denied: 5, want: -1},  // a replica has ended
		{after: 200 * time.Second, denied: 5, want: -1},  // the only sample of the last minute
		{after: 230 * time.Second, denied: 15, want: 20},
	} {
		s := &Status{Policies: []Policy{{Name: "a"}}}
		h.add(s, &metrics{denied: map[string]int{"a": step.denied}}, now.Add(step.after))
		got := -1.0
		if rate := s.Policies[0].DeniedPerMinute; rate != nil {
			got = *rate
		}
		if got != step.want {
			t.Errorf("sample %d: %v per minute, want %v", i, got, step.want)
		}
	}
}

func TestTimeLine(t *testing.T) {
	for want, numbers := range map[string][]int{
		"":         nil,
		"▁▁":       {0, 0},
		"▁▂█":      {0, 1, 100},
		"▁▁?█▅":    {0, 0, unknownStep, 4, 2},
		"▂▃▄▅▆▇█▁": {1, 2, 3, 4, 5, 6, 7, 0},
	} {
		if got := timeLine(numbers); got != want {
			t.Errorf("%v is %s, want %s", numbers, got, want)
		}
	}
}

// TestInvalidMetrics has texts with which the parser of Prometheus panics.
func TestInvalidMetrics(t *testing.T) {
	for _, text := range []string{"#TYPE A0000000 \n{}", "# TYPE a counter\n{"} {
		m := &metrics{denied: map[string]int{}}
		if err := m.parse(strings.NewReader(text)); err == nil || !strings.HasPrefix(err.Error(), "parsing: ") {
			t.Errorf("%q: got %v, want an error", text, err)
		}
	}
}

// FuzzMetrics checks that every text gives numbers or an error.
func FuzzMetrics(f *testing.F) {
	f.Add(requestsMetric + `{policy="p",operation="CREATE",decision="deny"} 3` + "\n")
	f.Add("#TYPE A0000000 \n{}")
	f.Add("# TYPE " + expiryMetric + " gauge\n" + expiryMetric + `{certificate="leaf"} 1e300` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		m := &metrics{denied: map[string]int{}}
		if err := m.parse(strings.NewReader(text)); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
	})
}
