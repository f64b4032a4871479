package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What these tests judge by is tested without a cluster: that they are red when
// they should be.

const someone = "system:serviceaccount:a:b"

// auditLine is a line of an audit log, of second 0 to 59.
func auditLine(second int, user, decision, verb, group, resource, namespace, name string) string {
	return fmt.Sprintf(`{"kind":"Event","verb":%q,"user":{"username":%q},"objectRef":{"apiGroup":%q,"resource":%q,"namespace":%q,"name":%q},`+
		`"annotations":{"authorization.k8s.io/decision":%q},"stageTimestamp":"2026-01-01T00:00:%02d.000000Z"}`+"\n",
		verb, user, group, resource, namespace, name, decision, second)
}

func requestLogOf(t *testing.T, leaving spans, lines ...string) *requestLog {
	t.Helper()
	y := newRequestLog(someone, leaving)
	if err := readAudit(strings.NewReader(strings.Join(lines, "")), y.see); err != nil {
		t.Fatal(err)
	}
	return y
}

// busy is a log in which nothing is wrong.
func busy() string {
	return strings.Repeat(auditLine(0, someone, "allow", "get", "", "busy", "", "x"), 100)
}

func TestRefusalProblems(t *testing.T) {
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	refused := auditLine(10, someone, "forbid", "watch", "apps", "deployments", "n", "d")
	tests := map[string]struct {
		leaving spans
		lines   []string
		want    []string
	}{
		"nothing": {lines: []string{busy()}},
		"a refusal": {
			lines: []string{busy(), refused, refused},
			want:  []string{"it was refused 2 times: watch deployments.apps d in n"},
		},
		"of another user": {
			lines: []string{busy(), auditLine(10, "alice", "forbid", "get", "", "pods", "n", "p")},
		},
		"while it is uninstalled": {leaving: spans{{at(9), at(11)}}, lines: []string{busy(), refused}},
		"before it is uninstalled": {
			leaving: spans{{at(11), at(12)}},
			lines:   []string{busy(), refused},
			want:    []string{"it was refused 1 times: watch deployments.apps d in n"},
		},
		"a line that is half written": {lines: []string{busy(), refused[:len(refused)/2]}},
		"a log of nothing":            {want: []string{"only 0 requests of Ostiary in the audit log: this shows nothing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, requestLogOf(t, tt.leaving, tt.lines...).refusalProblems()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUseProblems(t *testing.T) {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"leases"}, Verbs: []string{"list", "watch"}},
	}
	var padding []rbacv1.PolicyRule
	used := []string{
		auditLine(0, someone, "allow", "get", "", "secrets", "n", "one"),
		auditLine(0, someone, "allow", "update", "", "secrets", "n", "one"),
		strings.Replace(auditLine(0, someone, "allow", "patch", "apps", "deployments", "n", "d"),
			`"resource":"deployments"`, `"resource":"deployments","subresource":"scale"`, 1),
		auditLine(0, someone, "allow", "watch", "", "leases", "n", ""),
	}
	for i := range 20 {
		resource := fmt.Sprintf("r%d", i)
		padding = append(padding, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}})
		used = append(used, auditLine(0, someone, "allow", "get", "", resource, "n", "x"))
	}
	granted := slices.Clip(expand(append(rules, padding...), "n"))
	tests := map[string]struct {
		granted []permission
		lines   []string
		excuses map[string]string
		want    []string
	}{
		"each is used": {granted: granted, lines: used},
		"one too many": {
			granted: append(granted, permission{"", "pods", "delete", "", ""}),
			lines:   used,
			want:    []string{"never used: delete pods: take the rule away, or have these tests use it"},
		},
		"of another name": {
			granted: append(granted, permission{"", "secrets", "get", "two", "n"}),
			lines:   used,
			want:    []string{"never used: get secrets two in n: take the rule away, or have these tests use it"},
		},
		"in another namespace": {
			granted: append(granted, permission{"", "r1", "get", "", "m"}),
			lines:   used,
			want:    []string{"never used: get r1 in m: take the rule away, or have these tests use it"},
		},
		"a whole resource": {
			granted: append(granted, permission{"apps", "deployments", "patch", "", "n"}),
			lines:   used,
			want:    []string{"never used: patch deployments.apps in n: take the rule away, or have these tests use it"},
		},
		"asked for and refused": {
			granted: granted,
			lines:   append([]string{auditLine(0, someone, "forbid", "get", "", "secrets", "n", "one")}, used[1:]...),
			want:    []string{"never used: get secrets one in n: take the rule away, or have these tests use it"},
		},
		"an excuse": {granted: granted, lines: used[1:], excuses: map[string]string{"get secrets one in n": "why"}},
		"an idle excuse": {
			granted: granted,
			lines:   used,
			excuses: map[string]string{"get secrets one in n": "why"},
			want:    []string{"get secrets one in n is used after all: it needs no excuse (why)"},
		},
		"an excuse for nothing": {
			granted: granted,
			lines:   used,
			excuses: map[string]string{"get pods": "why"},
			want:    []string{"an excuse for get pods, which is not granted"},
		},
		"roles were not found": {
			granted: granted[:19],
			lines:   used,
			want:    []string{"19 permissions were found: this shows nothing"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, requestLogOf(t, nil, tt.lines...).useProblems(tt.granted, tt.excuses)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadProblems(t *testing.T) {
	tests := map[string]struct {
		step step
		want []string
	}{
		"all well": {step: step{requests: 50}},
		"one failed": {
			step: step{requests: 50, failures: []string{"create: refused"}},
			want: []string{"1 of 50 requests failed, the first of them:\ncreate: refused"},
		},
		"hardly any load": {step: step{requests: 49}, want: []string{"only 49 requests: this shows nothing"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.step.problems()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongUnlessDenied(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	lost := &apierrors.StatusError{
		ErrStatus: metav1.Status{Reason: metav1.StatusReasonInternalError, Code: 500, Message: "failed calling webhook: EOF"},
	}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"denied":                 {err: apierrors.NewForbidden(maps, "x", errors.New(denied))},
		"let pass":               {want: true},
		"for another reason":     {err: apierrors.NewForbidden(maps, "x", errors.New("no permission")), want: true},
		"the call failed":        {err: lost, want: true},
		"the call failed, aloud": {err: apierrors.NewInternalError(errors.New(denied)), want: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := wrongUnlessDenied(tt.err); (got != nil) != tt.want {
				t.Errorf("got %v, want an error: %t", got, tt.want)
			}
		})
	}
}
