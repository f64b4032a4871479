package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/replicas"
	reports "github.com/ostiary/ostiary/controllers/violations"
)

// violationLine is a line of the manager's standard output.
type violationLine struct {
	Log, Policy, Decision, User, Operation string
	Object                                 struct{ APIVersion, Kind, Resource, Namespace, Name string }
	Owner                                  struct{ Kind, Name string }
	DryRun                                 bool
	Violations                             []struct{ Decision, Binding, Validation, Message string }
}

func (l violationLine) String() string {
	out := fmt.Sprintf("%s: %s %s of %s %s/%s (%s %s) dryRun=%t", l.Policy, l.Decision, l.Operation, l.Object.Kind,
		l.Object.Namespace, l.Object.Name, l.Owner.Kind, l.Owner.Name, l.DryRun)
	for _, f := range l.Violations {
		out += fmt.Sprintf("; %s/%s %s: %s", f.Binding, f.Validation, f.Decision, f.Message)
	}
	return out
}

// violations returns the violations about an object that the manager has logged.
func (m *process) violations(t *testing.T, name string) (lines []string) {
	t.Helper()
	output, err := m.output()
	must(t, err)
	for line := range strings.Lines(output) {
		var v violationLine
		if !strings.Contains(line, `"log":"violation"`) || json.Unmarshal([]byte(line), &v) != nil || v.Object.Name != name {
			continue
		}
		if v.User == "" || strings.Contains(line, "s3cr3t") {
			t.Errorf("line %s: want a user, and no content of the object", line)
		}
		lines = append(lines, v.String())
	}
	slices.Sort(lines)
	return lines
}

// Each policy that a request violates is one line of the log, and one series of Events in the namespace; the Lease of the
// replica has their number.
func TestViolationsAreReported(t *testing.T) {
	c := install(t)
	m := c.restarted(t, "--report-violations=log,events")
	m.awaitReady(t)
	namespace := c.namespace(t, nil)
	named := func(name string, action admissionregistrationv1.ValidationAction) func(*v1alpha1.WebhookPolicy) {
		return func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Validations[0].Name = name
			acting(action)(p)
		}
	}
	failingOpen := func(p *v1alpha1.WebhookPolicy) {
		failing(admissionregistrationv1.Ignore)(p)
		saying(`object.metadata.labels["missing"] == ""`)(p)
	}
	c.enforce(t,
		newPolicy("reports-denied", namespace, named("verdict", admissionregistrationv1.Deny)),
		newPolicy("reports-warned", namespace, named("verdict", admissionregistrationv1.Warn)),
		newPolicy("reports-audited", namespace, named("verdict", admissionregistrationv1.Audit)),
		newPolicy("reports-failed", namespace, failingOpen),
	)
	c.awaitDenied(t, namespace, "reports-denied") // dry runs

	owner := configMap(namespace, good)
	owner.Name = "owner"
	must(t, c.Create(t.Context(), owner))
	refused := configMap(namespace, bad)
	refused.Name, refused.Data["password"] = "refused", "s3cr3t"
	refused.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)},
	}
	for range 3 {
		if err := c.Create(t.Context(), refused.DeepCopy()); !deniedBy(err, "reports-denied") {
			t.Fatalf("got %v, want a denial", err)
		}
	}
	dry := configMap(namespace, bad)
	dry.Name = "dry"
	if err := c.Create(t.Context(), dry, client.DryRunAll); !deniedBy(err, "reports-denied") {
		t.Fatalf("got %v, want a denial", err)
	}
	const failed = "no such key at spec.validations[0].expression"
	want := func(name, owner string, dryRun bool) []string {
		of := fmt.Sprintf("CREATE of ConfigMap %s/%s (%s) dryRun=%t", namespace, name, owner, dryRun)
		return []string{
			"reports-audited: audit " + of + "; all/verdict audit: bad is not good",
			"reports-denied: deny " + of + "; all/verdict deny: bad is not good",
			"reports-failed: error " + of + "; / error: " + failed,
			"reports-warned: warn " + of + "; all/verdict warn: bad is not good",
		}
	}
	await(t).Eventually(func() string { return cmp.Diff(want("dry", " ", true), m.violations(t, "dry")) }).Should(BeEmpty())
	all := slices.Repeat(want("refused", "ConfigMap owner", false), 3)
	slices.Sort(all)
	if diff := cmp.Diff(all, m.violations(t, "refused")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}

	wantEvents := []string{
		`Audit of ConfigMap owner by reports-audited: WebhookPolicy "reports-audited" audited CREATE of configmaps "refused": bad is not good, twice or more: true`,
		`Deny of ConfigMap owner by reports-denied: WebhookPolicy "reports-denied" denied CREATE of configmaps "refused": bad is not good, twice or more: true`,
		`Evaluate of ConfigMap owner by reports-failed: WebhookPolicy "reports-failed" could not evaluate CREATE of configmaps "refused": ` + failed + `, twice or more: true`,
		`Evaluate of Namespace ` + namespace +
			` by reports-failed: WebhookPolicy "reports-failed" could not evaluate CREATE of configmaps "owner": ` + failed +
			`, twice or more: false`,
		`Warn of ConfigMap owner by reports-warned: WebhookPolicy "reports-warned" warned about CREATE of configmaps "refused": bad is not good, twice or more: true`,
	}
	await(t).Eventually(func() string { return cmp.Diff(wantEvents, c.violationEvents(t, namespace)) }).Should(BeEmpty())

	// The dry runs and the three requests count, and for the policy that fails the owner, too.
	await(t).Eventually(func() error {
		lease, err := c.replicaLease(t.Context(), m)
		if err != nil {
			return err
		}
		found := map[string]reports.Finding{}
		for _, f := range reports.Merge([]replicas.Replica{{Violations: lease.Annotations["admission.ostiary.dev/violations"]}}) {
			if f.Namespace == namespace {
				found[f.Policy] = f
			}
		}
		denied := uint64(m.series(t, `ostiary_policy_requests_total{decision="deny",operation="CREATE",policy="reports-denied"}`))
		if found["reports-denied"].Denied != denied || denied < 4 || found["reports-warned"].Warned < 4 ||
			found["reports-audited"].Audited < 4 || found["reports-failed"].Failed < 5 {
			return fmt.Errorf("found %+v, want %d denied requests", found, denied)
		}
		return nil
	}).Should(Succeed())
}

func (c *cluster) violationEvents(t *testing.T, namespace string) (out []string) {
	t.Helper()
	var list eventsv1.EventList
	must(t, c.List(t.Context(), &list, client.InNamespace(namespace)))
	for _, e := range list.Items {
		if e.Reason == reports.ReasonViolation && e.Type == corev1.EventTypeWarning {
			out = append(out, fmt.Sprintf("%s of %s %s by %s: %s, twice or more: %t", e.Action, e.Regarding.Kind,
				e.Regarding.Name, e.Related.Name, e.Note, e.Series != nil))
		}
	}
	slices.Sort(out)
	return out
}

// By default, violations have no lines and no Events.
func TestViolationsAreNotReportedByDefault(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("unreported", namespace))
	c.awaitDenied(t, namespace, "unreported")
	refused := configMap(namespace, bad)
	if err := c.Create(context.Background(), refused); !deniedBy(err, "unreported") {
		t.Fatalf("got %v, want a denial", err)
	}
	await(t).Consistently(func(g Gomega) {
		g.Expect(m.violations(t, refused.Name)).To(BeEmpty())
		g.Expect(c.violationEvents(t, namespace)).To(BeEmpty())
	}).Should(Succeed())
}
