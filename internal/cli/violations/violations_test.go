package violations

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/cli/output"
)

func finding(policy, namespace, name, controller, operation string) results.Finding {
	return results.Finding{
		Policy: policy, Namespace: namespace, APIVersion: "v1", Kind: "Pod", Name: name, Controller: controller,
		Result: "fail", Operation: operation, Rule: "team", Message: "add the label team",
	}
}

func TestTable(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	v := &Violations{Source: SourceReports}
	v.addAge(now.Add(-2 * time.Minute))
	v.addAge(now.Add(-3 * time.Hour))
	errored := finding("p", "shop", "web-c", "ReplicaSet/web", "UPDATE")
	errored.Result = "error"
	for _, f := range []results.Finding{
		finding("p", "shop", "web-b", "ReplicaSet/web", "CREATE"), errored, finding("p", "shop", "web-a", "ReplicaSet/web", "UPDATE"),
		finding("p", "ads", "alone\x1b[2J", "", "UPDATE"), finding("o", "", "node", "", "UPDATE"),
	} {
		v.add(f)
	}
	v.miss("secrets", noAccess, true)
	v.miss("q", "it reads request.userInfo", false)
	v.miss("secrets", noAccess, true)
	v.sort()
	var out bytes.Buffer
	if err := v.write(&out, now, v.writeTable); err != nil {
		t.Fatal(err)
	}
	want := `From the reports of Ostiary, last changed 2m to 3h ago

POLICY   NAMESPACE   OWNER                OBJECTS   ON-CREATE   ERRORS   MESSAGE
o        -           Pod/node             1         0           0        team: add the label team
p        ads         Pod/alone\u001b[2J   1         0           0        team: add the label team
p        shop        ReplicaSet/web       1         1           1        team: add the label team

not included: q: it reads request.userInfo
not included: secrets: no access
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Nothing that could not be read looks like an absence of violations.
func TestResult(t *testing.T) {
	tests := map[string]struct {
		found, unread bool
		want          int
	}{
		"nothing":            {want: output.StatusOK},
		"violations":         {found: true, want: output.StatusFindings},
		"nothing is read":    {unread: true, want: output.StatusError},
		"not all could read": {found: true, unread: true, want: output.StatusError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := &Violations{}
			v.miss("q", "it reads request.userInfo", false)
			if tt.found {
				v.add(finding("p", "a", "b", "", "UPDATE"))
			}
			if tt.unread {
				v.miss("secrets", noAccess, true)
			}
			if got := output.Status(v.err()); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}

// A policy whose numbers are not complete is named, and the omitted lines of a report are too.
func TestMissing(t *testing.T) {
	c := &command{policies: []string{"p"}}
	v := &Violations{}
	status := func(audit map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "p"}}}
		if audit != nil {
			u.Object["status"] = map[string]any{"audit": audit}
		}
		return u
	}
	c.addReport(v, "", results.ReadReport{Skipped: []results.Skipped{{Policy: "p", Why: "more", IsUnread: true}}})
	v.addStatus(status(nil))
	v.Missing = nil
	v.addStatus(status(nil))
	v.addStatus(status(map[string]any{"summary": "n/a", "missing": []any{"reason"}}))
	v.addStatus(status(map[string]any{"summary": "≥ 1", "missing": []any{"forbidden"}}))
	v.addStatus(status(map[string]any{"summary": "1"}))
	c.addReport(v, "a", results.ReadReport{
		Findings: []results.Finding{finding("q", "a", "b", "", "UPDATE")}, Omitted: 2, Skipped: []results.Skipped{{Policy: "q", Why: "why"}},
	})
	want := []Missing{
		{Subject: "p", Reason: "this generation has not been evaluated on all stored objects yet", Unread: true},
		{Subject: "p", Reason: "reason"},
		{Subject: "p", Reason: "forbidden", Unread: true},
		{Subject: "namespace a", Reason: "2 violations of all policies without a line in the report: use --scan", Unread: true},
	}
	if diff := cmp.Diff(want, v.Missing); diff != "" || len(v.Violations) > 0 {
		t.Errorf("%d violations of another policy, missing (-want +got):\n%s", len(v.Violations), diff)
	}
}
