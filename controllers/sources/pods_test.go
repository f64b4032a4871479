package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// TestPodsAreBounded checks that Pods are read in pages, up to a limit, without status
// and managed fields.
func TestPodsAreBounded(t *testing.T) {
	for stored, want := range map[int]struct{ listed, more int }{
		0:            {},
		3:            {3, 0},
		podsPage + 1: {podsPage + 1, 0},
		maxPods:      {maxPods, 0},
		maxPods + 7:  {maxPods, 7},
	} {
		t.Run(fmt.Sprint(stored), func(t *testing.T) {
			server := httptest.NewServer(podPages(t, stored))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			got, more, err := NewPods(client.CoreV1()).PodsIn(t.Context(), "shop")
			if err != nil || len(got) != want.listed || more != int64(want.more) {
				t.Errorf("%d Pods and %d more, %v, want %d and %d", len(got), more, err, want.listed, want.more)
			}
			for i, pod := range got {
				if pod.Name != strconv.Itoa(i) || pod.Status.Phase != "" || pod.ManagedFields != nil {
					t.Fatalf("Pod %d: %+v", i, pod)
				}
			}
		})
	}
}

// TestPodsWaitNoLonger checks that one namespace is read at a time and that a waiting
// request ends at its deadline.
func TestPodsWaitNoLonger(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	pages := podPages(t, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		pages.ServeHTTP(w, r)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPods(client.CoreV1())
	first := make(chan error)
	go func() {
		_, _, err := p.PodsIn(t.Context(), "shop")
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.PodsIn(ctx, "shop"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// podPages serves lists of Pods like an API server.
func podPages(t *testing.T, stored int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/shop/pods" {
			t.Errorf("unexpected path %s", r.URL.Path)
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(from+limit, stored)
		page := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		for i := from; i < to; i++ {
			page.Items = append(page.Items, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
				Status:     corev1.PodStatus{Phase: corev1.PodRunning},
			})
		}
		if to < stored {
			page.Continue, page.RemainingItemCount = strconv.Itoa(to), ptr.To(int64(stored-to))
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	})
}
