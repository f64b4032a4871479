package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/replicas"
	counts "github.com/ostiary/ostiary/controllers/violations"
)

// audited returns the shared manager with the audit, and with the kinds of reports.
func (c *cluster) audited(t *testing.T, flags ...string) *process {
	t.Helper()
	const folder = "../../config/components/reports/"
	if out, errOut, err := c.kubectl(t.Context(), "", "apply", "-f", folder+"reports.yaml", "-f",
		folder+"cluster_reports.yaml", "-f", folder+"role.yaml"); err != nil {
		t.Fatalf("kubectl apply: %v: %s%s", err, out, errOut)
	}
	c.restarted(t, append([]string{"--audit-interval=1h", "--report-results=500"}, flags...)...)
	return c.manager(t)
}

// storedKinds are ten kinds of objects, each with a label and a number in its name.
func storedKinds() []string {
	metadata := "metadata: {name: audited-%d, namespace: %s, labels: {%s}}\n"
	return []string{
		"apiVersion: v1\nkind: ConfigMap\n" + metadata + "data: {a: b}",
		"apiVersion: v1\nkind: ServiceAccount\n" + metadata,
		"apiVersion: v1\nkind: Service\n" + metadata + "spec: {ports: [{port: 80}]}",
		"apiVersion: v1\nkind: LimitRange\n" + metadata + "spec: {limits: [{type: Pod, max: {cpu: '8'}}]}",
		"apiVersion: v1\nkind: ResourceQuota\n" + metadata + "spec: {hard: {secrets: '100'}}",
		"apiVersion: v1\nkind: PodTemplate\n" + metadata + "template: {spec: {containers: [{name: c, image: i}]}}",
		"apiVersion: apps/v1\nkind: Deployment\n" + metadata +
			"spec: {paused: true, replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: " +
			"{containers: [{name: c, image: i}]}}}",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n" + metadata,
		"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n" + metadata + "spec: {podSelector: {}}",
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\n" + metadata + "spec: {maxUnavailable: 1}",
	}
}

// storeKinds creates the objects of all kinds: a third is bad, and a third has no verdict.
func (c *cluster) storeKinds(t *testing.T, namespace string, each int) (out []*unstructured.Unstructured) {
	t.Helper()
	for _, text := range storedKinds() {
		for i := range each {
			label := []string{"verdict: bad", "verdict: good", "other: label"}[i%3]
			u := &unstructured.Unstructured{}
			must(t, yaml.Unmarshal(fmt.Appendf(nil, text, i, namespace, label), &u.Object))
			must(t, c.Create(t.Context(), u))
			out = append(out, u)
		}
	}
	return out
}

// onStored returns a policy on updates of all namespaced objects of some groups.
func onStored(name, namespace, expression string, edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	p := newPolicy(name, namespace, append([]func(*v1alpha1.WebhookPolicy){saying(expression)}, edits...)...)
	p.Spec.Validations[0].Name = "label"
	r := &p.Spec.MatchConstraints.ResourceRules[0]
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	r.APIGroups, r.Resources = []string{"", "apps", "rbac.authorization.k8s.io", "networking.k8s.io", "policy"}, []string{"*"}
	r.Scope = ptr.To(admissionregistrationv1.NamespacedScope)
	return p
}

// reportClient reads reports with the types of their project, and gets warnings.
func (c *cluster) reportClient(t *testing.T) (client.Client, *recorder) {
	t.Helper()
	warned := &recorder{}
	config := rest.CopyConfig(c.config)
	config.WarningHandler = warned
	scheme := runtime.NewScheme()
	must(t, openreportsv1alpha1.Install(scheme))
	out, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return out, warned
}

// updateFindings sends a dry-run update of each object and returns, as "policy kind name
// result", what the policies say.
func updateFindings(t *testing.T, c client.Client, warned *recorder, objects []*unstructured.Unstructured, policies []string) []string {
	t.Helper()
	var out []string
	for _, o := range objects {
		current := o.DeepCopy() // controllers can have changed its status
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), current))
		warned.texts = nil
		err := c.Update(t.Context(), current, client.DryRunAll)
		for _, name := range policies {
			subject, result := "Policy '"+name+"'", "" // native ones too
			switch {
			case err != nil && strings.Contains(err.Error(), subject) && strings.HasPrefix(name, "fails"):
				result = "error"
			case err != nil && strings.Contains(err.Error(), subject):
				result = "fail"
			case slices.ContainsFunc(warned.texts, func(text string) bool { return strings.Contains(text, subject) }):
				result = "warn"
			default:
				continue
			}
			out = append(out, strings.Join([]string{name, o.GetKind(), o.GetName(), result}, " "))
		}
	}
	slices.Sort(out)
	return out
}

// reportFindings returns the same from the reports of a namespace.
func reportFindings(ctx context.Context, c client.Client, namespace string) (out []string, err error) {
	var list openreportsv1alpha1.ReportList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		if r.Source == requestSource {
			continue
		}
		if len(r.Results) > 500 {
			return nil, fmt.Errorf("report %s has %d results", r.Name, len(r.Results))
		}
		for _, result := range r.Results {
			if len(result.Subjects) != 1 || result.Subjects[0].Namespace != namespace || result.Description == "" {
				return nil, fmt.Errorf("a result without an object or a message: %+v", result)
			}
			if o := result.Subjects[0]; strings.HasPrefix(o.Name, "audited-") {
				out = append(out, strings.Join([]string{result.Policy, o.Kind, o.Name, string(result.Result)}, " "))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// The audit finds, object by object, what a dry-run update of each object finds: 2,000
// objects of ten kinds in two namespaces, or 200 in the short form.
func TestAuditFindsWhatUpdatesFind(t *testing.T) {
	namespaces, each := 2, 100
	if testing.Short() {
		namespaces, each = 1, 20
	}
	for i := range namespaces {
		t.Run(fmt.Sprintf("%d objects, %d", 10*each, i+1), func(t *testing.T) { testAudit(t, each) })
	}
}

// testAudit compares the results for some objects of each kind in one namespace.
func testAudit(t *testing.T, each int) {
	c := install(t)
	m := c.audited(t)
	reports, warned := c.reportClient(t)
	namespace, neighbour := c.namespace(t, nil), c.namespace(t, nil)
	objects := c.storeKinds(t, namespace, each)
	c.storeKinds(t, neighbour, 3)
	const hasVerdict = `has(object.metadata.labels) && "verdict" in object.metadata.labels`
	names := []string{"denies-stored", "warns-stored", "fails-on-stored"}
	c.enforce(t,
		onStored(names[0], namespace, "!("+hasVerdict+`) || object.metadata.labels.verdict != "bad"`),
		onStored(names[1], namespace, hasVerdict, acting(admissionregistrationv1.Warn)),
		onStored(names[2], namespace, `object.metadata.labels.verdict != "missing"`, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"configmaps", "roles"}
		}),
		onStored("of-neighbour", neighbour, "!("+hasVerdict+`) || object.metadata.labels.verdict != "bad"`),
		onStored("reads-user", namespace, `request.userInfo.username != ""`),
	)
	var want []string
	await(t).Eventually(func() error { // API servers use new configurations a moment later
		want = updateFindings(t, reports, warned, objects[:3], names)
		if len(want) < 3 {
			return fmt.Errorf("only %v are enforced", want)
		}
		return nil
	}).Should(Succeed())
	want = updateFindings(t, reports, warned, objects, names)
	awaitFindings(t, reports, namespace, want)

	c.awaitAudit(t, "denies-stored", func(s *v1alpha1.AuditStatus) error {
		bad := int64(10 * ((each + 2) / 3))
		if s.Violations != nil || s.Errors != 0 || s.Objects < int64(10*each) || s.Time == nil || len(s.Examples) != 5 {
			return fmt.Errorf("want %d or more objects, 5 examples, and no number, because Secrets are not read", 10*each)
		}
		if want := fmt.Sprintf("≥ %d", bad); s.Summary != want {
			return fmt.Errorf("want the summary %q", want)
		}
		if text := strings.Join(s.Missing, "\n"); !strings.Contains(text, `{apiGroups: [""], resources: ["secrets"], verbs: [list, watch]}`) {
			return errors.New("want the missing permission for secrets")
		}
		return nil
	})
	c.awaitAudit(t, "reads-user", func(s *v1alpha1.AuditStatus) error {
		if s.Violations != nil || s.Summary != "n/a" || len(s.Missing) != 1 ||
			!strings.Contains(s.Missing[0], "spec.validations[0].expression reads request.userInfo") {
			return errors.New("want the reason why it is not evaluated")
		}
		return nil
	})
	series := fmt.Sprintf(`ostiary_audit_violations{namespace=%q,operation="UPDATE",policy="denies-stored"}`, namespace)
	if got := m.series(t, series); got != float64(10*((each+2)/3)) {
		t.Errorf("%s is %v", series, got)
	}

	c.awaitRequests(t, m, reports, namespace, "denies-stored")

	// What is gone has no results.
	for _, o := range objects[:each] {
		must(t, c.Delete(t.Context(), o))
	}
	want = slices.DeleteFunc(want, func(s string) bool { return strings.Contains(s, " ConfigMap ") })
	awaitFindings(t, reports, namespace, want)
	m.kill() // the next leader finds what is deleted while none scans
	for _, o := range objects[2*each : 3*each] {
		must(t, c.Delete(t.Context(), o))
	}
	c.audited(t)
	want = slices.DeleteFunc(want, func(s string) bool { return strings.Contains(s, " Service ") })
	awaitFindings(t, reports, namespace, want)
	c.remove(t, "warns-stored")
	want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "warns-stored ") })
	awaitFindings(t, reports, namespace, want)
	c.change(t, "denies-stored", func(p *v1alpha1.WebhookPolicy) { p.Spec.Audit = &v1alpha1.Audit{Enabled: ptr.To(false)} })
	want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "denies-stored ") })
	awaitFindings(t, reports, namespace, want)
	c.testReadersOfReports(t, namespace, neighbour)
}

// createFindings sends a dry-run creation of a copy of each object, under another name, and
// returns, as "policy kind name", what the policies deny.
func createFindings(t *testing.T, c client.Client, objects []*unstructured.Unstructured, policies []string) (out []string) {
	t.Helper()
	for _, o := range objects {
		copied := o.DeepCopy()
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), copied)) // controllers can have changed its status
		copied.SetName("copy-of-" + o.GetName())
		copied.SetResourceVersion("")
		for _, address := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(copied.Object, "spec", address)
		}
		err := c.Create(t.Context(), copied, client.DryRunAll)
		for _, name := range policies {
			if err != nil && strings.Contains(err.Error(), "Policy '"+name+"'") {
				out = append(out, strings.Join([]string{name, o.GetKind(), o.GetName()}, " "))
			}
		}
	}
	slices.Sort(out)
	return out
}

// createReports returns the same from the reports of a namespace.
func createReports(ctx context.Context, c client.Client, namespace string) (out []string, err error) {
	var list openreportsv1alpha1.ReportList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, r := range list.Items {
		for _, result := range r.Results {
			if result.Properties["operation"] != "CREATE" || !strings.HasPrefix(result.Subjects[0].Name, "audited-") {
				continue
			}
			out = append(out, strings.Join([]string{result.Policy, result.Subjects[0].Kind, result.Subjects[0].Name}, " "))
		}
	}
	slices.Sort(out)
	return out, nil
}

// The audit finds, object by object, what the dry-run creation of a copy finds.
func TestAuditFindsWhatCreationsFind(t *testing.T) {
	c := install(t)
	m := c.audited(t)
	reports, _ := c.reportClient(t)
	namespace := c.namespace(t, nil)
	objects := c.storeKinds(t, namespace, 4)
	on := func(name, expression string, operations ...admissionregistrationv1.OperationType) *v1alpha1.WebhookPolicy {
		p := onStored(name, namespace, expression)
		p.Spec.MatchConstraints.ResourceRules[0].Operations = operations
		return p
	}
	const (
		create, update = admissionregistrationv1.Create, admissionregistrationv1.Update
		guard          = `(oldObject != null && object.metadata.labels == oldObject.metadata.labels) || `
		good           = `object.metadata.?labels.verdict.orValue("") != "bad"`
		isNew          = `!has(object.metadata.resourceVersion) && object.metadata.?generation.orValue(1) == 1 && has(object.metadata.uid)`
	)
	policies := []*v1alpha1.WebhookPolicy{
		on("new-only", good, create),
		on("new-or-changed", guard+good, create, update),
		on("by-operation", `request.operation == "UPDATE" || `+good, create, update),
		on("has-status", `!has(object.status)`, create),
		on("fills-status", `!has(object.status) || object.status.size() == 0`, create),
		on("not-new", isNew, create),
	}
	c.enforce(t, policies...)
	var names []string
	for _, p := range policies {
		names = append(names, p.Name)
	}
	var want []string
	await(t).Eventually(func() error { // API servers use new configurations a moment later
		want = createFindings(t, reports, objects, names)
		for _, name := range names[:5] {
			if !slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, name+" ") }) {
				return fmt.Errorf("%s is not enforced", name)
			}
		}
		return nil
	}).Should(Succeed())
	await(t).Eventually(func() error {
		got, err := createReports(t.Context(), reports, namespace)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("findings of creations and reports (-want +got):\n%s", diff[:min(len(diff), 2000)])
		}
		return nil
	}).Should(Succeed())
	bad := len(objects) / 2 // the first and the last of four
	c.awaitAudit(t, "new-or-changed", func(s *v1alpha1.AuditStatus) error {
		if text := fmt.Sprintf("≥ 0 + %d on create", bad); s.Summary != text {
			return fmt.Errorf("want the summary %q", text)
		}
		return nil
	})
	series := fmt.Sprintf(`ostiary_audit_violations{namespace=%q,operation="CREATE",policy="new-only"}`, namespace)
	if got := m.series(t, series); got != float64(bad) {
		t.Errorf("%s is %v, want %d", series, got, bad)
	}
}

// requestSource is the source of reports about requests.
const requestSource = "ostiary-admission"

// awaitRequests waits until the report about requests has the number of those that a policy
// has denied in a namespace: all dry runs of this test.
func (c *cluster) awaitRequests(t *testing.T, m *process, reports client.Client, namespace, policy string) {
	t.Helper()
	await(t).Eventually(func() error {
		lease, err := c.replicaLease(t.Context(), m)
		if err != nil {
			return err
		}
		var r openreportsv1alpha1.Report
		if err := reports.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: requestSource}, &r); err != nil {
			return err
		}
		for _, f := range counts.Merge([]replicas.Replica{{Violations: lease.Annotations["admission.ostiary.dev/violations"]}}) {
			i := slices.IndexFunc(r.Results, func(of openreportsv1alpha1.ReportResult) bool { return of.Policy == f.Policy })
			switch {
			case f.Policy != policy || f.Namespace != namespace:
			case i < 0 || r.Results[i].Properties["denied"] != strconv.FormatUint(f.Denied, 10) || r.Results[i].Result != "fail":
				return fmt.Errorf("want %d denied requests of %s, got %+v", f.Denied, policy, r.Results)
			default:
				return nil
			}
		}
		return fmt.Errorf("the Lease of the replica has no request that %s denied", policy)
	}).Should(Succeed())
}

func awaitFindings(t *testing.T, c client.Client, namespace string, want []string) {
	t.Helper()
	await(t).Eventually(func() error {
		got, err := reportFindings(t.Context(), c, namespace)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("findings of updates and reports (-want +got):\n%s", diff[:min(len(diff), 2000)])
		}
		return nil
	}).Should(Succeed())
}

func (c *cluster) awaitAudit(t *testing.T, policy string, check func(*v1alpha1.AuditStatus) error) {
	t.Helper()
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), policy)
		if err != nil {
			return err
		}
		if p.Status.Audit == nil {
			return fmt.Errorf("policy %s has no result", policy)
		}
		if err := check(p.Status.Audit); err != nil {
			return fmt.Errorf("%w; got %+v", err, *p.Status.Audit)
		}
		return nil
	}).Should(Succeed())
}

// testReadersOfReports grants a user the reports of one namespace, as docs/operations/audit.md does.
func (c *cluster) testReadersOfReports(t *testing.T, own, other string) {
	t.Helper()
	for _, args := range [][]string{
		{"-n", own, "create", "role", "report-reader", "--verb=get,list,watch", "--resource=reports.openreports.io"},
		{"-n", own, "create", "rolebinding", "report-reader", "--role=report-reader", "--user=tenant"},
	} {
		if _, errOut, err := c.kubectl(t.Context(), "", args...); err != nil {
			t.Fatalf("kubectl %v: %v: %s", args, err, errOut)
		}
	}
	asTenant := func(args ...string) (string, error) {
		_, errOut, err := c.kubectl(t.Context(), "", append([]string{"--as=tenant", "get"}, args...)...)
		return errOut, err
	}
	await(t).Eventually(func() error { _, err := asTenant("reports.openreports.io", "ostiary", "-n", own); return err }).Should(Succeed())
	for _, args := range [][]string{
		{"reports.openreports.io", "-n", other}, {"reports.openreports.io", "-A"}, {"clusterreports.openreports.io"},
	} {
		if errOut, err := asTenant(args...); err == nil || !strings.Contains(errOut, "Forbidden") {
			t.Errorf("kubectl get %v as the user of another namespace: %v: %s", args, err, errOut)
		}
	}
}
