package configurations

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceClient is a client that can only get a namespace. Nil means that there is none.
type namespaceClient struct {
	client.Client
	namespace *corev1.Namespace
}

func (c *namespaceClient) Get(_ context.Context, key client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	if c.namespace == nil {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	c.namespace.DeepCopyInto(out.(*corev1.Namespace))
	return nil
}

// A namespace that is gone must not have its configurations registered again.
func TestNamespaceIsDeleting(t *testing.T) {
	now := metav1.Now()
	active, deleting := &corev1.Namespace{}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}
	c := &namespaceClient{}
	leading := &term{Dependencies: Dependencies{Client: c, Namespace: "ns"}}
	for _, step := range []struct {
		name      string
		namespace *corev1.Namespace
		want      bool
	}{
		{"not created yet", nil, false},
		{"created", active, false},
		{"being deleted", deleting, true},
		{"gone", nil, true},
		{"created again", active, false},
		{"deleted while no replica led", nil, false},
	} {
		c.namespace = step.namespace
		if got, err := leading.isNamespaceDeleting(t.Context()); err != nil || got != step.want {
			t.Errorf("%s: got %t, %v, want %t", step.name, got, err, step.want)
		}
	}
}
