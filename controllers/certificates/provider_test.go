package certificates

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/pki"
)

// makeState returns the state that a Rotator creates from nothing.
func makeState(t *testing.T, names ServerNames, now time.Time) pki.State {
	t.Helper()
	var state pki.State
	config := pki.Config{}.WithDefaults()
	o := pki.Observed{Clocks: pki.Clocks{Local: now, Server: now}}
	for range 2 {
		var err error
		if state, err = pki.Apply(state, pki.Next(state, o, names, config), o, names, config, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	return state
}

func dataOf(t *testing.T, s pki.Serving) map[string][]byte {
	t.Helper()
	data, err := servingData(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRefusals writes invalid content to the Secret. Without a Rotator nothing
// repairs it, and the Provider keeps what it serves.
func TestRefusals(t *testing.T) {
	now := time.Now()
	good := makeState(t, serverNames, now).Serving
	unrelated := makeState(t, serverNames, now).Serving
	elsewhere := makeState(t, ServerNames{DNS: []string{"elsewhere.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, now).Serving
	expired := makeState(t, serverNames, now.Add(-91*day)).Serving
	authority := makeState(t, serverNames, now).CA
	with := func(field string, value []byte) map[string][]byte {
		data := maps.Clone(dataOf(t, good))
		data[field] = value
		return data
	}
	tests := map[string]struct {
		data   map[string][]byte
		reason pki.Reason
	}{
		"garbage":              {with(chainField, []byte("garbage")), pki.ReasonEncoding},
		"no bundle":            {with(bundleField, nil), pki.ReasonEncoding},
		"a leaf as bundle":     {with(bundleField, good.Pair.CertificatePEM()), pki.ReasonUsage},
		"key of another":       {with(keyField, dataOf(t, unrelated)[keyField]), pki.ReasonKey},
		"other names":          {dataOf(t, elsewhere), pki.ReasonNames},
		"a CA":                 {dataOf(t, pki.Serving{Pair: authority.Pair, Bundle: good.Bundle, Paths: good.Paths}), pki.ReasonUsage},
		"expired":              {dataOf(t, expired), pki.ReasonValidity},
		"bundle of another CA": {with(bundleField, unrelated.Bundle.PEM()), pki.ReasonChain},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			w := newTestEnvironment(t)
			w.put(servingName, dataOf(t, good))
			provider := w.startProvider()
			g.Eventually(provider.Ready, timeout, pause).Should(Succeed())
			bundle, address := provider.Bundle(), w.serve(provider)
			changed := provider.Subscribe(t.Context())

			w.put(servingName, tc.data)
			count := func() float64 {
				return testutil.ToFloat64(provider.metrics.rejected.WithLabelValues(string(tc.reason)))
			}
			g.Eventually(count, timeout, pause).Should(Equal(1.0))
			for range 3 { // an unchanged Secret is not rejected again
				w.clock.Step(time.Minute)
				time.Sleep(pause)
			}
			g.Expect(count()).To(Equal(1.0))
			if lines := strings.Count(w.log.String(), "the Secret cannot be served"); lines != 1 {
				t.Errorf("%d alarms in the log, want 1", lines)
			}
			if serial, err := w.servedSerial(address, bundle); err != nil || serial != pki.Serial(good.Pair.Certificate()) {
				t.Errorf("serial %s, error %v; want what was served before", serial, err)
			}
			g.Expect(provider.Bundle()).To(Equal(bundle))
			g.Expect(provider.Ready()).To(Succeed())
			g.Expect(changed).NotTo(Receive())

			w.put(servingName, dataOf(t, unrelated))
			g.Eventually(changed, timeout, pause).Should(Receive())
			if _, err := w.servedSerial(address, unrelated.Bundle.PEM()); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
}

func TestDeletedSecretIsKeptInMemory(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	w.put(servingName, dataOf(t, makeState(t, serverNames, w.clock.Now()).Serving))
	provider := w.startProvider()
	g.Eventually(provider.Ready, timeout, pause).Should(Succeed())
	if err := w.client.CoreV1().Secrets(w.options.Namespace).Delete(t.Context(), servingName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Eventually(w.log.String, timeout, pause).Should(ContainSubstring("the Secret does not exist, keeping the served certificate"))
	g.Expect(provider.Ready()).To(Succeed())
	if _, err := w.servedSerial(w.serve(provider), provider.Bundle()); err != nil {
		t.Error(err)
	}
}

// TestNotYetValid has a replica with a slow clock. It serves the certificate once
// that is valid, without an event.
func TestNotYetValid(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	w.put(servingName, dataOf(t, makeState(t, serverNames, w.clock.Now().Add(2*time.Hour)).Serving))
	provider := w.startProvider()
	g.Eventually(provider.Ready, timeout, pause).Should(MatchError(ContainSubstring("not valid before")))
	g.Eventually(func() error {
		w.clock.Step(10 * time.Minute)
		return provider.Ready()
	}, timeout, pause).Should(Succeed())
}

func TestReady(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	provider := w.startProvider()
	if provider.NeedLeaderElection() {
		t.Error("the Provider must run in every replica")
	}
	g.Expect(provider.Ready()).To(MatchError("no certificate from Secret " + w.options.Namespace +
		"/ostiary-serving yet: the Secret does not exist or has not been read yet"))
	address := w.serve(provider)
	dial := func() error {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return conn.Close()
	}
	provider.firstTimeout = time.Millisecond
	g.Expect(dial()).To(MatchError(ContainSubstring("internal error")))
	g.Expect(provider.Bundle()).To(BeNil())
	provider.firstTimeout = timeout // early handshakes wait
	early := make(chan error, 1)
	go func() { early <- dial() }()

	made := w.clock.Now()
	w.put(servingName, dataOf(t, makeState(t, serverNames, made).Serving))
	g.Eventually(provider.Ready, timeout, pause).Should(Succeed())
	g.Eventually(early, timeout).Should(Receive(BeNil()))
	w.clock.SetTime(made.Add(89*day - 2*time.Second))
	g.Expect(provider.Ready()).To(Succeed())
	w.clock.SetTime(made.Add(89*day + 2*time.Second))
	g.Expect(provider.Ready()).To(MatchError(ContainSubstring("less than 24h0m0s: its renewal is overdue")))
	w.clock.SetTime(made.Add(91 * day))
	g.Expect(provider.Ready()).To(MatchError(ContainSubstring("API servers would reject the served certificate: the certificate expired at")))
}

func TestMetrics(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	state := makeState(t, serverNames, w.clock.Now())
	w.put(servingName, dataOf(t, state.Serving))
	provider := w.startProvider()
	g.Eventually(provider.Ready, timeout, pause).Should(Succeed())
	for certificate, want := range map[string]time.Time{
		"leaf": state.Serving.Pair.Certificate().NotAfter,
		"ca":   state.CA.Pair.Certificate().NotAfter,
	} {
		if got := testutil.ToFloat64(provider.metrics.expiry.WithLabelValues(certificate)); got != float64(want.Unix()) {
			t.Errorf("expiry of %s = %f, want %d", certificate, got, want.Unix())
		}
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	g.Expect(series).To(Equal(map[string]int{
		"ostiary_certificate_epoch":                        2,
		"ostiary_certificate_expiry_timestamp_seconds":     2,
		"ostiary_certificate_fallbacks_total":              1,
		"ostiary_certificate_not_before_timestamp_seconds": 2,
		"ostiary_certificate_rejected_total":               7,
		"ostiary_clock_skew_seconds":                       1,
	}))
	if problems, err := testutil.GatherAndLint(w.registry); err != nil || len(problems) > 0 {
		t.Errorf("problems = %v, error = %v", problems, err)
	}
	again := NewProvider(w.client, w.options)
	g.Expect(again.Start(context.Background())).To(MatchError(ContainSubstring("registering the metrics of certificates")))
}

// TestWatchForbidden checks that a Provider without permission reports it.
func TestWatchForbidden(t *testing.T) {
	g, w := NewWithT(t), newTestEnvironment(t)
	config := rest.CopyConfig(apiServer)
	config.Impersonate.UserName = "unprivileged"
	w.client = kubernetes.NewForConfigOrDie(config)
	w.startProvider()
	g.Eventually(w.log.String, timeout, pause).Should(And(
		ContainSubstring("watching the Secret failed, retrying"),
		ContainSubstring(`User \"unprivileged\" cannot watch resource \"secrets\"`),
	))
}
