package canary

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// cachedCanaries is a cache with the canary configurations of some phases.
type cachedCanaries map[registration.Phase]string // bundles

func (c cachedCanaries) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	config, _ := object.(registration.Configuration)
	phase := registration.PhaseOf(config)
	bundle, ok := c[phase]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	stored := registration.Own{Endpoint: registration.Endpoint{URL: "https://h"}, CABundle: []byte(bundle)}.Canary(phase, "ns")
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, config)
}

func (c cachedCanaries) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return nil
}

// A probe proves nothing about a bundle that the canaries do not have yet.
func TestProbesWaitForConfigurations(t *testing.T) {
	const mutate, validate = registration.PhaseMutate, registration.PhaseValidate
	tests := map[string]struct {
		cached    cachedCanaries
		bundle    string
		wantNext  time.Duration
		wantProbe bool
	}{
		"no bundle":               {cached: cachedCanaries{}, wantNext: pendingInterval},
		"no configurations":       {cached: cachedCanaries{}, bundle: "b", wantNext: pendingInterval},
		"one phase":               {cached: cachedCanaries{mutate: "b"}, bundle: "b", wantNext: pendingInterval},
		"the bundle of one phase": {cached: cachedCanaries{mutate: "b", validate: "old"}, bundle: "b", wantNext: pendingInterval},
		"both phases": {
			cached:    cachedCanaries{mutate: "b", validate: "b"},
			bundle:    "b",
			wantNext:  unhealthyInterval,
			wantProbe: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				http.Error(w, "no", http.StatusBadRequest)
			}))
			defer server.Close()
			p := NewProber(Options{
				Client: tt.cached, Config: &rest.Config{Host: server.URL}, Namespace: "ns", Bundle: func() []byte { return []byte(tt.bundle) },
				Registerer: prometheus.NewRegistry(), Log: logr.Discard(), Events: events.NewFakeRecorder(10),
			})
			if got := p.probeAll(t.Context(), nil); got != tt.wantNext {
				t.Errorf("next probe in %s, want %s", got, tt.wantNext)
			}
			if got := requests.Load() > 0; got != tt.wantProbe {
				t.Errorf("%d requests, want some: %t", requests.Load(), tt.wantProbe)
			}
		})
	}
}
