package integration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func failurePolicy(s string) admissionregistrationv1.FailurePolicyType {
	return admissionregistrationv1.FailurePolicyType(s)
}

func asStatus(err error, target **statusError) bool { return errors.As(err, target) }

// Promise: status tells the truth.
func TestStatusTellsTheTruth(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("status", namespace, acting("Deny", "Audit")))
	p := c.awaitReady(t, "status")
	for kind, reason := range map[string]string{
		v1alpha1.ConditionAccepted:   "Accepted",
		v1alpha1.ConditionRegistered: "Registered",
		v1alpha1.ConditionReady:      "Enforced",
	} {
		if got := condition(p, kind); got.Status != metav1.ConditionTrue || got.Reason != reason || got.ObservedGeneration != p.Generation {
			t.Errorf("condition %+v, want it true with reason %s about generation %d", got, reason, p.Generation)
		}
	}
	config := c.carrier(t, "status")
	if ref := p.Status.Webhooks[0]; ref.Kind != "ValidatingWebhookConfiguration" || ref.Webhook != config.Webhooks[0].Name {
		t.Errorf("webhook %+v, want %s in %s", ref, config.Webhooks[0].Name, config.Name)
	}
	c.awaitDenied(t, namespace, "status")
	if err := c.probe(t.Context(), namespace, bad); !strings.Contains(err.Error(), `"`+p.Status.Webhooks[0].Webhook+`"`) {
		t.Errorf("%v does not name the webhook of the status, %s", err, p.Status.Webhooks[0].Webhook)
	}
	c.awaitEvent(t, "status", "Normal", "Enforced")

	c.change(t, "status", saying("nonsense"))
	p = c.awaitCondition(t, "status", v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	if got := condition(p, v1alpha1.ConditionStalled); got.Status != metav1.ConditionTrue || got.Reason != "Invalid" {
		t.Errorf("condition %+v, want it true with reason Invalid", got)
	}
	c.awaitEvent(t, "status", "Warning", "Invalid")
}

// A status that says Ready is not taken for the fact: a configuration that was
// deleted while no manager ran is made again.
func TestStatusIsNotTakenForTheFact(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("follows", namespace))
	config := c.carrier(t, "follows")
	m.kill()
	must(t, c.Delete(t.Context(), config))
	c.manager(t)
	c.awaitDenied(t, namespace, "follows")
	if again := c.carrier(t, "follows"); again.UID == config.UID {
		t.Error("the configuration is the one that was deleted")
	}
}

func (c *cluster) awaitEvent(t *testing.T, policy, kind, reason string) {
	t.Helper()
	await(t).Eventually(func() error {
		var list eventsv1.EventList
		if err := c.List(t.Context(), &list); err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Regarding.Kind != "WebhookPolicy" || e.Regarding.Name != policy {
				continue
			}
			seen = append(seen, e.Type+" "+e.Reason+" "+e.Note)
			if e.Type == kind && e.Reason == reason && e.Note != "" {
				return nil
			}
		}
		return fmt.Errorf("events %q, want one %s %s", seen, kind, reason)
	}).Should(Succeed())
}

// The columns answer "is it enforced?".
func TestPrinterColumns(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("columns-good", namespace, acting("Deny", "Audit")))
	c.apply(t, newPolicy("columns-bad", namespace, saying("nonsense")))
	c.awaitCondition(t, "columns-bad", v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	tests := map[string]struct {
		args []string
		want string
	}{
		"good": {
			args: []string{"columns-good"},
			want: `^NAME +ACTIONS +READY +REASON +VIOLATIONS +AGE\ncolumns-good +Deny,Audit +True +Enforced +\d+s\n$`,
		},
		"bad": {
			args: []string{"columns-bad"},
			want: `^NAME +ACTIONS +READY +REASON +VIOLATIONS +AGE\ncolumns-bad +Deny +False +Invalid +\d+s\n$`,
		},
		"wide": {
			args: []string{"columns-good", "-o", "wide"},
			want: `^NAME +ACTIONS +READY +REASON +VIOLATIONS +AGE +FAILURE-POLICY +WEBHOOK +MESSAGE\ncolumns-good +Deny,Audit ` +
				`+True +Enforced +\d+s +Fail +ostiary-validate-\S+ +enforced: requests that fail a validation are denied and are ` +
				`recorded in the audit log\n$`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := c.kubectl(t.Context(), "", append([]string{"get", "whp"}, tt.args...)...)
			if err != nil || !regexp.MustCompile(tt.want).MatchString(out) {
				t.Errorf("kubectl ended with %v and printed\n%s%s, want %s", err, out, errOut, tt.want)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	c := install(t)
	m := c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	failures := m.series(t, "ostiary_policy_compile_failures_total")
	c.enforce(t, newPolicy("counted", namespace), newPolicy("counted-warn", namespace, acting("Warn")))
	c.apply(t, newPolicy("counted-broken", namespace, saying("nonsense")))
	c.awaitCondition(t, "counted-broken", v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	c.awaitDenied(t, namespace, "counted")

	requests := func(policy, decision string) string {
		return fmt.Sprintf(`ostiary_policy_requests_total{decision=%q,operation="CREATE",policy=%q}`, decision, policy)
	}
	names := []string{
		requests("counted", "deny"), requests("counted", "allow"), requests("counted-warn", "warn"), requests("counted-warn", "allow"),
		`ostiary_policy_evaluation_duration_seconds_count{policy="counted"}`,
	}
	before := make([]float64, len(names))
	for i, name := range names {
		before[i] = m.series(t, name)
	}
	const bads, goods = 7, 5
	for range bads {
		if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "counted") {
			t.Fatal(err)
		}
	}
	for range goods {
		must(t, c.probe(t.Context(), namespace, good))
	}
	for i, want := range []float64{bads, goods, bads, goods, bads + goods} {
		if got := m.series(t, names[i]) - before[i]; got != want {
			t.Errorf("%s grew by %v, want %v", names[i], got, want)
		}
	}
	if got := m.series(t, "ostiary_policy_compile_failures_total") - failures; got != 1 {
		t.Errorf("%v compile failures, want 1", got)
	}
	await(t).Eventually(func() float64 {
		return m.series(t,
			`ostiary_registered_configurations{phase="validate"}`)
	}).Should(BeEquivalentTo(len(c.configurations(t))))
	now := float64(time.Now().Unix())
	for _, name := range []string{"leaf", "ca"} {
		if got := m.series(t, fmt.Sprintf("ostiary_certificate_expiry_timestamp_seconds{certificate=%q}", name)); got < now+24*3600 {
			t.Errorf("certificate %s expires at %v, want more than a day from %v", name, got, now)
		}
	}
	c.remove(t, "counted")
	await(t).Eventually(func() float64 { return m.series(t, names[0]) }).Should(BeZero(), "the series of a policy go with it")
}
