package canary

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/registration"
)

const validate = registration.PhaseValidate

func callFailed(text string) error {
	return apierrors.NewInternalError(errors.New(`failed calling webhook "canary-validate.ostiary.dev": failed to call ` +
		`webhook: Post "https://x/canary/validate?timeout=5s": ` + text))
}

func denied(nonce string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "canary-validate.ostiary.dev" denied the request: ` + registration.CanaryMessage(nonce)}}
}

func TestVerdictOf(t *testing.T) {
	tests := map[string]struct {
		err        error
		wantStatus metav1.ConditionStatus
		wantReason string
		wantText   string
	}{
		"denied with the nonce": {
			err:        denied("n-1"),
			wantStatus: "True",
			wantReason: "Reachable",
			wantText:   "the API server reaches Ostiary",
		},
		"denied with another one": {
			err:        denied("n-2"),
			wantStatus: "Unknown",
			wantReason: "ProbeFailed",
			wantText:   "rejects the canary's request before it calls Ostiary",
		},
		"allowed": {wantStatus: "False", wantReason: "NotCalled", wantText: "ValidatingAdmissionWebhook"},
		"refused": {
			err:        callFailed("dial tcp 10.0.0.1:443: connect: connection refused"),
			wantStatus: "False",
			wantReason: "ConnectionRefused",
			wantText:   "compare the Service's port with --webhook-address",
		},
		"dropped": {
			err:        callFailed("dial tcp 10.0.0.1:443: i/o timeout"),
			wantStatus: "False",
			wantReason: "TimedOut",
			wantText: "i/o timeout: a firewall or a NetworkPolicy drops connections from the API server to Ostiary's Pods: " +
				"open the port of --webhook-address for it, or run Ostiary with hostNetwork",
		},
		"dropped or unavailable": {
			err:        callFailed("context deadline exceeded"),
			wantStatus: "False",
			wantReason: "TimedOut",
			wantText: "or run Ostiary with hostNetwork; or replicas answer 503 until the timeout: check the Pods' /readyz " +
				"and the metric ostiary_webhook_shed_total",
		},
		"untrusted": {
			err:        callFailed("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
			wantStatus: "False",
			wantReason: "CertificateNotTrusted",
			wantText:   "x509: certificate signed by unknown authority",
		},
		"no replica": {
			err:        callFailed(`no endpoints available for service "ostiary-webhook"`),
			wantStatus: "False",
			wantReason: "NoEndpoints",
			wantText:   "/readyz",
		},
		"no Service": {
			err:        callFailed(`service "ostiary-webhook" not found`),
			wantStatus: "False",
			wantReason: "NotFound",
			wantText:   "create the Service",
		},
		"no name": {
			err:        callFailed("dial tcp: lookup x: no such host"),
			wantStatus: "False",
			wantReason: "NotFound",
			wantText:   "--webhook-url",
		},
		"anything else": {
			err:        callFailed("EOF"),
			wantStatus: "False",
			wantReason: "CallFailed",
			wantText:   "EOF: check the logs",
		},
		"another webhook": {
			err:        apierrors.NewInternalError(errors.New(`failed calling webhook "other": EOF`)),
			wantStatus: "Unknown",
			wantReason: "ProbeFailed",
			wantText:   `failed calling webhook "other"`,
		},
		"not permitted": {
			err: apierrors.NewForbidden(metav1.Unversioned.WithResource("configmaps").GroupResource(), "c",
				errors.New("no rule")),
			wantStatus: "Unknown",
			wantReason: "ProbeFailed",
			wantText:   "no rule",
		},
		"no API server": {
			err:        errors.New("dial tcp: connection refused"),
			wantStatus: "Unknown",
			wantReason: "ProbeFailed",
			wantText:   "the API server does not answer the canary's request: dial tcp: connection refused",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := verdictOf(validate, "n-1", tt.err)
			if got.Status != tt.wantStatus || got.Reason != tt.wantReason || !strings.Contains(got.Message, tt.wantText) {
				t.Errorf("got %+v, want %s, %s with %q", got, tt.wantStatus, tt.wantReason, tt.wantText)
			}
		})
	}
}

func TestCombine(t *testing.T) {
	yes, no, unknown := verdictOf(validate, "n", denied("n")), verdictOf(validate, "n",
		callFailed("EOF")), verdictOf(validate, "n", errors.New("no route"))
	tests := map[string]struct {
		results    []result
		wantStatus metav1.ConditionStatus
		wantText   string
	}{
		"no results":        {nil, "Unknown", "no probe has tested yet"},
		"all reach it":      {[]result{{"a:1", yes}, {"b:1", yes}}, "True", "API servers reach Ostiary"},
		"one does not":      {[]result{{"a:1", yes}, {"b:1", no}}, "False", "b:1: the API server does not reach Ostiary"},
		"one is unknown":    {[]result{{"a:1", unknown}, {"b:1", yes}}, "True", "API servers reach Ostiary"},
		"all are unknown":   {[]result{{"a:1", unknown}, {"b:1", unknown}}, "Unknown", "no route"},
		"the first failure": {[]result{{"a:1", no}, {"b:1", no}}, "False", "a:1: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := combine(tt.results); got.Status != tt.wantStatus || !strings.Contains(got.Message, tt.wantText) {
				t.Errorf("got %+v, want %s with %q", got, tt.wantStatus, tt.wantText)
			}
		})
	}
}

// Single failures do not revoke a proof, since each change of it may write the
// status of thousands of policies. A change of the reason is reported at once.
func TestFailureThresholds(t *testing.T) {
	bundle := []byte("b")
	p := NewProber(Options{
		Registerer: prometheus.NewRegistry(),
		Log:        logr.Discard(),
		Events:     events.NewFakeRecorder(100),
		Bundle:     func() []byte { return bundle },
	})
	changes := p.Subscribe(t.Context())
	notified := func() bool {
		select {
		case <-changes:
			return true
		default:
			return false
		}
	}
	yes, refused, eof := verdictOf(validate, "n", denied("n")), verdictOf(validate, "n",
		callFailed("connection refused")), verdictOf(validate, "n", callFailed("EOF"))
	notCalled := verdictOf(validate, "n", nil)
	for i, step := range []struct {
		verdict      Verdict
		wantReason   string
		wantNotified bool
	}{
		{notCalled, ReasonPending, false}, // not received yet
		{refused, ReasonConnectionRefused, true},
		{refused, ReasonConnectionRefused, false},
		{eof, ReasonCallFailed, true},
		{yes, ReasonReachable, true},
		{eof, ReasonReachable, false},
		{yes, ReasonReachable, false},
		{eof, ReasonReachable, false},
		{refused, ReasonReachable, false},
		{refused, ReasonConnectionRefused, true},
	} {
		p.record(validate, step.verdict, bundle)
		if got := p.Verdict(validate).Reason; got != step.wantReason || notified() != step.wantNotified {
			t.Errorf("step %d: reason %s, want %s, notified: %t", i, got, step.wantReason, step.wantNotified)
		}
	}
	if p.Verdict(registration.PhaseMutate).Reason != ReasonPending {
		t.Error("the result of one phase counts for the other")
	}
}

func TestEventOfEachChange(t *testing.T) {
	yes, refused := verdictOf(validate, "n", denied("n")), verdictOf(validate, "n", callFailed("connection refused"))
	for name, tc := range map[string]struct {
		verdicts []Verdict
		want     []string
	}{
		"a new leader confirms the proof": {verdicts: []Verdict{yes, yes}},
		"it fails from the start":         {verdicts: []Verdict{refused}, want: []string{"Warning ConnectionRefused"}},
		"it fails later, and recovers": {
			verdicts: []Verdict{yes, refused, refused, refused, yes},
			want:     []string{"Warning ConnectionRefused", "Normal Reachable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			p := NewProber(Options{
				Registerer: prometheus.NewRegistry(),
				Log:        logr.Discard(),
				Events:     recorder,
				Bundle:     func() []byte { return nil },
			})
			for _, v := range tc.verdicts {
				p.record(validate, v, nil)
			}
			close(recorder.Events)
			var got []string
			for e := range recorder.Events {
				got = append(got, strings.Join(strings.Fields(e)[:2], " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProofIsForOneBundle(t *testing.T) {
	bundle := []byte("old")
	p := NewProber(Options{
		Registerer: prometheus.NewRegistry(),
		Log:        logr.Discard(),
		Events:     events.NewFakeRecorder(1),
		Bundle:     func() []byte { return bundle },
	})
	p.record(validate, verdictOf(validate, "n", denied("n")), bytes.Clone(bundle))
	if !p.Proven(validate) || p.Proven(registration.PhaseMutate) {
		t.Error("the probed phase is not the proven one")
	}
	bundle = []byte("new")
	if p.Proven(validate) {
		t.Error("proven with a bundle that no probe has used")
	}
}

func TestGauge(t *testing.T) {
	p := NewProber(Options{Registerer: prometheus.NewRegistry()})
	p.updateGauge(map[registration.Phase][]result{validate: {
		{
			address: "a:1",
			verdict: Verdict{Status: metav1.ConditionTrue},
		}, {
			address: "b:1",
			verdict: Verdict{Status: metav1.ConditionFalse},
		}, {address: "c:1", verdict: Verdict{Status: metav1.ConditionUnknown}},
	}})
	want := `
# HELP ostiary_webhook_reachable 1 if an API server reaches Ostiary, 0 if it does not, by phase and address. The address is empty if the addresses of API servers are unknown. Absent if no request reaches the API server. Reported by the leader.
# TYPE ostiary_webhook_reachable gauge
ostiary_webhook_reachable{address="a:1",phase="validate"} 1
ostiary_webhook_reachable{address="b:1",phase="validate"} 0
`
	if err := testutil.CollectAndCompare(p.gauge, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("https"), Port: ptr.To[int32](6443)}, {Name: ptr.To("metrics"), Port: ptr.To[int32](1)},
			{Name: ptr.To("https")},
		},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.1", "fd00::1"}}, {Addresses: []string{"10.0.0.1"}},
		},
	}
	if diff := cmp.Diff([]string{"10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443"}, addressesOf(slice)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestConfigFor(t *testing.T) {
	tests := map[string]struct {
		config             rest.Config
		address            string
		wantHost, wantName string
	}{
		"the replica's own address": {config: rest.Config{Host: "https://10.96.0.1:443"}, wantHost: "https://10.96.0.1:443"},
		"in a cluster": {
			config:   rest.Config{Host: "https://10.96.0.1:443"},
			address:  "10.0.0.1:6443",
			wantHost: "https://10.0.0.1:6443",
			wantName: "10.96.0.1",
		},
		"without a scheme": {
			config:   rest.Config{Host: "api.example.com:6443"},
			address:  "10.0.0.1:6443",
			wantHost: "https://10.0.0.1:6443",
			wantName: "api.example.com",
		},
		"with a name of its own": {
			config:   rest.Config{Host: "https://1.2.3.4", TLSClientConfig: rest.TLSClientConfig{ServerName: "api"}},
			address:  "10.0.0.1:6443",
			wantHost: "https://10.0.0.1:6443",
			wantName: "api",
		},
		"without a host": {
			config:   rest.Config{},
			address:  "10.0.0.1:6443",
			wantHost: "https://10.0.0.1:6443",
			wantName: "kubernetes.default.svc",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := configFor(&tt.config, tt.address)
			if got.Host != tt.wantHost || got.ServerName != tt.wantName {
				t.Errorf("host %s, name %s, want %s, %s", got.Host, got.ServerName, tt.wantHost, tt.wantName)
			}
		})
	}
}
