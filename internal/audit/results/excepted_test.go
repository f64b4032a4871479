package results

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/policy"
)

// storeExcepted stores that one validation of an object is excepted, and that others deny.
func storeExcepted(t *testing.T, a *audited, denied bool) {
	t.Helper()
	p := a.Next(a.now, time.Hour)
	if p == nil {
		t.Fatal("no pass is due")
	}
	x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}}
	x.Spec.Reason = "BILL-1234"
	x.Spec.ExpirationTime = new(metav1.NewTime(time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)))
	got := audit.Result{Operation: admissionv1.Update, Audited: policy.Audited{Decision: policy.DecisionExcepted}}
	got.Violations = []policy.Violation{
		{Decision: policy.DecisionExcepted, Message: "no team", Validation: "team", Exception: exceptions.NewEntry(x)},
	}
	if denied {
		got.Decision = policy.DecisionDeny
		got.Violations = append(got.Violations, policy.Violation{Decision: policy.DecisionDeny, Message: "no owner", Validation: "owner"})
	}
	for i := range a.objects {
		if todo, ok := a.Todo(p, &a.objects[i]); ok {
			a.Store(p, &a.objects[i], todo, slices.Repeat([]audit.Result{got}, len(todo)))
		}
	}
	a.Finish(p, 0, a.now)
}

func TestExcepted(t *testing.T) {
	subject := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "object-0000", "uid": "uid-aobject-0000"}
	tests := map[string]struct {
		denied      bool
		wantStatus  v1alpha1.AuditStatus
		wantResult  map[string]any
		wantSummary map[string]any
		wantRead    int
	}{
		"excepted": {
			wantStatus: v1alpha1.AuditStatus{Summary: "0", Violations: ptr.To[int64](0), Excepted: 1, Objects: 1},
			wantResult: map[string]any{
				"source": "ostiary", "policy": "p", "rule": "team", "result": "skip", "scored": false, "message": "no team",
				"resources": []any{subject}, "properties": map[string]any{
					"operation": "UPDATE", "generation": "0",
					"exception": "a/x", "exceptionReason": "BILL-1234", "exceptionEnds": "2027-03-01T00:00:00Z",
				},
			},
			wantSummary: map[string]any{"pass": int64(0), "fail": int64(0), "warn": int64(0), "error": int64(0), "skip": int64(1)},
		},
		"another validation denies": {
			denied: true,
			wantStatus: v1alpha1.AuditStatus{
				Summary: "1", Violations: ptr.To[int64](1), Objects: 1, Examples: []string{"configmaps a/object-0000: owner"},
			},
			wantResult: map[string]any{
				"source": "ostiary", "policy": "p", "rule": "owner", "result": "fail", "scored": true, "message": "no owner",
				"resources": []any{subject}, "properties": map[string]any{"operation": "UPDATE", "generation": "0"},
			},
			wantSummary: map[string]any{"pass": int64(0), "fail": int64(1), "warn": int64(0), "error": int64(0), "skip": int64(0)},
			wantRead:    1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionExcepted})
			a.add("a", 0, 1)
			storeExcepted(t, a, tt.denied)
			status := *a.Snapshot().Summaries()["p"].Status
			status.Time = nil
			if diff := cmp.Diff(tt.wantStatus, status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			report := reportOf(t, a.Table, "a")
			if diff := cmp.Diff([]any{tt.wantResult}, report.Object["results"]); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.wantSummary, report.Object["summary"]); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
			if read, ok := ReadReportOf(report); !ok || len(read.Findings) != tt.wantRead || len(read.Skipped) > 0 {
				t.Errorf("read from the report: %t, %+v", ok, read)
			}
		})
	}
}

func reportOf(t *testing.T, from *Table, namespace string) *unstructured.Unstructured {
	t.Helper()
	for _, r := range from.Snapshot().Reports() {
		if r.Namespace != namespace {
			continue
		}
		parts, err := r.Parts()
		if err != nil || len(parts) != 1 {
			t.Fatalf("%d parts, %v", len(parts), err)
		}
		return parts[0]
	}
	t.Fatalf("there is no report of %s", namespace)
	return nil
}

// An exception that appears or ends has the objects of its policy evaluated again.
func TestChangedExceptions(t *testing.T) {
	a := newAudited(t, 2, map[string]policy.Decision{"p": policy.DecisionDeny})
	a.add("a", 0, 3)
	evaluations := []int{a.pass(), a.pass()}
	for _, version := range []uint64{7, 7, 0} {
		policies := map[string]Version{"p": {Params: 1, Exceptions: version}}
		a.Set(map[schema.GroupVersionResource]Resource{configMaps: {Kind: a.resources[configMaps].kind, Policies: policies}})
		evaluations = append(evaluations, a.pass())
	}
	if diff := cmp.Diff([]int{3, -1, 3, -1, 3}, evaluations); diff != "" {
		t.Errorf("evaluations; -1 is no pass (-want +got):\n%s", diff)
	}
}
