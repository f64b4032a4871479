//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditEvent is what the tests read of a line of the audit log.
type auditEvent struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	// Annotations say whether the request was allowed, and what policies noted.
	Annotations    map[string]string
	StageTimestamp time.Time
}

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
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the last line may be half written
		}
		see(event)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// permission is one thing that an account may do.
type permission struct{ group, resource, verb, name, namespace string }

func (p permission) String() string {
	text := p.verb + " " + p.resource
	if p.group != "" {
		text += "." + p.group
	}
	if p.name != "" {
		text += " " + p.name
	}
	if p.namespace != "" {
		text += " in " + p.namespace
	}
	return text
}

func (e auditEvent) permission() permission {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return permission{e.ObjectRef.APIGroup, resource, e.Verb, e.ObjectRef.Name, e.ObjectRef.Namespace}
}

// testNothingForbidden demands that Ostiary was never refused anything, but while
// it was uninstalled and its permissions went before it.
func (w *world) testNothingForbidden(t *testing.T) {
	refused, asked := map[string]int{}, 0
	w.audited(t, func(e auditEvent) {
		if e.User.Username != account {
			return
		}
		asked++
		if e.Annotations["authorization.k8s.io/decision"] == "forbid" && !w.leaving.hold(e.StageTimestamp) {
			refused[e.permission().String()]++
		}
	})
	t.Logf("%d requests of Ostiary", asked)
	if asked < 100 {
		t.Errorf("only %d requests of Ostiary in the audit log: this shows nothing", asked)
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		t.Errorf("it was refused %d times: %s", refused[what], what)
	}
}

// needless are permissions that these tests have no use for, with the reason.
// Beside them is list, wherever there is watch: newer clients watch from the
// start, and list only where an API server cannot do that.
func needless() map[string]string {
	const (
		applied  = "asked by the API server itself, for an apply that creates: no request of its own"
		rotation = "CAs and certificates are renewed after months; test/integration does that"
		plugin   = "for an admission plugin that no policy uses here; test/plugins does"
		setting  = "needs API servers, or somebody else, to keep that Secret; test/integration does"
	)
	const in = " in " + namespace
	return map[string]string{
		"create validatingwebhookconfigurations.admissionregistration.k8s.io": applied,
		"create mutatingwebhookconfigurations.admissionregistration.k8s.io":   applied,
		"update secrets ostiary-ca" + in:                                      rotation,
		"update secrets ostiary-serving" + in:                                 rotation,
		"update secrets ostiary-backend-ca" + in:                              rotation,
		"watch secrets ostiary-caller-token" + in:                             setting,
		"watch secrets ostiary-caller-basic" + in:                             setting,
		"watch secrets ostiary-own-certificate" + in:                          setting,
		"watch storageclasses.storage.k8s.io":                                 plugin,
		"watch ingressclasses.networking.k8s.io":                              plugin,
		"list pods":                                                           plugin,
		"get namespaces":                                                      "for a namespace that the cache has not seen yet: a matter of milliseconds",
		"patch events.events.k8s.io":                                          "for an event that repeats within minutes",
	}
}

// optional are those of the excuses that chance may take away.
func (p permission) optional() bool { return p.resource == "namespaces" || p.resource == "events" }

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

func expand(rules []rbacv1.PolicyRule, namespace string) []permission {
	var out []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, permission{group, resource, verb, name, namespace})
					}
				}
			}
		}
	}
	return out
}

// testEveryPermissionUsed demands that Ostiary has used each permission that it
// was granted.
func (w *world) testEveryPermissionUsed(t *testing.T, granted []permission) {
	if len(granted) < 20 {
		t.Fatalf("%d permissions were found: this shows nothing", len(granted))
	}
	used := map[permission]bool{}
	w.audited(t, func(e auditEvent) {
		if e.User.Username != account || e.Annotations["authorization.k8s.io/decision"] != "allow" {
			return
		}
		p := e.permission()
		for _, name := range []string{p.name, ""} {
			for _, namespace := range []string{p.namespace, ""} {
				used[permission{p.group, p.resource, p.verb, name, namespace}] = true
			}
		}
	})
	excused := needless()
	for _, p := range granted {
		reason, ok := excused[p.String()]
		watch := p
		watch.verb = "watch"
		if p.verb == "list" && slices.Contains(granted, watch) {
			continue
		}
		switch {
		case used[p] && ok && !p.optional():
			t.Errorf("%s is used after all: it needs no excuse (%s)", p, reason)
		case !used[p] && !ok:
			t.Errorf("never used: %s: take the rule away, or have these tests use it", p)
		}
		delete(excused, p.String())
	}
	for what := range excused {
		t.Errorf("an excuse for %s, which is not granted", what)
	}
	t.Logf("%d permissions are granted", len(granted))
}
