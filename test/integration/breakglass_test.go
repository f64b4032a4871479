package integration

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// The policy and the role are those of docs/policies/break-glass.md.
const (
	freeze = "freeze"
	onCall = "on-call"
)

// documentedFreeze applies what the document shows.
func (c *cluster) documentedFreeze(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/policies/break-glass.md")
	must(t, err)
	var manifests []string
	for _, part := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```\n")
		manifests = append(manifests, block)
	}
	all := strings.Join(manifests, "---\n")
	t.Cleanup(func() { _, _, _ = c.kubectl(context.Background(), all, "delete", "--ignore-not-found", "-f", "-") })
	if _, errOut, err := c.kubectl(t.Context(), all, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl: %v: %s", err, errOut)
	}
	c.awaitReady(t, freeze)
}

// as gives a client of a user, who may do anything with Deployments in a
// namespace and nothing else.
func (c *cluster) as(t *testing.T, namespace, user string, groups ...string) *asker {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"*"}}},
	}
	c.create(t, role)
	c.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	a := &asker{}
	config := rest.CopyConfig(c.config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, a
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	var err error
	a.Client, err = client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	return a
}

func (a *asker) deploy(ctx context.Context, namespace, name string) (label string, err error) {
	d := deployment(namespace, name)
	err = a.Create(ctx, d, client.DryRunAll)
	return d.Labels["mutated"], err
}

func marking(p *v1alpha1.WebhookPolicy) {
	applying(`Object{metadata: Object.metadata{labels: {"mutated": "yes"}}}`)(p)
	p.Spec.MatchConstraints.ResourceRules[0] = rule("apps", "deployments", "CREATE")
	p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
}

func skippable(p *v1alpha1.WebhookPolicy) { p.Spec.BreakGlass = true }

// Users whom RBAC allows it skip a policy that says so, and it is on record.
func TestBreakGlass(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, map[string]string{"frozen": "true"})
	c.documentedFreeze(t)
	c.enforce(t, newPolicy("marks-unless-skipped", namespace, marking, skippable))
	caller, user := c.as(t, namespace, "caller", onCall), c.as(t, namespace, "user")
	c.may(t, "caller", onCall, "marks-unless-skipped")

	frozen := func(a *asker) func() error {
		return func() error {
			if _, err := a.deploy(t.Context(), namespace, "d"); !deniedBy(err, freeze) {
				return fmt.Errorf("got %w, want a denial by %s", err, freeze)
			}
			return nil
		}
	}
	await(t).Eventually(frozen(user)).Should(Succeed())
	await(t).Eventually(func() error { _, err := caller.deploy(t.Context(), namespace, "d"); return err }).Should(Succeed())
	// That mutations are applied shows only in what is not refused afterwards.
	c.remove(t, freeze)
	await(t).Eventually(func() (string, error) { return user.deploy(t.Context(), namespace, "d") }).Should(Equal("yes"))
	c.documentedFreeze(t)
	await(t).Eventually(frozen(user)).Should(Succeed())
	await(t).Eventually(func() (string, error) { return caller.deploy(t.Context(), namespace, "d") }).Should(BeEmpty(), "roles count a moment after they are stored")

	counters := []string{`ostiary_policy_breakglass_total{policy="freeze"}`, `ostiary_policy_breakglass_total{policy="marks-unless-skipped"}`}
	var before []float64
	for _, counter := range counters {
		before = append(before, m.series(t, counter))
	}
	since := c.audit.mark(t)
	caller.warnings = nil
	label, err := caller.deploy(t.Context(), namespace, "glass")
	must(t, err)
	for _, policy := range []string{freeze, "marks-unless-skipped"} {
		want := "WebhookPolicy '" + policy + "' skipped: you have the verb breakglass (Deployment " + namespace + "/glass)"
		if !slices.Contains(caller.warnings, want) {
			t.Errorf("warnings %q, want %q", caller.warnings, want)
		}
	}
	if label != "" {
		t.Errorf("the mutation was applied: %q", label)
	}
	annotations := c.audit.brokenGlass(t, since, namespace, "glass")
	for kind, policy := range map[string]string{"policies": freeze, "mutations": "marks-unless-skipped"} {
		if got := annotations[kind]; got != policy {
			t.Errorf("annotation of %s: %q, want %q", kind, got, policy)
		}
	}
	for i, counter := range counters {
		if got := m.series(t, counter) - before[i]; got != 1 {
			t.Errorf("%s grew by %v, want 1", counter, got)
		}
	}
	must(t, frozen(user)())
}

// Without an answer no request skips a policy, and the reason is returned.
func TestBreakGlassWithoutAnAnswer(t *testing.T) {
	c := install(t)
	c.manager(t)
	g := c.gate(t)
	c.behind(t, g)
	namespace := c.namespace(t, map[string]string{"frozen": "true"})
	c.documentedFreeze(t)
	caller := c.as(t, namespace, "caller", onCall)
	await(t).Eventually(func() error { _, err := caller.deploy(t.Context(), namespace, "d"); return err }).Should(Succeed())
	user := c.as(t, namespace, "user")
	await(t).Eventually(func() bool { _, err := user.deploy(t.Context(), namespace, "d"); return deniedBy(err, freeze) }).Should(BeTrue())

	for name, f := range map[string]fault{"disconnects": disconnects, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			open := g.keep(t, reviews, f)
			caller.warnings = nil
			if _, err := caller.deploy(t.Context(), namespace, "d"); !deniedBy(err, freeze) {
				t.Errorf("got %v, want a denial", err)
			}
			if want := "WebhookPolicy 'freeze' was not skipped: whether you may skip it is not known: asking for authorization: "; len(caller.warnings) != 1 || !strings.HasPrefix(caller.warnings[0], want) {
				t.Errorf("warnings %q, want one that begins with %q", caller.warnings, want)
			}
			open()
			_, err := caller.deploy(t.Context(), namespace, "d")
			must(t, err)
		})
	}
}

// The flag turns it on for policies that do not say so.
func TestBreakGlassForAll(t *testing.T) {
	c := install(t)
	c.manager(t)
	m := c.restarted(t, "--break-glass")
	m.awaitReady(t)
	c.awaitLeader(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("says-nothing", namespace, func(p *v1alpha1.WebhookPolicy) {
		saying("false")(p)
		p.Spec.MatchConstraints.ResourceRules[0] = rule("apps", "deployments", "CREATE")
	}))
	caller, user := c.as(t, namespace, "caller", onCall), c.as(t, namespace, "user")
	c.may(t, "caller", onCall, "says-nothing")
	await(t).Eventually(func() bool { _, err := user.deploy(t.Context(), namespace, "d"); return deniedBy(err, "says-nothing") }).Should(BeTrue())
	await(t).Eventually(func() error { _, err := caller.deploy(t.Context(), namespace, "d"); return err }).Should(Succeed())
}

// About a backend the API server itself asks, whether the backend answers or not.
func TestBreakGlassOfABackend(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	url := "https://" + cptest.FreeAddress() // without a listener
	c.apply(t, newPolicy("foreign-glass", namespace, skippable, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.MatchConstraints.ResourceRules[0] = rule("apps", "deployments", "CREATE")
		p.Spec.Backend = &v1alpha1.Backend{Type: v1alpha1.BackendValidating, URL: url, AdmissionReviewVersions: []string{"v1"}, SideEffects: "None"}
	}))
	c.awaitCondition(t, "foreign-glass", v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	caller, user := c.as(t, namespace, "caller", onCall), c.as(t, namespace, "user")
	c.may(t, "caller", onCall, "foreign-glass")
	await(t).Eventually(func() bool { _, err := user.deploy(t.Context(), namespace, "d"); return unreachable(err) }).Should(BeTrue())
	await(t).Eventually(func() error { _, err := caller.deploy(t.Context(), namespace, "d"); return err }).Should(Succeed())
	if _, err := user.deploy(t.Context(), namespace, "d"); !unreachable(err) {
		t.Errorf("who may not skip it: got %v, want the API server's refusal", err)
	}
}

// may lets a group skip a policy.
func (c *cluster) may(t *testing.T, name, group, policy string) {
	t.Helper()
	name = name + "-" + policy
	c.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"webhookpolicies"}, ResourceNames: []string{policy}, Verbs: []string{"breakglass"},
		}},
	})
	c.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	})
}

// brokenGlass are the annotations about policies that were skipped for the last
// request for an object since a mark, by the first part of the webhook's name.
func (l *auditLog) brokenGlass(t *testing.T, since int64, namespace, name string) map[string]string {
	t.Helper()
	l.mark(t)
	events, _ := l.read(t, since)
	out := map[string]string{}
	for _, e := range events {
		if e.ObjectRef.Namespace != namespace || e.ObjectRef.Name != name {
			continue
		}
		clear(out)
		for key, value := range e.Annotations {
			if webhook, ok := strings.CutSuffix(key, "/breakglass"); ok {
				name, _, _ := strings.Cut(webhook, ".")
				out[name[:strings.LastIndexByte(name, '-')]] = value
			}
		}
	}
	return out
}
