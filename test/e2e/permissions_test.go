//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// audited calls see for every request that was logged.
func (w *world) audited(t *testing.T, see func(auditEvent)) {
	t.Helper()
	if w.auditLog == "" {
		t.Skip("E2E_AUDIT_LOG is not set: nothing is known of what Ostiary asked of this cluster")
	}
	file, err := os.Open(w.auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := readAudit(file, see); err != nil {
		t.Fatal(err)
	}
}

// testPermissions demands that Ostiary was never refused anything, but while it
// was uninstalled and its permissions went before it, and that it has used each
// permission that it was granted.
func (w *world) testPermissions(t *testing.T, granted []permission) {
	asked := newRequestLog(account, w.leaving)
	w.audited(t, asked.see)
	t.Logf("%d requests of Ostiary, %d permissions", asked.asked, len(granted))
	for name, problems := range map[string][]string{
		"nothing was forbidden":     asked.refusalProblems(),
		"every permission was used": asked.useProblems(granted, needless()),
	} {
		t.Run(name, func(t *testing.T) {
			for _, problem := range problems {
				t.Error(problem)
			}
		})
	}
}

// needless are permissions that these tests have no use for, with the reason.
func needless() map[string]string {
	const (
		applied  = "asked by the API server itself, for an apply that creates: no request of its own"
		rotation = "CAs and certificates are renewed after months; test/integration does that"
		unseen   = "for one that was written and that the cache has not seen yet: a matter of milliseconds"
		excepted = "no exception is written here; test/integration does"
		setting  = "needs API servers, or another client, to keep that Secret; test/integration does"
	)
	const in = " in " + namespace
	return map[string]string{
		"create validatingwebhookconfigurations.admissionregistration.k8s.io": applied,
		"create mutatingwebhookconfigurations.admissionregistration.k8s.io":   applied,
		"patch webhookpolicyexceptions/status.admission.ostiary.dev":          excepted,
		"patch clusterwebhookpolicyexceptions/status.admission.ostiary.dev":   excepted,
		"update secrets ostiary-ca" + in:                                      rotation,
		"update secrets ostiary-serving" + in:                                 rotation,
		"update secrets ostiary-backend-ca" + in:                              rotation,
		"watch secrets ostiary-caller-token" + in:                             setting,
		"watch secrets ostiary-caller-basic" + in:                             setting,
		"watch secrets ostiary-own-certificate" + in:                          setting,
		"get validatingwebhookconfigurations.admissionregistration.k8s.io":    unseen,
		"get mutatingwebhookconfigurations.admissionregistration.k8s.io":      unseen,
		"impersonate serviceaccounts ostiary-params" +
			in: "part of the requests that read params, which are those of that account",
		"impersonate serviceaccounts ostiary-lookups" +
			in: "part of the requests that read the objects of lookups, which are those of that account",
		"impersonate serviceaccounts ostiary-audit" +
			in: "part of the requests of the audit, which are those of that account",
		"get namespaces":             "for a namespace that the cache has not seen yet: a matter of milliseconds",
		"patch events.events.k8s.io": "for an event that repeats within minutes",
	}
}

// granted reads what the account may do from the roles that it is bound to, but
// for what users add: the params of policies.
func (w *world) granted(t *testing.T) []permission {
	t.Helper()
	var out []permission
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == "ostiary" && s.Namespace == namespace
		})
	}
	rbac := w.client.RbacV1()
	clusterBindings, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range clusterBindings.Items {
		if !ours(binding.Subjects) || binding.RoleRef.Name == "ostiary-params" {
			continue
		}
		role, err := rbac.ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, expand(role.Rules, "")...)
	}
	bindings, err := rbac.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		if !ours(binding.Subjects) || !strings.HasPrefix(binding.Name, "ostiary") {
			continue
		}
		role, err := rbac.Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, expand(role.Rules, binding.Namespace)...)
	}
	return out
}
