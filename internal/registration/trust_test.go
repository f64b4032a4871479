package registration

import (
	"encoding/pem"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestTrustIn(t *testing.T) {
	service := Endpoint{Service: &Service{Namespace: "ostiary-system", Name: "ostiary-webhook", Port: 443}}
	url := Endpoint{URL: "https://192.0.2.1:9443"}
	config := func(epoch string, clients ...admissionregistrationv1.WebhookClientConfig) Configuration {
		c := NewConfiguration(PhaseMutate)
		c.SetAnnotations(map[string]string{AnnotationEpoch: epoch})
		var webhooks []webhook
		for _, client := range clients {
			webhooks = append(webhooks, webhook{ClientConfig: client})
		}
		setWebhooks(c, webhooks)
		return c
	}
	of := func(e Endpoint, bundle string) admissionregistrationv1.WebhookClientConfig {
		return e.clientConfig("/mutate/x", []byte(bundle))
	}
	foreign := of(Endpoint{Service: &Service{Namespace: "shop", Name: "checks", Port: 443}}, "theirs")
	near := of(Endpoint{URL: "https://192.0.2.1:94430"}, "theirs")
	tests := map[string]struct {
		endpoint       Endpoint
		configurations []Configuration
		want           Trust
	}{
		"nothing":              {service, nil, Trust{}},
		"each bundle once":     {service, []Configuration{config("2", of(service, "a"), of(service, "b")), config("3", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a"), []byte("b")}, Epoch: 3}},
		"somebody else's":      {service, []Configuration{config("9", foreign), config("1", foreign, of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}, Epoch: 1}},
		"by URL":               {url, []Configuration{config("1", of(url, "a"), near, of(service, "b"))}, Trust{Bundles: [][]byte{[]byte("a")}, Epoch: 1}},
		"an emptied bundle":    {service, []Configuration{config("1", of(service, ""))}, Trust{Bundles: [][]byte{{}}, Epoch: 1}},
		"no number":            {service, []Configuration{config("newest", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
		"a negative number":    {service, []Configuration{config("-1", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
		"a number out of hand": {service, []Configuration{config("4611686018427387904", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := TrustIn(tc.configurations, tc.endpoint)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEpochIsWritten(t *testing.T) {
	for epoch, want := range map[int64]int64{0: 0, 7: 7} {
		plan := Build(Input{Policies: samePolicies(3, "pods"), Endpoint: Endpoint{URL: "https://h"}, Epoch: epoch})
		for _, g := range plan.Groups {
			if got := Epoch(g.Configuration); got != want {
				t.Errorf("epoch = %d, want %d", got, want)
			}
		}
		if len(plan.Groups) == 0 {
			t.Error("nothing is planned")
		}
	}
}

// Without policies the epoch is kept in what Ostiary registers for itself alone.
func TestEpochWithoutPolicies(t *testing.T) {
	const namespace = "ostiary-system"
	for name, config := range map[string]Configuration{
		"review":          NewReview(testService, []byte("a"), 7, testOwner),
		"mutate canary":   Canary(PhaseMutate, testService, []byte("a"), 7, namespace),
		"validate canary": Canary(PhaseValidate, testService, []byte("a"), 7, namespace),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(Trust{Bundles: [][]byte{[]byte("a")}, Epoch: 7}, TrustIn([]Configuration{config}, testService)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBehind(t *testing.T) {
	of := func(epoch int64) Configuration { return NewReview(testService, []byte("a"), epoch, testOwner) }
	for name, tc := range map[string]struct {
		want, have Configuration
		wantErr    string
	}{
		"the same":          {of(7), of(7), ""},
		"newer":             {of(8), of(7), ""},
		"of no known epoch": {of(7), of(0), ""},
		"older":             {of(6), of(7), "the trust bundle of configuration ostiary-webhookpolicies is of epoch 7: this replica knows 6"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := Behind(tc.want, tc.have); err != nil {
				got = err.Error()
			}
			if got != tc.wantErr {
				t.Errorf("Behind() = %q, want %q", got, tc.wantErr)
			}
		})
	}
}

func TestDistrusts(t *testing.T) {
	bundle := func(certificates ...string) (out []byte) {
		for _, c := range certificates {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
		}
		return out
	}
	config := func(webhooks map[string][]byte) Configuration {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		for name, b := range webhooks {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: b},
			})
		}
		return c
	}
	one, both, two := bundle("one"), bundle("two", "one"), bundle("two")
	tests := map[string]struct {
		have, want Configuration
		distrusts  bool
	}{
		"it is new":                      {nil, config(map[string][]byte{"a": one}), false},
		"the webhook is new":             {config(map[string][]byte{"b": one}), config(map[string][]byte{"a": two}), false},
		"the same bundle":                {config(map[string][]byte{"a": one}), config(map[string][]byte{"a": one}), false},
		"none, and none":                 {config(map[string][]byte{"a": nil}), config(map[string][]byte{"a": nil}), false},
		"one more":                       {config(map[string][]byte{"a": one}), config(map[string][]byte{"a": both}), false},
		"one less":                       {config(map[string][]byte{"a": both}), config(map[string][]byte{"a": two}), false},
		"another":                        {config(map[string][]byte{"a": one}), config(map[string][]byte{"a": two}), true},
		"none before":                    {config(map[string][]byte{"a": nil}), config(map[string][]byte{"a": two}), true},
		"nonsense before":                {config(map[string][]byte{"a": []byte("nonsense")}), config(map[string][]byte{"a": two}), true},
		"another of one of two webhooks": {config(map[string][]byte{"a": one, "b": one}), config(map[string][]byte{"a": one, "b": two}), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Distrusts(tt.have, tt.want); got != tt.distrusts {
				t.Errorf("got %t, want %t", got, tt.distrusts)
			}
		})
	}
}
