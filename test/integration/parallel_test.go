package integration

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
)

const callers = 16

// racing gives the shared manager started anew, built with the race detector,
// which explain looks for reports of. The next test gets another.
func (c *cluster) racing(t *testing.T) *process {
	t.Helper()
	usual := c.program
	c.program = filepath.Join(t.TempDir(), "ostiary-race")
	if err := controlplane.BuildManager(t.Context(), "../..", c.program, "-race"); err != nil {
		c.program = usual
		t.Fatal(err)
	}
	m := c.restarted(t)
	c.program = usual
	t.Cleanup(m.kill)
	m.awaitReady(t)
	c.awaitLeader(t)
	return m
}

// version is a number that one goroutine raises and others read in answers.
type version struct{ written, settled atomic.Int64 }

// versions are those of the parts of the world, in the order in which the
// message gives them.
type versions struct{ policy, params, namespace version }

// everything is a policy whose message gives the version of all that it reads.
// It refuses while the version of the params is odd.
func everything(namespace string) *v1alpha1.WebhookPolicy {
	p := newPolicy("everything", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.TimeoutSeconds = ptr.To[int32](30) // an answer that a busy machine delays is not wrong
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ResourceQuota"}
		p.Spec.Variables = []admissionregistrationv1.Variable{
			{Name: "params", Expression: `params.metadata.labels["version"]`},
			{Name: "within", Expression: `namespaceObject.metadata.labels["version"]`},
			{Name: "may", Expression: `authorizer.group("").resource("secrets").namespace(request.namespace).check("get").allowed()`},
		}
		p.Spec.Bindings = []v1alpha1.Binding{{
			Name:              "all",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{
				Namespace:               namespace,
				Name:                    "params",
				ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction),
			},
		}}
	})
	saysVersion(0)(p)
	return p
}

func saysVersion(n int64) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		message := func(may bool) string {
			return fmt.Sprintf(`"policy %d params " + variables.params + " namespace " + variables.within + " may %t."`, n, may)
		}
		p.Spec.Validations = []v1alpha1.Validation{
			{Expression: `!variables.may || (object.data.verdict == "good" && int(variables.params) % 2 == 0)`, MessageExpression: message(true)},
			{Expression: `variables.may || (object.data.verdict == "good" && int(variables.params) % 2 == 0)`, MessageExpression: message(false)},
		}
	}
}

var denialText = regexp.MustCompile(`policy (\d+) params (\d+) namespace (\d+) may (true|false)\.`)

// seen is what an answer tells of the world.
func seen(err error) ([]int64, bool, error) {
	match := denialText.FindStringSubmatch(fmt.Sprint(err))
	if match == nil {
		return nil, false, fmt.Errorf("it does not tell what it saw: %w", err)
	}
	out := make([]int64, 3)
	for i := range out {
		out[i], _ = strconv.ParseInt(match[i+1], 10, 64)
	}
	return out, match[4] == "true", nil
}

func (v *versions) all() []*version { return []*version{&v.policy, &v.params, &v.namespace} }

// constantCaller is one of those who ask all the time.
type constantCaller struct {
	client  client.Client
	may     bool
	verdict string
}

// ask sends one request and checks that the answer is right: for each part of
// the world it goes by the version that was settled before, or by one that was
// written meanwhile.
func (a constantCaller) ask(ctx context.Context, namespace string, v *versions) error {
	var low [3]int64
	for i, part := range v.all() {
		low[i] = part.settled.Load()
	}
	err := a.client.Create(ctx, configMap(namespace, a.verdict), client.DryRunAll)
	var high [3]int64
	for i, part := range v.all() {
		high[i] = part.written.Load()
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the load has ended, and the request with it
	}
	if err == nil {
		if a.verdict == good && (low[1]%2 == 0 || high[1] > low[1]) {
			return nil
		}
		return fmt.Errorf("%s was allowed, with params %d to %d", a.verdict, low[1], high[1])
	}
	got, may, notTold := seen(err)
	if notTold != nil && strings.Contains(err.Error(), "denied request: asking for authorization: ") {
		return nil // a busy API server did not answer the review in time, so the request is denied
	}
	if notTold != nil {
		return notTold
	}
	for i := range got {
		if got[i] < low[i] || got[i] > high[i] {
			return fmt.Errorf("the answer goes by %v, want %v to %v", got, low, high)
		}
	}
	if may != a.may || (a.verdict == good && got[1]%2 == 0) {
		return fmt.Errorf("wrong: %w", err)
	}
	return nil
}

// load asks from all callers until stopped, and gives the number of answers.
func load(t *testing.T, as []constantCaller, namespace string, v *versions) (stop func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	var answers atomic.Int64
	var running sync.WaitGroup
	wrong := make([]error, len(as))
	for i, a := range as {
		running.Go(func() {
			for ctx.Err() == nil && wrong[i] == nil {
				wrong[i] = a.ask(ctx, namespace, v)
				answers.Add(1)
			}
		})
	}
	return func() int64 {
		t.Helper()
		cancel()
		running.Wait()
		if err := errors.Join(wrong...); err != nil {
			t.Errorf("of %d answers: %v", answers.Load(), err)
		}
		return answers.Load()
	}
}

// Promise: the same answers whatever changes meanwhile, and nothing to wait for
// but what the policy itself asks for.
func TestParallelCallers(t *testing.T) {
	c := install(t)
	c.racing(t)
	namespace := c.namespace(t, map[string]string{"version": "0"})
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "params", Labels: map[string]string{"version": "0"}},
	}
	must(t, c.Create(t.Context(), quota))
	c.mayRead(t, "", "resourcequotas")
	for user, resources := range map[string][]string{"may": {"configmaps", "secrets"}, "may-not": {"configmaps"}} {
		c.create(t, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, Verbs: []string{"get", "create"}}},
		})
		c.create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	c.enforce(t, everything(namespace))
	as := make([]constantCaller, callers)
	for i := range as {
		as[i] = constantCaller{may: i%2 == 0, verdict: []string{good, bad}[i/2%2]}
		config := rest.CopyConfig(c.config)
		config.QPS = -1
		config.Impersonate = rest.ImpersonationConfig{UserName: map[bool]string{true: "may", false: "may-not"}[as[i].may]}
		var err error
		as[i].client, err = client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
		must(t, err)
	}
	var v versions
	for _, a := range as {
		await(t).Eventually(func() error { return a.ask(t.Context(), namespace, &v) }).Should(Succeed())
	}

	t.Run("while nothing changes", func(t *testing.T) { c.wantOnlyReviews(t, as, namespace, &v) })
	t.Run("while everything changes", func(t *testing.T) {
		stop := load(t, as, namespace, &v)
		c.changeEverything(t, namespace, quota, as[1], &v)
		if n := stop(); n < 100 {
			t.Errorf("only %d answers", n)
		}
	})
}

// wantOnlyReviews checks what the manager asks of the API server under load:
// the one question of each request, and what it asks at rest.
func (c *cluster) wantOnlyReviews(t *testing.T, as []constantCaller, namespace string, v *versions) {
	since := c.rest(t)
	stop := load(t, as, namespace, v)
	await(t).Eventually(func() int64 { return c.reviewsSince(t, since) }).Should(BeNumerically(">", 500))
	answers := stop()
	c.audit.mark(t)
	events, _ := c.audit.read(t, since)
	var asked int64
	looks := map[string]int{}
	for _, e := range events {
		switch {
		case !e.byManager(), e.ObjectRef.Resource == "leases", e.Verb == "watch":
		case e.ObjectRef.Resource == "subjectaccessreviews":
			asked++
		case e.Verb == "get", strings.Contains(e.URI, "dryRun=All"):
			// What kinds there are, the certificates, the canaries and the way from the
			// API server are looked at every now and then, whether or not there are requests.
			if looks[e.URI]++; looks[e.URI] > 10 {
				t.Errorf("the manager asked %d times: %s %s", looks[e.URI], e.Verb, e.URI)
			}
		default:
			t.Errorf("the manager asked: %s %s", e.Verb, e.URI)
		}
	}
	// Those that were under way at the end may have asked without an answer.
	if asked > answers+callers || asked < answers-2*callers {
		t.Errorf("%d questions for %d requests, want one for each", asked, answers)
	}
	t.Logf("%d questions for %d requests", asked, answers)
}

func (c *cluster) reviewsSince(t *testing.T, since int64) (n int64) {
	t.Helper()
	events, _ := c.audit.read(t, since)
	for _, e := range events {
		if e.byManager() && e.ObjectRef.Resource == "subjectaccessreviews" {
			n++
		}
	}
	return n
}

// changeEverything changes one part of the world after the other, and waits for
// each change to take effect.
func (c *cluster) changeEverything(t *testing.T, namespace string, quota *corev1.ResourceQuota, probe constantCaller, v *versions) {
	t.Helper()
	for n := int64(1); n <= 8; n++ {
		text := strconv.FormatInt(n, 10)
		for i, write := range []func(){
			func() { c.change(t, "everything", saysVersion(n)) },
			func() {
				quota.Labels["version"] = text
				must(t, c.Update(t.Context(), quota))
			},
			func() {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"version":"`+text+`"}}}`))
				must(t, c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch))
			},
		} {
			part := v.all()[i]
			part.written.Store(n)
			write()
			await(t).Eventually(func() error {
				got, _, err := seen(probe.client.Create(t.Context(), configMap(namespace, bad), client.DryRunAll))
				if err == nil && got[i] != n {
					err = fmt.Errorf("the answer goes by %v, want %d", got, n)
				}
				return err
			}).Should(Succeed())
			part.settled.Store(n)
		}
		// Policies and namespaces that come and go beside.
		beside := newPolicy("beside-everything-"+text, strings.Repeat("x", int(n)))
		must(t, c.Create(t.Context(), beside))
		other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + text}}
		must(t, c.Create(t.Context(), other))
		must(t, c.Delete(t.Context(), other))
		must(t, c.Delete(t.Context(), beside))
	}
}

// Promise: params are read, not registered.
func TestParamChangesWriteNothing(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayRead(t, "", "resourcequotas")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verdicts", Labels: map[string]string{"verdict": "good"}},
	}
	must(t, c.Create(t.Context(), quota))
	c.enforce(t, newPolicy("changing-params", namespace, readingParams(namespace, "verdicts")))
	c.awaitDenied(t, namespace, "changing-params")
	since := c.rest(t)
	for i := range 6 {
		allowed, refused := bad, good
		if i%2 == 1 {
			allowed, refused = good, bad
		}
		quota.Labels["verdict"] = allowed
		must(t, c.Update(t.Context(), quota))
		await(t).Eventually(func() error { return c.probe(t.Context(), namespace, allowed) }).Should(Succeed())
		if err := c.probe(t.Context(), namespace, refused); !deniedBy(err, "changing-params") {
			t.Errorf("the old params still apply: %v", err)
		}
	}
	for _, write := range c.audit.managerWrites(t, since) {
		if strings.Contains(write, "webhookconfigurations") || strings.Contains(write, "webhookpolicies") {
			t.Errorf("the manager wrote: %s", write)
		}
	}
	// The status says that params do not exist.
	must(t, c.Delete(t.Context(), quota))
	await(t).Eventually(func() error { return c.probe(t.Context(), namespace, good) }).Should(MatchError(ContainSubstring("no params found")))
	quota.ResourceVersion = ""
	quota.Labels["verdict"] = good
	must(t, c.Create(t.Context(), quota))
	await(t).Eventually(func() error { return c.probe(t.Context(), namespace, good) }).Should(Succeed())
	for _, write := range c.audit.managerWrites(t, since) {
		if strings.Contains(write, "webhookconfigurations") {
			t.Errorf("the manager wrote: %s", write)
		}
	}
}
