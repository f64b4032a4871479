package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/violations"
)

// reportOfShop is a report as Ostiary writes it, and rights of users for the command.
const reportOfShop = `
apiVersion: openreports.io/v1alpha1
kind: Report
metadata: {namespace: shop, name: ostiary, labels: {app.kubernetes.io/managed-by: ostiary}}
source: ostiary
summary: {pass: 0, fail: 1, warn: 0, error: 0, skip: 0}
results:
- source: ostiary
  policy: require-team-label
  result: fail
  scored: true
  message: add the label team
  properties: {operation: UPDATE, controller: ReplicaSet/web}
  resources: [{apiVersion: v1, kind: Pod, namespace: shop, name: of-report}]
`

const tenants = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: shop, name: report-reader}
rules: [{apiGroups: [openreports.io], resources: [reports], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: shop, name: report-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: report-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: policy-reader}
rules:
- {apiGroups: [admission.ostiary.dev], resources: [webhookpolicies], verbs: [list]}
- {apiGroups: [""], resources: [namespaces], verbs: [get]}
- {apiGroups: [""], resources: [pods, configmaps], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: policy-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: policy-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: auditor}]
`

// testViolations compares what the command finds by a scan and in reports, for users with
// different rights. Ostiary does not run here: the policies have no status.
func testViolations(t *testing.T, p planter) {
	p.plant(t, p.parse(t, tenants))
	scanned := []string{"require-team-label shop Pod/web-0 UPDATE", "two-bindings shop Pod/web-0 CREATE"}
	check := func(name string, wantStatus int, wantSource violations.Source, want, wantMissing []string, args ...string) {
		t.Run(name, func(t *testing.T) {
			var got violations.Violations
			status, out, errOut := ostiary(t, "", append([]string{"violations", "-o", "json"}, args...)...)
			must(t, json.Unmarshal([]byte(out), &got))
			if status != wantStatus || got.Source != wantSource {
				t.Errorf("status %d, source %s (%s), want %d, %s\n%s", status, got.Source, got.Why, wantStatus, wantSource, errOut)
			}
			var lines []string
			for _, v := range got.Violations {
				lines = append(lines, strings.Join([]string{v.Policy, v.Namespace, v.Owner, v.Operation}, " "))
			}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			for _, subject := range wantMissing {
				if !slices.ContainsFunc(got.Missing, func(m violations.Missing) bool { return m.Subject == subject }) {
					t.Errorf("%q is not among what is missing: %+v", subject, got.Missing)
				}
			}
			if wantSource == violations.SourceReports && (got.NewestReport == nil || time.Since(*got.NewestReport) > time.Hour) {
				t.Errorf("the reports were written at %v", got.NewestReport)
			}
		})
	}
	check("no kinds of reports", output.StatusFindings, violations.SourceScan, scanned, []string{"keep-pods", "frozen-names"}, "-n", "shop")
	everywhere := append([]string{"allowed-teams default Service/kubernetes CREATE"}, scanned...)
	check("all namespaces", output.StatusFindings, violations.SourceScan, everywhere, nil)
	check("one policy", output.StatusFindings, violations.SourceScan, scanned[:1], nil, "--policy", "require-team-label")
	check("another namespace", output.StatusOK, violations.SourceScan, nil, nil, "-n", "other")
	check("no access", output.StatusError, violations.SourceScan, scanned, []string{"services"}, "-n", "shop", "--as", "auditor")

	folder := "../../config/components/reports/"
	p.plant(t, append(p.read(t, folder+"reports.yaml"), p.read(t, folder+"cluster_reports.yaml")...))
	report := p.parse(t, reportOfShop)[0]
	NewWithT(t).Eventually(func() error { // until the API server serves the kind
		_, err := p.resource(report).Apply(t.Context(), report.GetName(), report, metav1.ApplyOptions{FieldManager: "ostiary-audit"})
		return err
	}).WithTimeout(time.Minute).Should(Succeed())
	t.Cleanup(func() {
		must(t, p.resource(report).Delete(context.Background(), report.GetName(), metav1.DeleteOptions{}))
	})
	reported := []string{"require-team-label shop ReplicaSet/web UPDATE"}
	check("reports", output.StatusError, violations.SourceReports, reported, []string{"two-bindings"}, "-n", "shop")
	check("reports of a tenant", output.StatusFindings, violations.SourceReports, reported,
		[]string{"webhookpolicies.admission.ostiary.dev"}, "-n", "shop", "--as", "tenant")
	check("no rights to reports", output.StatusError, violations.SourceScan, scanned, []string{"services"}, "-n", "shop", "--as", "auditor")
	check("a namespace without a report", output.StatusOK, violations.SourceScan, nil, nil, "-n", "other")
	check("a scan despite reports", output.StatusFindings, violations.SourceScan, scanned, nil, "-n", "shop", "--scan")

	page := filepath.Join(t.TempDir(), "report.html")
	status, out, _ := ostiary(t, "", "violations", "-n", "shop", "--as", "tenant", "--heat-map", "--html", page)
	text, err := os.ReadFile(page)
	if status != output.StatusFindings || !strings.Contains(out, "require-team-label   1F     1\n") || err != nil ||
		!strings.Contains(string(text), "webhookpolicies.admission.ostiary.dev: no access") || !strings.Contains(string(text), "Pod of-report") {
		t.Errorf("reports for others: status %d, %v\n%s%s", status, err, out, text)
	}
	status, out, _ = ostiary(t, "", "violations", "-n", "shop", "--as", "tenant")
	if status != output.StatusFindings || !strings.HasPrefix(out, "From the reports of Ostiary, last changed ") ||
		!strings.Contains(out, "ReplicaSet/web") {
		t.Errorf("status %d\n%s", status, out)
	}
	for _, args := range [][]string{{}, {"--scan"}} {
		status, _, errOut := ostiary(t, "", append([]string{"violations", "--policy", "require-team-labels"}, args...)...)
		if status != output.StatusError ||
			!strings.Contains(errOut, `there is no policy "require-team-labels", did you mean "require-team-label"?`) {
			t.Errorf("an unknown policy with %v: status %d\n%s", args, status, errOut)
		}
	}
	if _, out, _ := ostiary(t, "", "__complete", "violations", "--policy", "req"); !strings.Contains(out, "require-team-label\n") {
		t.Errorf("policies are completed with %q", out)
	}
	testViolationsWatch(t)
}

// testViolationsWatch shows the violations until the context ends.
func testViolationsWatch(t *testing.T) {
	out := &lockedBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		args := []string{"violations", "--watch", "--interval", "1s", "-n", "shop"}
		ended <- cli.Run(ctx, "v1.2.3", args, genericiooptions.IOStreams{Out: out, ErrOut: io.Discard})
	}()
	count := func() int { return strings.Count(out.String(), "From the reports of Ostiary") }
	NewWithT(t).Eventually(count).WithTimeout(time.Minute).Should(BeNumerically(">=", 2))
	cancel()
	if status := <-ended; status != output.StatusOK {
		t.Errorf("status %d after the end, want 0", status)
	}
}
