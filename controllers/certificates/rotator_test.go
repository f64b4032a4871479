package certificates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/pki"
)

func TestFromNothing(t *testing.T) {
	w := newTestEnvironment(t)
	provider := w.startProvider()
	changed := provider.Subscribe(t.Context())
	w.startRotator()
	state := w.waitUntilSteady(provider)

	for _, name := range []string{caName, servingName} {
		s := w.secret(name)
		if s.Type != corev1.SecretTypeTLS {
			t.Errorf("%s has type %s", name, s.Type)
		}
		if diff := cmp.Diff(map[string]string{"app.kubernetes.io/managed-by": "ostiary"}, s.Labels); diff != "" {
			t.Errorf("labels of %s: %s", name, diff)
		}
	}
	if state.CA.Epoch != 1 || state.Serving.Epoch != 1 {
		t.Errorf("epochs = %d and %d, want 1", state.CA.Epoch, state.Serving.Epoch)
	}
	NewWithT(t).Eventually(changed, timeout).Should(Receive())

	address := w.serve(provider)
	for _, name := range []string{serverNames.DNS[0], "127.0.0.1"} {
		conn, err := w.dial(address, name, provider.Bundle())
		if err != nil {
			t.Errorf("as %s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
	if _, err := w.dial(address, "kubernetes.default.svc", provider.Bundle()); err == nil {
		t.Error("a client that expects another name accepts the certificate")
	}
}

func TestNoWriteWhenSteady(t *testing.T) {
	w := newTestEnvironment(t)
	provider := w.startProvider()
	w.startRotator()
	w.waitUntilSteady(provider)
	ca, serving := w.secret(caName).ResourceVersion, w.secret(servingName).ResourceVersion
	written := strings.Count(w.log.String(), "certificates written")
	if written != 2 {
		t.Errorf("%d writes to begin with, want 2", written)
	}
	for range 10 {
		w.clock.Step(time.Hour)
		w.waitUntilSteady(provider)
		time.Sleep(pause)
	}
	if w.secret(caName).ResourceVersion != ca || w.secret(servingName).ResourceVersion != serving {
		t.Error("a Secret was written at rest")
	}
}

// TestRenewalBeforeExpiry has one client connected during a renewal, and new ones
// connecting all the time with the first bundle.
func TestRenewalBeforeExpiry(t *testing.T) {
	w := newTestEnvironment(t)
	provider := w.startProvider()
	w.startRotator()
	w.waitUntilSteady(provider)
	address, bundle := w.serve(provider), provider.Bundle()
	first, err := w.servedSerial(address, bundle)
	if err != nil {
		t.Fatal(err)
	}
	old, err := w.dial(address, "127.0.0.1", bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()

	w.clock.Step(60*day - time.Hour)
	w.waitUntilSteady(provider)
	if serial, err := w.servedSerial(address, bundle); err != nil || serial != first {
		t.Fatalf("before day 60: serial %s, error %v; want %s", serial, err, first)
	}
	w.clock.Step(time.Hour + time.Minute)
	NewWithT(t).Eventually(func() (string, error) {
		serial, err := w.servedSerial(address, bundle)
		if err != nil {
			t.Errorf("a connection failed: %v", err)
		}
		return serial, err
	}, timeout, pause).ShouldNot(Equal(first))
	if _, err := old.Write([]byte("still")); err != nil {
		t.Errorf("writing on the old connection: %v", err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(old, got); err != nil || string(got) != "still" {
		t.Errorf("the old connection answers %q, %v", got, err)
	}
	state := w.waitUntilSteady(provider)
	if left := state.Serving.Pair.Certificate().NotAfter.Sub(w.clock.Now()); left < 89*day {
		t.Errorf("the new leaf has %s left", left)
	}
}

// TestReplacementOfTheCA goes through two CAs with a client whose bundle is always
// one step behind.
func TestReplacementOfTheCA(t *testing.T) {
	w := newTestEnvironment(t)
	w.options.Lifetimes = pki.Config{CALifetime: 100 * day, LeafLifetime: 45 * day}
	provider := w.startProvider()
	w.startRotator()
	state := w.waitUntilSteady(provider)
	address := w.serve(provider)
	for range 30 {
		stale := provider.Bundle()
		w.clock.Step(4 * day)
		next := w.waitUntilSteady(provider)
		if _, err := w.servedSerial(address, stale); err != nil {
			t.Fatalf("with the bundle of four days ago: %v", err)
		}
		if next.Phase() != pki.PhaseSteady {
			t.Errorf("phase %s at rest", next.Phase())
		}
		state = next
	}
	if state.CA.Epoch != 3 || state.Serving.Epoch != 3 {
		t.Errorf("after 120 days the epochs are %d and %d, want 3", state.CA.Epoch, state.Serving.Epoch)
	}
}

func TestLossAndDamage(t *testing.T) {
	corrupt := []byte("c29tZSBzZWNyZXQgY29udGVudA") // what must not be in the log
	set := func(field string, value []byte) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[field] = value }
	}
	tests := map[string]struct {
		secret     string
		change     func(*corev1.Secret) // nil: delete it
		wantNewKey bool                 // of the leaf
		wantLog    string
	}{
		"serving deleted": {secret: servingName, wantNewKey: true},
		"CA deleted":      {secret: caName},
		"serving emptied": {
			secret:     servingName,
			change:     func(s *corev1.Secret) { s.Data = map[string][]byte{chainField: {}, keyField: {}} },
			wantNewKey: true,
			wantLog:    "field tls.crt: empty",
		},
		"certificate corrupt": {
			secret:     servingName,
			change:     set(chainField, corrupt),
			wantNewKey: true,
			wantLog:    "reading Secret ostiary-serving: field tls.crt: text that is not PEM",
		},
		"key corrupt": {
			secret:     servingName,
			change:     set(keyField, corrupt),
			wantNewKey: true,
			wantLog:    "reading Secret ostiary-serving: field tls.key: text that is not PEM",
		},
		"certificate too large": {
			secret:     servingName,
			change:     set(chainField, make([]byte, 65<<10)),
			wantNewKey: true,
			wantLog:    "field tls.crt: 66560 bytes of PEM: the limit is 65536",
		},
		"bundle corrupt": {
			secret:  servingName,
			change:  set(bundleField, corrupt),
			wantLog: "reading Secret ostiary-serving: field ca.crt: text that is not PEM",
		},
		"bundle not canonical": {
			secret:  servingName,
			change:  func(s *corev1.Secret) { s.Data[bundleField] = append(s.Data[bundleField], '\n') },
			wantLog: "field ca.crt: not in the canonical form",
		},
		"epoch corrupt": {
			secret:  servingName,
			change:  set(epochField, []byte("-1")),
			wantLog: "field epoch: not an epoch",
		},
		"CA's key corrupt": {
			secret:  caName,
			change:  set(keyField, corrupt),
			wantLog: "reading Secret ostiary-ca: field tls.key: text that is not PEM",
		},
		"CA's key of another": {
			secret:  caName,
			change:  set(keyField, unrelatedKey(t)),
			wantLog: "reading Secret ostiary-ca: field tls.key: the key does not belong to the certificate",
		},
		"CA's epoch lost": {
			secret:  caName,
			change:  func(s *corev1.Secret) { delete(s.Data, epochField) },
			wantLog: "reading Secret ostiary-ca: field epoch: not an epoch",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnvironment(t)
			provider := w.startProvider()
			w.startRotator()
			before := w.waitUntilSteady(provider)
			bundle, address := provider.Bundle(), w.serve(provider)

			secrets := w.client.CoreV1().Secrets(w.options.Namespace)
			s := w.secret(tc.secret)
			var err error
			if tc.change == nil {
				err = secrets.Delete(t.Context(), tc.secret, metav1.DeleteOptions{})
			} else {
				s.Labels["example.org/mine"] = "yes"
				s.Annotations = map[string]string{"example.org/mine": "yes"}
				tc.change(s)
				_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			after := w.waitUntilSteady(provider)

			if _, err := w.servedSerial(address, bundle); err != nil {
				t.Errorf("with the bundle from before: %v", err)
			}
			if !after.CA.Pair.Certificate().Equal(before.CA.Pair.Certificate()) || after.CA.Epoch != before.CA.Epoch {
				t.Error("the CA was not put back")
			}
			if newKey := !after.Serving.Pair.Certificate().Equal(before.Serving.Pair.Certificate()); newKey != tc.wantNewKey {
				t.Errorf("new leaf: %t, want %t", newKey, tc.wantNewKey)
			}
			if !strings.Contains(w.log.String(), tc.wantLog) {
				t.Errorf("the log lacks %q", tc.wantLog)
			}
			if strings.Contains(w.log.String(), string(corrupt)) {
				t.Error("the log holds the content of a field")
			}
			if s := w.secret(tc.secret); tc.change != nil && (s.Labels["example.org/mine"] != "yes" || s.Annotations["example.org/mine"] != "yes") {
				t.Errorf("labels and annotations of others are gone: %v %v", s.Labels, s.Annotations)
			}
		})
	}
}

// TestLostWithoutLeader loses the CA together with the leader. The old serving
// certificate stays until every API server can trust the new CA.
func TestLostWithoutLeader(t *testing.T) {
	for name, lost := range map[string][]string{"CA": {caName}, "both Secrets": {caName, servingName}} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), newTestEnvironment(t)
			provider := w.startProvider()
			stop := w.startRotator()
			before := w.waitUntilSteady(provider)
			bundle, address := provider.Bundle(), w.serve(provider)
			stop()
			for _, name := range lost {
				if err := w.client.CoreV1().Secrets(w.options.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			published := func(context.Context) (Published, error) {
				return Published{Bundles: [][]byte{provider.Bundle()}, Epoch: provider.TrustEpoch()}, nil
			}
			w.options.Published = published
			w.startRotator()
			g.Eventually(func() (pki.Phase, error) { s, err := w.state(); return s.Phase(), err }, timeout, pause).Should(Equal(pki.PhaseTrusting))
			for range 14 {
				w.clock.Step(time.Minute)
				time.Sleep(pause)
				if _, err := w.servedSerial(address, bundle); err != nil {
					t.Fatalf("with the bundle from before: %v", err)
				}
			}
			overlap := provider.Bundle()
			g.Eventually(func() (pki.Phase, error) {
				w.clock.Step(20 * time.Second)
				s, err := w.state()
				return s.Phase(), err
			}, timeout, pause).Should(Equal(pki.PhaseSteady))
			after := w.waitUntilSteady(provider)
			if after.CA.Epoch != before.CA.Epoch+1 || after.Serving.Epoch != after.CA.Epoch {
				t.Errorf("epochs %d and %d, want %d", after.CA.Epoch, after.Serving.Epoch, before.CA.Epoch+1)
			}
			if _, err := w.servedSerial(address, overlap); err != nil {
				t.Errorf("with the bundle of the overlap: %v", err)
			}
		})
	}
}

// TestRotationOnRequest requests a rotation like an operator, and reads Secrets
// without cross-certificates and trust epochs.
func TestRotationOnRequest(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	events := &eventRecorder{}
	w.options.Events = events
	old := makeState(t, serverNames, w.clock.Now())
	ca, serving := mustData(t)(authorityData(old.CA)), dataOf(t, old.Serving)
	delete(serving, trustEpochField)
	ca[previousField] = pki.EncodeCertificates(makeState(t, serverNames, w.clock.Now()).CA.Pair.Certificate())
	serving[bundleField] = append(serving[bundleField], ca[previousField]...)
	w.put(caName, ca)
	w.put(servingName, serving)
	provider := w.startProvider()
	w.startRotator()
	before := w.waitUntilSteady(provider)
	if before.CA.Epoch != 1 || before.CA.Previous != nil || !before.CA.Pair.Certificate().Equal(old.CA.Pair.Certificate()) {
		t.Errorf("epoch %d: the CA of the older version must be carried over, and the one before retired", before.CA.Epoch)
	}
	bundle, address := provider.Bundle(), w.serve(provider)
	w.clock.Step(16 * time.Minute) // since the last rotation
	for i := range 2 {
		w.requestRotation("now, please")
		g.Eventually(func() int64 {
			w.clock.Step(time.Second)
			if _, err := w.servedSerial(address, bundle); err != nil {
				t.Errorf("with the bundle from before: %v", err)
			}
			return w.waitUntilSteady(provider).CA.Epoch
		}, timeout, pause).Should(Equal(int64(2)), "request %d", i)
	}
	if _, err := w.servedSerial(address, bundle); err != nil {
		t.Errorf("with the bundle from before, when all is done: %v", err)
	}
	w.waitUntilSteady(provider)
	for _, want := range []string{
		"Normal RotationStarted: a rotation was requested; epoch 2, phase Trusting",
		"Normal CertificateIssued: the CA has changed; epoch 2, phase Serving",
		"Normal RotationDone: every replica serves a certificate of the new CA; epoch 2, phase Steady",
	} {
		if !strings.Contains(events.String(), want) {
			t.Errorf("no event %q among:\n%s", want, events)
		}
	}
	for key := range w.keys {
		if strings.Contains(events.String(), key) {
			t.Error("an event holds a key")
		}
	}
}

// TestFallback has a client that rejects the certificate of the new CA. The
// replica falls back, and trust in the old CA does not end meanwhile.
func TestFallback(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	provider := w.startProvider()
	w.startRotator()
	w.waitUntilSteady(provider)
	w.options.Registerer = prometheus.NewRegistry()
	first := provider.Fingerprint()
	w.requestRotation("now, please")
	g.Eventually(provider.Fingerprint, timeout, pause).ShouldNot(Equal(first))
	second := provider.Fingerprint()
	g.Expect(provider.Committed()).To(Equal(int64(1)))
	provider.ReportDistrust()
	g.Expect(provider.Fingerprint()).To(Equal(first))
	g.Expect(testutil.ToFloat64(provider.metrics.fallbacks)).To(Equal(1.0))
	for range 7 {
		w.clock.Step(2 * time.Minute)
		time.Sleep(pause)
		if state, err := w.state(); err != nil || state.Phase() != pki.PhaseServing || provider.Fingerprint() != first {
			t.Fatalf("phase %s, serving %s, error %v", state.Phase(), provider.Fingerprint(), err)
		}
	}
	w.clock.Step(2 * time.Minute)
	g.Eventually(provider.Fingerprint, timeout, pause).Should(Equal(second))
	provider.ReportDistrust() // has no effect a second time
	g.Expect(provider.Fingerprint()).To(Equal(second))
	if state := w.waitUntilSteady(provider); state.Phase() != pki.PhaseSteady || state.CA.Epoch != 2 {
		t.Errorf("phase %s, epoch %d", state.Phase(), state.CA.Epoch)
	}
}

func mustData(t *testing.T) func(map[string][]byte, error) map[string][]byte {
	return func(data map[string][]byte, err error) map[string][]byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

func unrelatedKey(t *testing.T) []byte {
	state := makeState(t, serverNames, time.Now())
	key, err := state.CA.Pair.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestBothLostAndExpired loses both Secrets while all replicas are new.
func TestBothLostAndExpired(t *testing.T) {
	w := newTestEnvironment(t)
	data, err := servingData(makeState(t, serverNames, w.clock.Now().Add(-2*365*day)).Serving)
	if err != nil {
		t.Fatal(err)
	}
	w.put(servingName, data)
	provider := w.startProvider()
	NewWithT(t).Eventually(provider.Ready, timeout, pause).Should(MatchError(ContainSubstring("the certificate expired at")))
	w.startRotator()
	state := w.waitUntilSteady(provider)
	if state.CA.Epoch != 2 {
		t.Errorf("epoch = %d, want 2: the old one was 1", state.CA.Epoch)
	}
}

func TestServerNamesChange(t *testing.T) {
	w := newTestEnvironment(t)
	stop := w.startRotator()
	w.waitUntilSteady(w.startProvider())
	stop()

	w.options.ServerNames = ServerNames{DNS: []string{"ostiary.example.org"}, IPs: []net.IP{net.IPv6loopback}}
	w.options.Registerer = prometheus.NewRegistry()
	provider := w.startProvider()
	w.startRotator()
	w.waitUntilSteady(provider)
	conn, err := w.dial(w.serve(provider), "ostiary.example.org", provider.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// TestManyRotators runs several leaders at once: the API server accepts one write,
// and the others continue from it.
func TestManyRotators(t *testing.T) {
	w := newTestEnvironment(t)
	for range 4 {
		w.startRotator()
	}
	provider := w.startProvider()
	state := w.waitUntilSteady(provider)
	if state.CA.Epoch != 1 {
		t.Errorf("epoch = %d, want 1", state.CA.Epoch)
	}
	w.clock.Step(61 * day)
	w.waitUntilSteady(provider)
	// A Rotator logs after its write, which others may already serve.
	written := func() int { return strings.Count(w.log.String(), "certificates written") }
	NewWithT(t).Eventually(written, time.Minute, 10*time.Millisecond).Should(BeNumerically(">=", 3), "CA, leaf, leaf")
	if written() != 3 {
		t.Errorf("%d writes, want 3: CA, leaf, leaf", written())
	}
}

// TestStaleWriteIsRefused changes a Secret between a Rotator's read and write.
func TestStaleWriteIsRefused(t *testing.T) {
	w := newTestEnvironment(t)
	provider := w.startProvider()
	stop := w.startRotator()
	state := w.waitUntilSteady(provider)
	stop()
	k := w.rotator()
	f, err := k.fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := w.secret(servingName)
	s.Labels["changed"] = "yes"
	if _, err := w.client.CoreV1().Secrets(w.options.Namespace).Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.store(t.Context(), f, pki.Action{Kind: pki.IssueLeaf}, state); err == nil {
		t.Error("a write succeeded although the Secret had changed")
	}
	f.serving = nil
	if err := k.store(t.Context(), f, pki.Action{Kind: pki.IssueLeaf}, state); err == nil {
		t.Error("a create succeeded although the Secret existed")
	}
}

// TestErrorsOfTheAPIServer fails all requests for a while and restarts the
// Rotator, as a change of leadership does.
func TestErrorsOfTheAPIServer(t *testing.T) {
	w := newTestEnvironment(t)
	provider := w.startProvider()
	var fail atomic.Int64
	fail.Store(4)
	config := rest.CopyConfig(apiServer)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Get("watch") == "" && fail.Add(-1) >= 0 {
				return nil, errors.New("the network is down")
			}
			return next.RoundTrip(r)
		})
	})
	k := w.rotatorOf(provider, kubernetes.NewForConfigOrDie(config))
	stop := w.run(k.Run)
	w.waitUntilSteady(provider)
	if !strings.Contains(w.log.String(), "the network is down") {
		t.Error("the log does not say why it took so long")
	}
	stop()

	if err := w.client.CoreV1().Secrets(w.options.Namespace).Delete(t.Context(), servingName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.run(k.Run)
	w.waitUntilSteady(provider)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPermissions runs with the permissions on Secrets that Ostiary's role
// gives, and no others.
func TestPermissions(t *testing.T) {
	w := newTestEnvironment(t)
	ns, user := w.options.Namespace, "rotator-of-"+w.options.Namespace
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "ostiary"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			{
				APIGroups:     []string{""},
				Resources:     []string{"secrets"},
				Verbs:         []string{"get", "list", "watch", "update"},
				ResourceNames: []string{caName, servingName},
			},
		},
	}
	if _, err := w.client.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ostiary"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ostiary"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := w.client.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(apiServer)
	config.Impersonate.UserName = user
	admin := w.client
	w.client = kubernetes.NewForConfigOrDie(config)
	provider := w.startProvider()
	w.startRotator()
	w.waitUntilSteady(provider)
	if _, err := w.client.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the test proves nothing: the user may list all Secrets")
	}
	// Only the watch wakes the Rotator, because the clock does not move.
	if err := admin.CoreV1().Secrets(ns).Delete(t.Context(), servingName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitUntilSteady(provider)
}

func TestOptions(t *testing.T) {
	good := Options{Namespace: "ostiary-system", ServerNames: serverNames}
	tests := map[string]struct {
		change  func(*Options)
		wantErr string
	}{
		"no namespace": {
			change:  func(o *Options) { o.Namespace = "" },
			wantErr: "maintaining certificates: the namespace of the Secrets is missing",
		},
		"no names": {
			change:  func(o *Options) { o.ServerNames = ServerNames{} },
			wantErr: "maintaining certificates: no server name: give at least one DNS name or IP address",
		},
		"lifetimes": {
			change:  func(o *Options) { o.Lifetimes.Overlap = 1 },
			wantErr: "maintaining certificates: Overlap is 1ns: must be at least 5s",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := good
			tc.change(&o)
			for what, err := range map[string]error{
				"Rotator":  NewRotator(nil, NewProvider(nil, o), o).Run(context.Background()),
				"Provider": NewProvider(nil, o).Start(context.Background()),
			} {
				if diff := cmp.Diff(tc.wantErr, fmt.Sprint(err)); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
		})
	}
}

// TestWrongClock has a leader with a wrong clock: nothing is renewed and no
// rotation begins.
func TestWrongClock(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"ahead": 40 * day, "far ahead": 3650 * day, "behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			g, w := NewWithT(t), newTestEnvironment(t)
			right := w.clock.Now()
			w.options.ServerTime = func() time.Time { return right }
			provider := w.startProvider()
			w.startRotator()
			before := w.waitUntilSteady(provider)
			bundle, address := provider.Bundle(), w.serve(provider)
			w.clock.SetTime(right.Add(wrong))
			w.requestRotation("now, please")
			g.Eventually(w.log.String, timeout,
				pause).Should(ContainSubstring("a rotation was requested, but the clocks of this replica and of the API server disagree"))
			g.Expect(provider.Ready()).To(Succeed())
			g.Expect(testutil.ToFloat64(provider.metrics.skew)).To(BeNumerically("~", wrong.Seconds(), 120))
			after, err := w.state()
			if err != nil || after.CA.Epoch != before.CA.Epoch {
				t.Errorf("epoch %d, error %v; want the CA of before", after.CA.Epoch, err)
			}
			w.clock.SetTime(right) // for the client below
			if _, err := w.servedSerial(address, bundle); err != nil {
				t.Errorf("by the right clock: %v", err)
			}
			w.requestRotation("still") // a fake clock's timers move back with it
			g.Eventually(func() int64 { return w.waitUntilSteady(provider).CA.Epoch }, timeout,
				pause).Should(Equal(before.CA.Epoch+1), "when the clock is right again")
		})
	}
}
