package backends

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/secrets"
	"github.com/ostiary/ostiary/internal/egress"
)

// newStore returns a Store for an API server without requests.
func newStore(t *testing.T) *Store {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{
		Client:     client,
		Namespace:  "ostiary-system",
		Registerer: prometheus.NewRegistry(),
		Rule:       egress.Rule{Permitted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	})
}

func policyWith(name string, b v1alpha1.Backend) *v1alpha1.WebhookPolicy {
	b.URL = "https://127.0.0.1:1"
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec:       v1alpha1.WebhookPolicySpec{Backend: &b},
	}
}

// A replica that does not lead knows the bundles in policies, and leaves the
// registered ones unchanged.
func TestBundlesOfAReplicaThatDoesNotLead(t *testing.T) {
	s := newStore(t)
	public := policyWith("public", v1alpha1.Backend{})
	broken := policyWith("broken", v1alpha1.Backend{CABundle: []byte("no")})
	elsewhere := policyWith("elsewhere",
		v1alpha1.Backend{CAFrom: &v1alpha1.CASource{Secret: &v1alpha1.ObjectKey{Namespace: "a", Name: "b", Key: "c"}}})
	s.Want([]*v1alpha1.WebhookPolicy{public, broken, elsewhere, {}})
	for _, tt := range []struct {
		policy      *v1alpha1.WebhookPolicy
		wantOK      bool
		wantMissing string
		temporary   bool
	}{
		{public, true, ReasonProbing, true},
		{broken, false, ReasonCARefused, false},
		{elsewhere, false, ReasonCAReading, true},
		{policyWith("unknown", v1alpha1.Backend{}), false, ReasonCAReading, true},
	} {
		if bundle, ok := s.Bundle(tt.policy); ok != tt.wantOK || bundle != nil {
			t.Errorf("%s: bundle %q, %t, want none, %t", tt.policy.Name, bundle, ok, tt.wantOK)
		}
		r := s.Report(tt.policy)
		if r.Missing == nil || r.Missing.Reason != tt.wantMissing || r.Temporary != tt.temporary {
			t.Errorf("%s: report %+v, want missing %s, temporary %t", tt.policy.Name, r, tt.wantMissing, tt.temporary)
		}
	}
	if len(s.watches) != 0 {
		t.Errorf("%d objects are watched", len(s.watches))
	}
	s.Want(nil)
	if _, ok := s.Bundle(public); ok {
		t.Error("the bundle of a removed policy remains")
	}
}

// A leader discards its state when it loses leadership.
func TestTermEnds(t *testing.T) {
	s := newStore(t)
	elsewhere := policyWith("elsewhere",
		v1alpha1.Backend{CAFrom: &v1alpha1.CASource{ConfigMap: &v1alpha1.ObjectKey{Namespace: "a", Name: "b", Key: "c"}}})
	s.Want([]*v1alpha1.WebhookPolicy{elsewhere})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	for watching := false; !watching; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		watching = len(s.watches) == 1
		s.mu.Unlock()
	}
	s.mu.Lock()
	b := s.backends[elsewhere.UID]
	b.good, b.known = []byte("old"), true
	s.mu.Unlock()
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if bundle, ok := s.Bundle(elsewhere); ok || len(s.watches) != 0 {
		t.Errorf("bundle %q, %t, and %d watches are left", bundle, ok, len(s.watches))
	}
}

func TestReachability(t *testing.T) {
	now := time.Unix(0, 0)
	var r reachability
	steps := []struct {
		reason   string
		wantNews bool
		wantOK   bool
	}{
		{ReasonUnreachable, true, false},
		{ReasonUnreachable, false, false},
		{ReasonNotTrusted, true, false},
		{ReasonHandshake, true, true},
		{ReasonHandshake, false, true},
		{ReasonUnreachable, false, true}, // once is no time
		{ReasonHandshake, false, true},
		{ReasonUnreachable, false, true},
		{ReasonUnexpectedAnswer, true, false},
	}
	for i, step := range steps {
		if news := r.ended(step.reason, now); news != step.wantNews || r.ok != step.wantOK || !r.known {
			t.Errorf("step %d: news %t, ok %t, want %t, %t", i, news, r.ok, step.wantNews, step.wantOK)
		}
	}
	if r.reason != ReasonUnexpectedAnswer || !r.due.Equal(now.Add(probeRetryInterval)) {
		t.Errorf("reason %q, due %s", r.reason, r.due)
	}
	epoch := r.epoch
	if r.restart(); !r.due.IsZero() || r.known || r.epoch == epoch {
		t.Errorf("%+v after a restart", r)
	}
	if !r.ended(ReasonUnreachable, now) || r.ok {
		t.Error("the first failure at a new address does not count")
	}
}

// Authors of policies see one of three reasons, and no address, error or
// certificate.
func TestConditionHidesNetworkDetails(t *testing.T) {
	tlsServer := httptest.NewTLSServer(nil)
	defer tlsServer.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := silent.Addr().String()
	silent.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tlsServer.Certificate().Raw})
	other := []byte("nothing")
	loopback := egress.Rule{Permitted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	for name, tt := range map[string]struct {
		rule       egress.Rule
		address    string
		bundle     []byte
		wantReason string
	}{
		"a backend": {
			rule:       loopback,
			address:    tlsServer.Listener.Addr().String(),
			bundle:     ca,
			wantReason: ReasonHandshake,
		},
		"a backend of another CA": {
			rule:       loopback,
			address:    tlsServer.Listener.Addr().String(),
			bundle:     other,
			wantReason: ReasonNotTrusted,
		},
		"a server without TLS": {
			rule:       loopback,
			address:    plain.Listener.Addr().String(),
			bundle:     ca,
			wantReason: ReasonUnexpectedAnswer,
		},
		"a closed port": {rule: loopback, address: closed, bundle: ca, wantReason: ReasonUnreachable},
		"no such name": {
			rule:       loopback,
			address:    "no.such.name.invalid:443",
			bundle:     ca,
			wantReason: ReasonUnreachable,
		},
		"a backend at a refused address": {
			rule:       egress.Rule{},
			address:    tlsServer.Listener.Addr().String(),
			bundle:     ca,
			wantReason: ReasonUnreachable,
		},
		"a closed port at a refused address": {
			rule:       egress.Rule{},
			address:    closed,
			bundle:     ca,
			wantReason: ReasonUnreachable,
		},
		"a name of a refused address": {
			rule:       egress.Rule{},
			address:    strings.Replace(plain.Listener.Addr().String(), "127.0.0.1", "localhost", 1),
			bundle:     ca,
			wantReason: ReasonUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reason := newProber(nil, tt.rule).handshake(t.Context(), &v1alpha1.Backend{URL: "https://" + tt.address}, tt.bundle)
			if reason != tt.wantReason {
				t.Errorf("reason %s, want %s", reason, tt.wantReason)
			}
			b := backend{policy: policyWith("p", v1alpha1.Backend{})}
			b.reach.ended(reason, time.Now())
			host, port, _ := net.SplitHostPort(tt.address)
			for _, detail := range []string{host, port, "dial", "tcp", "connection refused", "x509", "tls:", "lookup"} {
				if got := b.reachable(&b.policy.Spec).Message; strings.Contains(got, detail) {
					t.Errorf("message %q holds %q", got, detail)
				}
			}
		})
	}
}

func TestHostOf(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 443}}
	for name, tt := range map[string]struct {
		spec      corev1.ServiceSpec
		want      string
		wantError string
	}{
		"cluster IP":    {spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: ports}, want: "10.0.0.1"},
		"external name": {spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example.com"}, want: "a.example.com"},
		"headless": {
			spec:      corev1.ServiceSpec{ClusterIP: "None", Ports: ports},
			wantError: "the Service is headless, which the API server does not support: assign a cluster IP",
		},
		"another port": {
			spec:      corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 8443}}},
			wantError: "the Service has no port 443",
		},
	} {
		got, err := hostOf(&corev1.Service{Spec: tt.spec}, 443)
		if got != tt.want || (err == nil) != (tt.wantError == "") || err != nil && err.Error() != tt.wantError {
			t.Errorf("%s: %q, %v, want %q, %q", name, got, err, tt.want, tt.wantError)
		}
	}
}

func TestRefusal(t *testing.T) {
	o := secrets.Object{Kind: secrets.KindConfigMap, Namespace: "shop", Name: "ca"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "ca", errors.New("no"))
	want := trust{reason: ReasonCAForbidden,
		message: "Ostiary may not read ConfigMap shop/ca: create a Role in namespace shop with the rule " +
			`{apiGroups: [""], resources: [configmaps], resourceNames: [ca], verbs: [get]}, and bind it to the ServiceAccount a/b`}
	if diff := cmp.Diff(want, refusal(forbidden, o, "a/b", "read", "get"), cmp.AllowUnexported(trust{})); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if got := refusal(errors.New("gone away"), o, "a/b", "read", "get"); got.reason != ReasonCAFailed ||
		got.message != "ConfigMap shop/ca: gone away" {
		t.Errorf("got %+v", got)
	}
}

func TestConsequence(t *testing.T) {
	if a, b := consequence(admissionregistrationv1.Fail), consequence(admissionregistrationv1.Ignore); a == b {
		t.Errorf("both are %q", a)
	}
}
