package secrets

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ostiary/ostiary/controllers/internal/events"
)

// TestWatch denies access, grants it, changes the object and denies access again.
func TestWatch(t *testing.T) {
	g := NewWithT(t)
	client := fake.NewClientset()
	var denied atomic.Bool
	denied.Store(true)
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !denied.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "c", nil)
	})
	changed := events.NewSignal()
	w := NewWatch(client, Object{KindConfigMap, "ns", "c"}, logr.Discard(), changed.Send)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	eventually := func(what any) AsyncAssertion { return g.Eventually(what).WithTimeout(time.Minute) }

	eventually(w.Problem).Should(MatchError(apierrors.IsForbidden, "IsForbidden"))
	if data, known := w.Data(); data != nil || known {
		t.Errorf("data %v, %t before the first list", data, known)
	}
	g.Expect(changed).To(Receive())
	denied.Store(false)
	eventually(func() bool { _, known := w.Data(); return known }).Should(BeTrue())
	g.Expect(w.Problem()).To(Succeed())
	g.Expect(w.Secret()).To(BeNil())

	content := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"},
		Data:       map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {2}},
	}
	eventually(func() error { // the watch may start after the list
		_, err := client.CoreV1().ConfigMaps("ns").Update(ctx, content, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.CoreV1().ConfigMaps("ns").Create(ctx, content, metav1.CreateOptions{})
		}
		return err
	}).Should(Succeed())
	want := map[string][]byte{"a": []byte("1"), "b": {2}}
	eventually(func() map[string][]byte { data, _ := w.Data(); return data }).Should(Equal(want))

	w.report(ctx, apierrors.NewInternalError(context.DeadlineExceeded)) // transient
	g.Expect(w.Problem()).To(Succeed())
	w.report(ctx, apierrors.NewForbidden(schema.GroupResource{}, "c", nil))
	g.Expect(w.Problem()).To(HaveOccurred())
	if data, known := w.Data(); len(data) != 2 || !known {
		t.Errorf("data %v, %t after access was denied", data, known)
	}
	cancel()
	eventually(ended).Should(BeClosed())
}

// TestLargeSecrets checks that a watch keeps no more than 256 KiB of an object, and says so.
func TestLargeSecrets(t *testing.T) {
	for _, size := range []int{maxData, maxData + 1} {
		metadata := metav1.ObjectMeta{
			Namespace:     "ns",
			Name:          "o",
			Annotations:   map[string]string{tooLarge: "1"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		}
		client := fake.NewClientset(
			&corev1.Secret{ObjectMeta: metadata, Data: map[string][]byte{"a": make([]byte, size-1), "b": {1}}},
			&corev1.ConfigMap{
				ObjectMeta: metadata,
				Data:       map[string]string{"a": string(make([]byte, size-1))},
				BinaryData: map[string][]byte{"b": {1}},
			},
		)
		for _, kind := range []string{KindSecret, KindConfigMap} {
			g := NewWithT(t)
			w := NewWatch(client, Object{kind, "ns", "o"}, logr.Discard(), func() {})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { w.Run(ctx); close(ended) }()
			g.Eventually(w.stored).WithTimeout(time.Minute).ShouldNot(BeNil())
			g.Expect(w.stored().GetManagedFields()).To(BeNil())
			data, known := w.Data()
			if size <= maxData {
				g.Expect(w.Problem()).To(Succeed())
				g.Expect(data).To(HaveLen(2))
				g.Expect(w.Secret() != nil).To(Equal(kind == KindSecret))
			} else {
				g.Expect(w.Problem()).To(MatchError("its data has 262145 bytes, and the limit is 262144: remove what Ostiary does not read, or use an object of its own"))
				g.Expect(data).To(BeNil())
				g.Expect(known).To(BeFalse())
				g.Expect(w.Secret()).To(BeNil())
			}
			cancel()
			g.Eventually(ended).WithTimeout(time.Minute).Should(BeClosed())
		}
	}
}

// TestWrite creates a Secret and updates it without a change of other fields.
func TestWrite(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	to := fake.NewClientset().CoreV1().Secrets("ns")
	g.Expect(Get(ctx, to, "s")).To(BeNil())
	created, err := Write(ctx, to, "s", nil, map[string][]byte{"a": {1}})
	g.Expect(err).NotTo(HaveOccurred())
	created.Labels = map[string]string{"other": "x"}
	created.Type = "other"
	_, err = Write(ctx, to, "s", created, map[string][]byte{"b": {2}})
	g.Expect(err).NotTo(HaveOccurred())
	found, err := Get(ctx, to, "s")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found.Data).To(Equal(map[string][]byte{"b": {2}}))
	g.Expect(found.Labels).To(Equal(map[string]string{"other": "x", "app.kubernetes.io/managed-by": "ostiary"}))
	g.Expect(found.Type).To(BeEquivalentTo("other"))
	g.Expect(created.Data).To(Equal(map[string][]byte{"a": {1}}))
}
