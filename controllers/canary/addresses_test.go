package canary

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// watchAddresses returns only after the first list, also if that is slow: the
// first canary has to go to every API server.
func TestWatchAddressesWaits(t *testing.T) {
	slices := discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []discoveryv1.EndpointSlice{{
			ObjectMeta:  metav1.ObjectMeta{Namespace: apiServersNamespace, Name: apiServersName, ResourceVersion: "1"},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}, {Addresses: []string{"192.0.2.2"}}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}},
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			http.Error(w, "lists only", http.StatusBadRequest)
			return
		}
		time.Sleep(300 * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(slices)
	}))
	defer server.Close()
	l, err := watchAddresses(t.Context(), &rest.Config{Host: server.URL}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"192.0.2.1:6443", "192.0.2.2:6443"}, l.addresses()); diff != "" {
		t.Errorf("addresses at first (-want +got):\n%s", diff)
	}
}

// TestAddressesAreBounded checks that no more API servers are probed than the limit.
func TestAddressesAreBounded(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}}}
	for i := range 3 * maxAddresses {
		address := fmt.Sprintf("10.0.0.%d", i/2) // each twice
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	if got := addressesOf(slice); len(got) != maxAddresses || got[0] != "10.0.0.0:6443" {
		t.Errorf("%d addresses, from %s", len(got), got[0])
	}
}
