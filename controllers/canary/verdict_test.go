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

func failed(text string) error {
	return apierrors.NewInternalError(errors.New(`failed calling webhook "canary.validate.admission.ostiary.dev": failed to call webhook: Post "https://x/canary/validate?timeout=5s": ` + text))
}

func denied(nonce string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "canary.validate.admission.ostiary.dev" denied the request: ` + registration.CanaryMessage(nonce)}}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		err        error
		wantStatus metav1.ConditionStatus
		wantReason string
		wantText   string
	}{
		"denied with the nonce":   {denied("n-1"), "True", "Proven", "the API server reaches Ostiary"},
		"denied with another one": {denied("n-2"), "Unknown", "CannotAsk", "refuses the canary's request before it calls Ostiary"},
		"allowed":                 {nil, "False", "NotCalled", "ValidatingAdmissionWebhook"},
		"refused":                 {failed("dial tcp 10.0.0.1:443: connect: connection refused"), "False", "ConnectionRefused", "compare the Service's port with --webhook-address"},
		"dropped":                 {failed("context deadline exceeded"), "False", "TimedOut", "a firewall or a NetworkPolicy"},
		"untrusted":               {failed("tls: failed to verify certificate: x509: certificate signed by unknown authority"), "False", "CertificateNotTrusted", "x509: certificate signed by unknown authority"},
		"no replica":              {failed(`no endpoints available for service "ostiary-webhook"`), "False", "NoEndpoints", "/readyz"},
		"no Service":              {failed(`service "ostiary-webhook" not found`), "False", "ServiceNotFound", "create the Service"},
		"no name":                 {failed("dial tcp: lookup x: no such host"), "False", "NameNotFound", "--webhook-url"},
		"anything else":           {failed("EOF"), "False", "CallFailed", "EOF: see the log"},
		"another webhook":         {apierrors.NewInternalError(errors.New(`failed calling webhook "other": EOF`)), "Unknown", "CannotAsk", `failed calling webhook "other"`},
		"not permitted":           {apierrors.NewForbidden(metav1.Unversioned.WithResource("configmaps").GroupResource(), "c", errors.New("no rule")), "Unknown", "CannotAsk", "no rule"},
		"no API server":           {errors.New("dial tcp: connection refused"), "Unknown", "CannotAsk", "the API server cannot be asked: dial tcp: connection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := judge(validate, "n-1", tt.err)
			if got.Status != tt.wantStatus || got.Reason != tt.wantReason || !strings.Contains(got.Message, tt.wantText) {
				t.Errorf("got %+v, want %s, %s with %q", got, tt.wantStatus, tt.wantReason, tt.wantText)
			}
		})
	}
}

func TestSum(t *testing.T) {
	yes, no, unknown := judge(validate, "n", denied("n")), judge(validate, "n", failed("EOF")), judge(validate, "n", errors.New("no route"))
	tests := map[string]struct {
		answers    []answer
		wantStatus metav1.ConditionStatus
		wantText   string
	}{
		"nobody was asked":        {nil, "Unknown", "has yet to be tried"},
		"all reach it":            {[]answer{{"a:1", yes}, {"b:1", yes}}, "True", "API servers reach Ostiary"},
		"one does not":            {[]answer{{"a:1", yes}, {"b:1", no}}, "False", "b:1: the API server does not reach Ostiary"},
		"one cannot be asked":     {[]answer{{"a:1", unknown}, {"b:1", yes}}, "True", "API servers reach Ostiary"},
		"none can be asked":       {[]answer{{"a:1", unknown}, {"b:1", unknown}}, "Unknown", "no route"},
		"the first of those that": {[]answer{{"a:1", no}, {"b:1", no}}, "False", "a:1: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := sum(tt.answers); got.Status != tt.wantStatus || !strings.Contains(got.Message, tt.wantText) {
				t.Errorf("got %+v, want %s with %q", got, tt.wantStatus, tt.wantText)
			}
		})
	}
}

// What was proven is not called in question by a hiccup: ten thousand statuses
// would be written for it. Only its words may differ for nothing.
func TestVerdictsAreSlowToTurn(t *testing.T) {
	bundle := []byte("b")
	p := NewProber(Options{Registerer: prometheus.NewRegistry(), Log: logr.Discard(), Events: events.NewFakeRecorder(100), Bundle: func() []byte { return bundle }})
	heard := p.Subscribe(t.Context())
	told := func() bool {
		select {
		case <-heard:
			return true
		default:
			return false
		}
	}
	yes, refused, eof := judge(validate, "n", denied("n")), judge(validate, "n", failed("connection refused")), judge(validate, "n", failed("EOF"))
	notCalled := judge(validate, "n", nil)
	for i, step := range []struct {
		verdict    Verdict
		wantReason string
		wantTold   bool
	}{
		{notCalled, ReasonNotProven, false}, // not seen yet
		{refused, ReasonConnectionRefused, true},
		{refused, ReasonConnectionRefused, false},
		{eof, ReasonCallFailed, true},
		{yes, ReasonProven, true},
		{eof, ReasonProven, false},
		{yes, ReasonProven, false},
		{eof, ReasonProven, false},
		{refused, ReasonProven, false},
		{refused, ReasonConnectionRefused, true},
	} {
		p.find(validate, step.verdict, bundle)
		if got := p.Verdict(validate).Reason; got != step.wantReason || told() != step.wantTold {
			t.Errorf("step %d: reason %s, want %s, told: %t", i, got, step.wantReason, step.wantTold)
		}
	}
	if p.Verdict(registration.PhaseMutate).Reason != ReasonNotProven {
		t.Error("one phase was proven by the other")
	}
}

func TestEventOfEachChange(t *testing.T) {
	yes, refused := judge(validate, "n", denied("n")), judge(validate, "n", failed("connection refused"))
	for name, tc := range map[string]struct {
		verdicts []Verdict
		want     []string
	}{
		"a leader finds what the one before it found": {[]Verdict{yes, yes}, nil},
		"it fails from the start":                     {[]Verdict{refused}, []string{"Warning ConnectionRefused"}},
		"it fails later, and heals":                   {[]Verdict{yes, refused, refused, refused, yes}, []string{"Warning ConnectionRefused", "Normal Proven"}},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := events.NewFakeRecorder(10)
			p := NewProber(Options{Registerer: prometheus.NewRegistry(), Log: logr.Discard(), Events: recorder, Bundle: func() []byte { return nil }})
			for _, v := range tc.verdicts {
				p.find(validate, v, nil)
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

func TestProofIsOfOneBundle(t *testing.T) {
	bundle := []byte("old")
	p := NewProber(Options{Registerer: prometheus.NewRegistry(), Log: logr.Discard(), Events: events.NewFakeRecorder(1), Bundle: func() []byte { return bundle }})
	p.find(validate, judge(validate, "n", denied("n")), bytes.Clone(bundle))
	if !p.Proven(validate) || p.Proven(registration.PhaseMutate) {
		t.Error("the phase that was tried is not the one that is proven")
	}
	bundle = []byte("new")
	if p.Proven(validate) {
		t.Error("proven over a bundle that nothing was tried with")
	}
}

func TestGauge(t *testing.T) {
	p := NewProber(Options{Registerer: prometheus.NewRegistry()})
	p.measure(map[registration.Phase][]answer{validate: {
		{"a:1", Verdict{Status: metav1.ConditionTrue}}, {"b:1", Verdict{Status: metav1.ConditionFalse}}, {"c:1", Verdict{Status: metav1.ConditionUnknown}},
	}})
	want := `
# HELP ostiary_effective 1 where an API server reaches Ostiary, 0 where it does not, by phase and address, which is empty where the addresses of API servers are not known; absent where it cannot be asked. Reported by the leader.
# TYPE ostiary_effective gauge
ostiary_effective{address="a:1",phase="validate"} 1
ostiary_effective{address="b:1",phase="validate"} 0
`
	if err := testutil.CollectAndCompare(p.gauge, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}, {Name: ptr.To("metrics"), Port: ptr.To[int32](1)}, {Name: ptr.To("https")}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.1", "fd00::1"}}, {Addresses: []string{"10.0.0.1"}}},
	}
	if diff := cmp.Diff([]string{"10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443"}, addressesOf(slice)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestClientsOfOneAPIServer(t *testing.T) {
	tests := map[string]struct {
		config             rest.Config
		address            string
		wantHost, wantName string
	}{
		"the replica's own way":  {rest.Config{Host: "https://10.96.0.1:443"}, "", "https://10.96.0.1:443", ""},
		"in a cluster":           {rest.Config{Host: "https://10.96.0.1:443"}, "10.0.0.1:6443", "https://10.0.0.1:6443", "10.96.0.1"},
		"without a scheme":       {rest.Config{Host: "api.example.com:6443"}, "10.0.0.1:6443", "https://10.0.0.1:6443", "api.example.com"},
		"with a name of its own": {rest.Config{Host: "https://1.2.3.4", TLSClientConfig: rest.TLSClientConfig{ServerName: "api"}}, "10.0.0.1:6443", "https://10.0.0.1:6443", "api"},
		"without a host":         {rest.Config{}, "10.0.0.1:6443", "https://10.0.0.1:6443", "kubernetes.default.svc"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := at(&tt.config, tt.address)
			if got.Host != tt.wantHost || got.ServerName != tt.wantName {
				t.Errorf("host %s, name %s, want %s, %s", got.Host, got.ServerName, tt.wantHost, tt.wantName)
			}
		})
	}
}
