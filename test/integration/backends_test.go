package integration

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

func nextYear() time.Time { return time.Now().Add(365 * 24 * time.Hour) }

// Promise: an external webhook is registered, guarded and shown
// as Ostiary's own are.
func TestExternalWebhook(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	c.enforce(t, newPolicy("foreign", namespace, hostedBy(f, ca.pem)), newPolicy("beside-foreign", namespace, saying("true")))
	c.awaitForeign(t, namespace)
	must(t, c.probe(t.Context(), namespace, good))

	p := c.awaitReady(t, "foreign")
	for kind, reason := range map[string]string{
		v1alpha1.ConditionAccepted: "Accepted", v1alpha1.ConditionRegistered: "Registered", v1alpha1.ConditionReady: "Enforced",
		v1alpha1.ConditionCAReady: "Read", v1alpha1.ConditionReachable: "Reachable",
	} {
		if got := condition(p, kind); got.Status != metav1.ConditionTrue || got.Reason != reason {
			t.Errorf("condition %+v, want it true with reason %s", got, reason)
		}
	}
	c.awaitEvent(t, "foreign", "Normal", "Enforced")
	config := c.carrier(t, "foreign")
	if ref := p.Status.Webhooks[0]; ref.Configuration != "ostiary-validate-backend-foreign" ||
		ref.Webhook != config.Webhooks[0].Name || len(config.Webhooks) != 1 {
		t.Errorf("status names %+v, the configuration holds %d webhooks", ref, len(config.Webhooks))
	}
	c.wantMembers(t, config, "foreign")
	out, errOut, err := c.kubectl(t.Context(), "", "get", "whp", "foreign")
	if want := regexp.MustCompile(`(?m)^foreign +Backend +True +Enforced `); err != nil || !want.MatchString(out) {
		t.Errorf("kubectl ended with %v and printed\n%s%s, want %s", err, out, errOut, want)
	}
	if got := m.series(t, `ostiary_backends{state="reachable"}`); got < 1 {
		t.Errorf("%v backends count as reachable, want this one", got)
	}

	c.remove(t, "foreign")
	c.awaitGone(t, config)
	c.awaitAllowed(t, namespace)
}

// What the condition Reachable says of a backend, whatever was found.
const (
	notReachable = "the backend is not reachable: check that its Service or host exists, has this port, and listens; "
	notTrusted   = "the CA bundle does not verify the backend's certificate: correct the bundle or the names in the certificate; "
)

// Authors cannot have API servers call what only those reach, nor use backends at
// all where they are disabled.
func TestRefusedBackends(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	refused := func(url, want string) {
		t.Helper()
		p := newPolicy("refused", namespace, hostedBy(&foreign{version: "v1"}, ca.pem, func(b *v1alpha1.Backend) { b.URL = url }))
		await(t).Eventually(func() error {
			return c.Create(t.Context(), p.DeepCopy(),
				client.DryRunAll)
		}).Should(MatchError(ContainSubstring(want)))
	}
	refused("https://169.254.169.254/latest/meta-data",
		"spec.backend.url: Forbidden: 169.254.169.254 is a cloud metadata address: use another server")
	refused("https://[::ffff:a9fe:a9fe]/", "is a cloud metadata address")
	refused("https://0xa9fea9fe/", "is an unusual form of an IP address")

	f := startForeign(t, "", ca.leaf(t))
	c.enforce(t, newPolicy("was-allowed", namespace, hostedBy(f, ca.pem)))
	config := c.carrier(t, "was-allowed")
	c.restarted(t, "--disable-backends")
	p := c.awaitCondition(t, "was-allowed", v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	const disabled = "spec.backend: Forbidden: remove backend: Ostiary runs with --disable-backends"
	if got := condition(p, v1alpha1.ConditionAccepted).Message; !strings.Contains(got, disabled) {
		t.Errorf("message %q, want %q", got, disabled)
	}
	c.awaitGone(t, config)
	refused("https://checks.example.com", disabled)
}

// A backend that is asked for everything, fail-closed, and never answers, keeps
// no client out of what the cluster needs to live.
func TestExternalWebhookIsGuarded(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	lease := newLease(namespace)
	must(t, c.Create(t.Context(), lease))
	f := &foreign{address: cptest.FreeAddress(), version: "v1"} // without a listener
	p := matchesEverything("nastiest")
	hostedBy(f, newAuthority(t, nextYear()).pem)(p)
	p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "not-mine", Expression: `request.name != "mine"`}}
	c.apply(t, p)
	c.awaitCondition(t, "nastiest", v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	got := c.awaitCondition(t, "nastiest", v1alpha1.ConditionReachable, metav1.ConditionFalse)
	want := notReachable +
		"while the API server cannot reach it, matching requests are rejected (failurePolicy Fail)"
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionReady} {
		if c := condition(got, kind); c.Status != metav1.ConditionFalse || c.Reason != "Unreachable" || c.Message != want {
			t.Errorf("condition %+v, want it false: %s", c, want)
		}
	}
	c.awaitEvent(t, "nastiest", "Warning", "Unreachable")
	await(t).Eventually(func() bool { return unreachable(c.probe(t.Context(), namespace, good)) }).Should(BeTrue())
	c.wantGuards(t, lease, false)
	mine := configMap(namespace, bad)
	mine.Name = "mine"
	must(t, c.Create(t.Context(), mine, client.DryRunAll)) // the API server evaluates the condition
	config := c.configurationOf(t, "nastiest")
	c.remove(t, "nastiest")
	c.awaitGone(t, &configuration{ObjectMeta: metav1.ObjectMeta{Name: config}})
	await(t).Eventually(func() error { // another client that finds it gone may have made it once more
		for range 20 {
			if err := c.probe(t.Context(), namespace, bad); err != nil {
				return err
			}
		}
		return nil
	}).Should(Succeed())
}

// The API server itself evaluates the conditions, so what they exclude causes
// no call.
func TestExternalWebhookIsNotCalledForWhatItsConditionsExclude(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	p := newPolicy("conditions", namespace, hostedBy(f, ca.pem))
	p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "only-bad", Expression: `object.data.verdict == "bad"`}}
	c.enforce(t, p)
	c.awaitForeign(t, namespace)
	before := len(f.seen())
	for range 10 {
		must(t, c.probe(t.Context(), namespace, good))
	}
	if got := len(f.seen()); got != before {
		t.Errorf("%d calls for requests that a condition excludes, want none", got-before)
	}
	c.change(t, "conditions", func(p *v1alpha1.WebhookPolicy) { p.Spec.MatchConditions[0].Expression = "params.nonsense" })
	got := c.awaitCondition(t, "conditions", v1alpha1.ConditionReady, metav1.ConditionFalse)
	if a := condition(got, v1alpha1.ConditionAccepted); a.Status != metav1.ConditionFalse ||
		!strings.Contains(a.Message, "spec.matchConditions[0].expression") {
		t.Errorf("condition %+v, want it to name the field", a)
	}
	if err := c.probe(t.Context(), namespace, bad); !deniedByForeign(err) {
		t.Errorf("while the policy is broken: %v, want what was registered before", err)
	}
}

func TestExternalWebhookOfAnOldVersion(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	f.version = "v1beta1"
	// API servers of 1.37 reject configurations with names that end like this one.
	c.enforce(t, newPolicy("old-version.static.k8s.io", namespace, hostedBy(f, ca.pem)))
	c.awaitForeign(t, namespace)
	must(t, c.probe(t.Context(), namespace, good))
}

// A mutating backend stands among Ostiary's own mutations by its order.
func TestExternalWebhookMutatesInOrder(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	first := newPolicy("foreign-first", namespace, hostedBy(f, ca.pem, func(b *v1alpha1.Backend) {
		b.Type, b.URL = v1alpha1.BackendMutating, "https://"+f.address+"/mutate"
	}))
	first.Spec.Order = new(int32(10))
	then := newPolicy("then", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Order = new(int32(20))
		p.Spec.Validations = nil
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{PatchType: "ApplyConfiguration",
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{data: {"seen": has(object.metadata.labels) && "by" in object.metadata.labels ? ` +
					`object.metadata.labels["by"] : "unknown"}}`,
			}}}
	})
	c.enforce(t, first, then)
	await(t).Eventually(func() error {
		o := configMap(namespace, good)
		if err := c.Create(t.Context(), o, client.DryRunAll); err != nil {
			return err
		}
		if o.Labels["by"] != "foreign" || o.Data["seen"] != "foreign" {
			return fmt.Errorf("labels %v and data %v, want both to be of the foreign webhook", o.Labels, o.Data)
		}
		return nil
	}).Should(Succeed())
}

// docsRoles is what the document tells the owner of namespace shop to apply.
func (c *cluster) grant(t *testing.T, namespace, block string) {
	t.Helper()
	text := documented(t, "../../docs/policies/external-webhooks.md", block)
	manifest := strings.ReplaceAll(text, "namespace: shop", "namespace: "+namespace)
	if out, errOut, err := c.kubectl(t.Context(), manifest, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatalf("applying the documented Role: %v\n%s%s", err, out, errOut)
	}
}

// Promise: Secrets outside of Ostiary's namespace are its owner's to grant, and
// the status says what is missing; a CA that changes is followed.
func TestExternalWebhookFollowsItsCA(t *testing.T) {
	c := install(t)
	for _, kind := range []string{"Secret", "ConfigMap"} {
		t.Run(kind, func(t *testing.T) { c.testFollowsCA(t, c.manager(t), kind) })
	}
}

func (c *cluster) testFollowsCA(t *testing.T, m *process, kind string) {
	name := "follows-" + strings.ToLower(kind)
	namespace := c.namespace(t, nil)
	a, b := newAuthority(t, nextYear()), newAuthority(t, nextYear())
	f := startForeign(t, "", a.leaf(t))
	at := v1alpha1.ObjectKey{Namespace: namespace, Name: "checks-ca", Key: "ca.crt"}
	c.store(t, kind, at, map[string]string{"ca.crt": a.pem})
	c.apply(t, newPolicy(name, namespace, hostedBy(f, "", func(b *v1alpha1.Backend) {
		b.CABundle, b.CAFrom = nil, &v1alpha1.CASource{Secret: &at}
		if kind == "ConfigMap" {
			b.CAFrom = &v1alpha1.CASource{ConfigMap: &at}
		}
	})))
	object := kind + " " + namespace + "/checks-ca"
	p := c.awaitCA(t, name, metav1.ConditionFalse, "Forbidden",
		fmt.Sprintf("Ostiary may not read %s: create a Role in namespace %s with the rule "+
			`{apiGroups: [""], resources: [%ss], resourceNames: [checks-ca], verbs: [get, list, watch]}, and bind it to the `+
			`ServiceAccount ostiary-system/ostiary`, object, namespace, strings.ToLower(kind)))
	if r := condition(p, v1alpha1.ConditionReady); r.Status != metav1.ConditionFalse || r.Reason != "Forbidden" ||
		len(p.Status.Webhooks) != 0 {
		t.Errorf("condition %+v and webhooks %v, want the policy not registered", r, p.Status.Webhooks)
	}
	c.awaitEvent(t, name, "Warning", "Forbidden")
	must(t, c.probe(t.Context(), namespace, bad))

	c.grant(t, namespace, "read-"+strings.ToLower(kind))
	c.awaitReady(t, name)
	c.awaitForeign(t, namespace)
	c.awaitCA(t, name, metav1.ConditionTrue, "Read", "the CA bundle is read from "+object+", key ca.crt")

	// Both CAs, then the new certificate, then the new CA alone.
	c.store(t, kind, at, map[string]string{"ca.crt": a.pem + "\n" + b.pem})
	c.awaitBundle(t, name, a.pem, b.pem)
	f.swap(b.leaf(t))
	c.store(t, kind, at, map[string]string{"ca.crt": b.pem})
	c.awaitBundle(t, name, b.pem)
	c.awaitForeign(t, namespace)

	key := a.keyPEM(t)
	for what, tc := range map[string]struct {
		data    map[string]string
		reason  string
		message string
	}{
		"empty": {
			data:    map[string]string{"ca.crt": ""},
			reason:  "Refused",
			message: object + ", key ca.crt is not a CA bundle: empty: write at least one certificate in PEM",
		},
		"not PEM": {
			data:    map[string]string{"ca.crt": "certificate"},
			reason:  "Refused",
			message: object + ", key ca.crt is not a CA bundle: not PEM: it contains no certificate",
		},
		"expired": {
			data:    map[string]string{"ca.crt": newAuthority(t, time.Now().Add(-time.Hour)).pem},
			reason:  "Refused",
			message: object + ", key ca.crt is not a CA bundle: the certificate expired at ",
		},
		"with a key": {
			data:    map[string]string{"ca.crt": b.pem + key},
			reason:  "Refused",
			message: object + ", key ca.crt is not a CA bundle: it contains a private key: remove the key, a bundle contains only certificates",
		},
		"too large": {
			data:    map[string]string{"ca.crt": b.pem + strings.Repeat("\n", 900<<10)},
			reason:  "Refused",
			message: object + ": its data has ",
		},
		"without a key": {
			data:    map[string]string{"other": b.pem},
			reason:  "NotFound",
			message: object + " has no key ca.crt",
		},
		"gone": {reason: "NotFound", message: object + " does not exist"},
	} {
		t.Run(what, func(t *testing.T) {
			c.store(t, kind, at, tc.data)
			p := c.awaitCA(t, name, metav1.ConditionFalse, tc.reason, tc.message)
			if ca := condition(p, v1alpha1.ConditionCAReady); !strings.HasSuffix(ca.Message, "; the last valid bundle stays registered") {
				t.Errorf("message %q does not say what is used", ca.Message)
			}
			c.awaitReady(t, name)
			c.awaitBundle(t, name, b.pem)
			c.awaitForeign(t, namespace)
			c.store(t, kind, at, map[string]string{"ca.crt": b.pem})
			c.awaitCA(t, name, metav1.ConditionTrue, "Read", "")
		})
	}
	t.Run("without a leader", func(t *testing.T) {
		m.kill()
		c.store(t, kind, at, map[string]string{"ca.crt": "certificate"})
		m = c.manager(t)
		c.awaitCA(t, name, metav1.ConditionFalse, "Refused",
			object+", key ca.crt is not a CA bundle: not PEM: it contains no certificate; the last valid bundle stays registered")
		c.awaitReady(t, name)
		c.awaitBundle(t, name, b.pem)
	})
	c.wantNowhere(t, m, strings.Split(key, "\n")[1])
}

// wantNowhere checks that a secret is in no status, event, configuration or log.
func (c *cluster) wantNowhere(t *testing.T, m *process, secret string) {
	t.Helper()
	log, err := m.output()
	must(t, err)
	places := map[string]string{"the log": log}
	for _, kind := range []string{"whp", "events.events.k8s.io", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		out, _, err := c.kubectl(t.Context(), "", "get", kind, "-A", "-o", "yaml")
		must(t, err)
		places[kind] = out
	}
	for place, text := range places {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds the private key", place)
		}
	}
}

// awaitCA waits for the condition CAReady, with a message that begins as given.
func (c *cluster) awaitCA(t *testing.T, policy string, status metav1.ConditionStatus, reason, message string) *v1alpha1.WebhookPolicy {
	t.Helper()
	var p *v1alpha1.WebhookPolicy
	await(t).Eventually(func() error {
		var err error
		if p, err = c.policy(t.Context(), policy); err != nil {
			return err
		}
		if got := condition(p, v1alpha1.ConditionCAReady); got.Status != status || got.Reason != reason ||
			!strings.HasPrefix(got.Message, message) {
			return fmt.Errorf("CAReady is %s (%s: %s), want %s (%s: %s)", got.Status, got.Reason, got.Message, status, reason, message)
		}
		return nil
	}).Should(Succeed())
	return p
}

// awaitBundle waits until the bundle of a policy's backend holds these
// certificates and no others.
func (c *cluster) awaitBundle(t *testing.T, policy string, certificates ...string) {
	t.Helper()
	const end = "-----END CERTIFICATE-----\n"
	slices.Sort(certificates)
	await(t).Eventually(func() ([]string, error) {
		text, err := c.bundleOf(t.Context(), policy)
		parts := strings.SplitAfter(text, end)
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		slices.Sort(parts)
		return parts, err
	}).Should(Equal(certificates))
}

// store makes a Secret or ConfigMap hold the data; none deletes it.
func (c *cluster) store(t *testing.T, kind string, at v1alpha1.ObjectKey, data map[string]string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}
	var o client.Object = &corev1.ConfigMap{ObjectMeta: meta, Data: data}
	if kind == "Secret" {
		o = &corev1.Secret{ObjectMeta: meta, StringData: data, Data: nil}
		if data != nil {
			bytes := map[string][]byte{}
			for k, v := range data {
				bytes[k] = []byte(v)
			}
			o = &corev1.Secret{ObjectMeta: meta, Data: bytes}
		}
	}
	if data == nil {
		must(t, c.Delete(t.Context(), o))
		return
	}
	// API servers learn of a bundle a moment after it is registered, and the
	// webhook is asked about ConfigMaps.
	await(t).Eventually(func() error {
		err := c.Create(t.Context(), o)
		if apierrors.IsAlreadyExists(err) {
			err = c.Update(t.Context(), o)
		}
		return err
	}).Should(Succeed())
}

// A Service is called, and probed, at its cluster IP. Those of this control
// plane are on loopback, where the foreign webhook can listen.
func TestExternalWebhookOfAService(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	service, address := c.service(t, namespace, "checks")
	ca := newAuthority(t, nextYear())
	backend := func(b *v1alpha1.Backend) { b.URL, b.Service = "", service }
	c.apply(t, newPolicy("of-a-service", namespace, hostedBy(&foreign{version: "v1"}, ca.pem, backend)))
	c.awaitReachable(t, "of-a-service", metav1.ConditionFalse, notReachable)

	f := startForeign(t, address, ca.leaf(t, "other.example.com"))
	c.awaitReachable(t, "of-a-service", metav1.ConditionFalse, notTrusted)
	f.serving.Store(newAuthority(t, nextYear()).leaf(t, service.ServerName()))
	c.awaitReachable(t, "of-a-service", metav1.ConditionFalse, notTrusted)
	if calls := f.seen(); len(calls) != 0 {
		t.Errorf("the probe has sent %v, want a handshake only", calls)
	}
	f.serving.Store(ca.leaf(t, service.ServerName()))
	c.awaitReachable(t, "of-a-service", metav1.ConditionTrue, "a TLS handshake with the backend succeeded")
	c.awaitForeign(t, namespace)

	c.change(t, "of-a-service", func(p *v1alpha1.WebhookPolicy) { p.Spec.Backend.Service.Port = new(int32(1)) })
	c.awaitReachable(t, "of-a-service", metav1.ConditionFalse, notReachable)
	c.change(t, "of-a-service", func(p *v1alpha1.WebhookPolicy) { p.Spec.Backend.Service.Name = "nobody" })
	c.awaitReachable(t, "of-a-service", metav1.ConditionFalse, notReachable)
}

func (c *cluster) awaitReachable(t *testing.T, policy string, status metav1.ConditionStatus, message string) {
	t.Helper()
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), policy)
		if err != nil {
			return err
		}
		if got := condition(p, v1alpha1.ConditionReachable); got.Status != status || !strings.HasPrefix(got.Message, message) {
			return fmt.Errorf("Reachable is %s (%s: %s), want %s (%s)", got.Status, got.Reason, got.Message, status, message)
		}
		return nil
	}).Should(Succeed())
}

// service makes a Service and gives it with its address, which has no listener.
func (c *cluster) service(t *testing.T, namespace, name string) (*v1alpha1.BackendService, string) {
	t.Helper()
	_, number, err := net.SplitHostPort(cptest.FreeAddress())
	must(t, err)
	var port int32
	_, err = fmt.Sscan(number, &port)
	must(t, err)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: port}}},
	}
	must(t, c.Create(t.Context(), s))
	return &v1alpha1.BackendService{
		Namespace: namespace,
		Name:      name,
		Path:      "/validate",
		Port:      &port,
	}, net.JoinHostPort(s.Spec.ClusterIP, number)
}

// A policy that becomes a backend is enforced by its expressions until the
// backend is registered, and the other way round.
func TestPolicyBecomesExternalWebhook(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	ca := newAuthority(t, nextYear())
	f := startForeign(t, "", ca.leaf(t))
	c.enforce(t, newPolicy("becomes", namespace))
	c.awaitDenied(t, namespace, "becomes")
	at := v1alpha1.ObjectKey{Namespace: namespace, Name: "checks-ca", Key: "ca.crt"}
	c.change(t, "becomes", hostedBy(f, "", func(b *v1alpha1.Backend) { b.CABundle, b.CAFrom = nil, &v1alpha1.CASource{ConfigMap: &at} }))
	c.awaitCA(t, "becomes", metav1.ConditionFalse, "Forbidden", "")
	if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "becomes") {
		t.Errorf("while the backend has no CA bundle: %v, want a denial by the expressions of before", err)
	}
	c.grant(t, namespace, "read-configmap")
	c.store(t, "ConfigMap", at, map[string]string{"ca.crt": ca.pem})
	c.awaitReady(t, "becomes")
	c.awaitForeign(t, namespace)

	c.change(t, "becomes", func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Backend = nil
		p.Spec.Validations = []v1alpha1.Validation{{Expression: onlyGood}}
	})
	p := c.awaitReady(t, "becomes")
	c.awaitDenied(t, namespace, "becomes")
	if got := condition(p, v1alpha1.ConditionCAReady); got.Status != "" {
		t.Errorf("condition %+v is left", got)
	}
	if got := condition(p, v1alpha1.ConditionReachable); !strings.Contains(got.Message, "API servers reach Ostiary") {
		t.Errorf("condition %+v is about the external webhook, want it about Ostiary", got)
	}
}

// The documented Roles grant nothing but what they name.
func TestExternalWebhookRolesGrantNoMore(t *testing.T) {
	c := install(t)
	namespace := c.namespace(t, nil)
	for _, block := range []string{"read-secret", "read-configmap"} {
		c.grant(t, namespace, block)
	}
	var roles rbacv1.RoleList
	must(t, c.List(t.Context(), &roles, client.InNamespace(namespace)))
	if len(roles.Items) < 2 {
		t.Fatalf("%d Roles", len(roles.Items))
	}
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			if len(rule.ResourceNames) == 0 || slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") {
				t.Errorf("Role %s grants %+v", role.Name, rule)
			}
		}
	}
}
