package results

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/policy"
)

// What is written to reports is read from them.
func TestReadReport(t *testing.T) {
	a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionDeny, "ValidatingAdmissionPolicy/p": policy.DecisionError})
	a.add("a", 0, 3)
	a.objects[0].Controller = "ReplicaSet/web"
	a.pass()
	a.SetProblems(map[string]Problem{"q": {Why: "it reads request.userInfo"}})
	written := time.Unix(1_000_000, 0)
	var got ReadReport
	for _, report := range a.Snapshot().Reports() {
		parts, err := report.Parts()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts {
			at := metav1.NewTime(written)
			part.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "other"}, {Manager: ReportManager, Time: &at}})
			read, ok := ReadReportOf(part)
			if !ok {
				t.Errorf("the report %s is not read", part.GetName())
			}
			got.Findings = append(got.Findings, read.Findings...)
			got.Omitted += read.Omitted
			if part.GetNamespace() == "" {
				got.Skipped, got.Written = read.Skipped, read.Written
			}
		}
	}
	of := func(policy, name, controller, result string) Finding {
		return Finding{
			Policy: policy, Namespace: "a", APIVersion: "v1", Kind: "ConfigMap", Name: name, Controller: controller,
			Generation: "0", Result: result, Operation: "UPDATE", Rule: "v", Message: "m",
		}
	}
	want := ReadReport{
		Findings: []Finding{
			of("ValidatingAdmissionPolicy/p", "object-0000", "ReplicaSet/web", "error"),
			of("ValidatingAdmissionPolicy/p", "object-0001", "", "error"),
			of("p", "object-0000", "ReplicaSet/web", "fail"), of("p", "object-0001", "", "fail"),
		},
		Skipped: []Skipped{{Policy: "q", Why: "it reads request.userInfo"}}, Omitted: 2, Written: written,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Users can write reports: their content is about their namespace alone, and of any type.
func TestReadHostileReport(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"source": "ostiary",
		"metadata": map[string]any{
			"namespace": "a", "annotations": map[string]any{"admission.ostiary.dev/omitted-results": "many"},
		},
		"results": []any{
			"text", map[string]any{"resources": "text"}, map[string]any{"policy": int64(7), "resources": []any{int64(7)}},
			map[string]any{
				"policy": "p", "result": "fail", "properties": "text",
				"resources": []any{map[string]any{"kind": "Pod", "name": "b", "namespace": "other"}},
			},
		},
	}}
	got, ok := ReadReportOf(u)
	want := []Finding{{Policy: "p", Namespace: "a", Kind: "Pod", Name: "b", Result: "fail", Operation: "UPDATE"}}
	if diff := cmp.Diff(want, got.Findings); diff != "" || !ok || got.Omitted != 0 {
		t.Errorf("read: %v, %d omitted, findings (-want +got):\n%s", ok, got.Omitted, diff)
	}
	u.Object["source"] = "ostiary-admission"
	if _, ok := ReadReportOf(u); ok {
		t.Error("a report about requests is read")
	}
}
