package registration

import (
	"bytes"
	"encoding/pem"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
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
	external := of(Endpoint{Service: &Service{Namespace: "shop", Name: "checks", Port: 443}}, "theirs")
	similar := of(Endpoint{URL: "https://192.0.2.1:94430"}, "theirs")
	tests := map[string]struct {
		endpoint       Endpoint
		configurations []Configuration
		want           Trust
	}{
		"no configurations":        {service, nil, Trust{}},
		"each bundle once":         {service, []Configuration{config("2", of(service, "a"), of(service, "b")), config("3", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a"), []byte("b")}, Epoch: 3}},
		"external webhooks":        {service, []Configuration{config("9", external), config("1", external, of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}, Epoch: 1}},
		"by URL":                   {url, []Configuration{config("1", of(url, "a"), similar, of(service, "b"))}, Trust{Bundles: [][]byte{[]byte("a")}, Epoch: 1}},
		"an empty bundle":          {service, []Configuration{config("1", of(service, ""))}, Trust{Bundles: [][]byte{{}}, Epoch: 1}},
		"an invalid epoch":         {service, []Configuration{config("newest", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
		"a negative epoch":         {service, []Configuration{config("-1", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
		"an epoch above the limit": {service, []Configuration{config("4611686018427387904", of(service, "a"))}, Trust{Bundles: [][]byte{[]byte("a")}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := TrustIn(tc.configurations, tc.endpoint)
			if len(tc.want.Bundles) > 0 {
				tc.want.Capabilities = []string{""}
			}
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
			t.Error("the plan is empty")
		}
	}
}

// Without policies only Ostiary's own configurations contain the epoch.
func TestEpochWithoutPolicies(t *testing.T) {
	own := Own{Endpoint: testService, CABundle: []byte("a"), Epoch: 7, Owner: testOwner}
	for name, config := range map[string]Configuration{
		"review":          own.Review(),
		"mutate canary":   own.Canary(PhaseMutate, "ostiary-system"),
		"validate canary": own.Canary(PhaseValidate, "ostiary-system"),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(Trust{Bundles: [][]byte{[]byte("a")}, Capabilities: []string{""}, Epoch: 7}, TrustIn([]Configuration{config}, testService)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckEpoch(t *testing.T) {
	of := func(epoch int64) Configuration {
		return Own{Endpoint: testService, CABundle: []byte("a"), Epoch: epoch, Owner: testOwner}.Review()
	}
	for name, tc := range map[string]struct {
		want, have Configuration
		wantErr    string
	}{
		"equal epochs":      {of(7), of(7), ""},
		"a newer epoch":     {of(8), of(7), ""},
		"no observed epoch": {of(7), of(0), ""},
		"an older epoch":    {of(6), of(7), "the trust bundle of configuration ostiary-webhookpolicies has epoch 7: this replica has epoch 6"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckEpoch(tc.want, tc.have); err != nil {
				got = err.Error()
			}
			if got != tc.wantErr {
				t.Errorf("CheckEpoch() = %q, want %q", got, tc.wantErr)
			}
		})
	}
}

func TestNeedsTouch(t *testing.T) {
	bundle := func(certificates ...string) (out []byte) {
		for _, c := range certificates {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
		}
		return out
	}
	calling := func(name string, bundle []byte) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle}}
	}
	config := func(webhooks ...admissionregistrationv1.ValidatingWebhook) Configuration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: webhooks}
	}
	one, both, two := bundle("one"), bundle("two", "one"), bundle("two")
	closed := calling("a", both)
	closed.FailurePolicy = ptr.To(admissionregistrationv1.Fail)
	wider := calling("a", one)
	wider.Rules = []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}}
	labelled := config(calling("a", one))
	labelled.SetAnnotations(map[string]string{AnnotationMembers: "x"})
	tests := map[string]struct {
		have, want Configuration
		wantTouch  bool
	}{
		"a new configuration":                {nil, config(calling("a", one)), false},
		"no change":                          {config(calling("a", one)), config(calling("a", one)), false},
		"no bundles":                         {config(calling("a", nil)), config(calling("a", nil)), false},
		"other members":                      {config(calling("a", one)), labelled, false},
		"an additional certificate":          {config(calling("a", one)), config(calling("a", both)), false},
		"a removed certificate":              {config(calling("a", both)), config(calling("a", two)), false},
		"another certificate":                {config(calling("a", one)), config(calling("a", two)), true},
		"no bundle before":                   {config(calling("a", nil)), config(calling("a", two)), true},
		"an invalid bundle before":           {config(calling("a", []byte("nonsense"))), config(calling("a", two)), true},
		"another certificate of one webhook": {config(calling("a", one), calling("b", one)), config(calling("a", one), calling("b", two)), true},
		"an additional webhook":              {config(calling("a", one)), config(calling("a", one), calling("b", one)), true},
		"a removed webhook":                  {config(calling("a", one), calling("b", one)), config(calling("a", one)), true},
		"another webhook":                    {config(calling("b", one)), config(calling("a", one)), true},
		"an additional rule":                 {config(calling("a", one)), config(wider), true},
		"another failurePolicy and an additional certificate": {config(calling("a", one)), config(closed), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := NeedsTouch(tt.have, tt.want); got != tt.wantTouch {
				t.Errorf("got %t, want %t", got, tt.wantTouch)
			}
		})
	}
	have, want := NewConfiguration(PhaseMutate), NewConfiguration(PhaseMutate)
	setWebhooks(have, []webhook{{Name: "a", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: one}}})
	setWebhooks(want, []webhook{{Name: "a", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: both}}})
	if NeedsTouch(have, want) || !bytes.Equal(Webhooks(want)[0].ClientConfig.CABundle, both) {
		t.Error("an additional certificate needs a touch, or NeedsTouch changed its argument")
	}
}
