// Package uninstall takes back what Ostiary has registered with API servers
// before Ostiary is removed, so that policies which are kept refuse nothing.
package uninstall

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	every = 500 * time.Millisecond
	// quiet is how long nothing has to come back after the Deployment has no
	// replicas: a kubelet may be a moment behind with telling its Pod.
	quiet = 5 * time.Second
)

// Options say what to withdraw.
type Options struct {
	Client                kubernetes.Interface
	Namespace, Deployment string
}

// Run scales the Deployment to 0, takes the lead, so that no replica writes any
// more, and deletes every generated configuration. It returns how many there
// were. Replicas drain meanwhile, and nothing is refused that they answer.
func Run(ctx context.Context, o Options) (removed int, err error) {
	if err := o.stop(ctx); err != nil {
		return 0, err
	}
	leaderless, err := o.gone(ctx)
	if err != nil {
		return 0, err
	}
	leading, done := context.WithCancel(ctx)
	defer done()
	elector := &leadership.Elector{
		Client: o.Client, Namespace: o.Namespace, Identity: "withdrawal_" + uuid.NewString(), Log: logr.Discard(),
		// Without a namespace there is no Lease, and no Pod that could lead.
		Disabled: leaderless,
		Lead: func(ctx context.Context) error {
			defer done()
			n, problem := o.removeAll(ctx)
			removed, err = removed+n, problem
			return nil
		},
	}
	err = fmt.Errorf("no replica has let go of the Lease %s in time", leadership.LeaseName)
	_ = elector.Start(leading)
	return removed, err
}

func (o Options) stop(ctx context.Context) error {
	_, err := o.Client.AppsV1().Deployments(o.Namespace).Patch(ctx, o.Deployment, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}, "scale")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("scaling Deployment %s in namespace %s to 0: %w", o.Deployment, o.Namespace, err)
	}
	return nil
}

// gone reports whether Ostiary's namespace does not exist.
func (o Options) gone(ctx context.Context) (bool, error) {
	_, err := o.Client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("getting namespace %s: %w", o.Namespace, err)
	}
	return err != nil, nil
}

// removeAll deletes configurations until there are none and nobody is left who
// could make more.
func (o Options) removeAll(ctx context.Context) (removed int, err error) {
	var since time.Time // when there was nothing left to do
	for {
		n, err := o.remove(ctx)
		removed += n
		if err != nil {
			return removed, err
		}
		stopped, err := o.stopped(ctx)
		switch {
		case err != nil:
			return removed, err
		case n > 0 || !stopped:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= quiet:
			return removed, nil
		}
		select {
		case <-ctx.Done():
			return removed, fmt.Errorf("waiting for Deployment %s to have no replicas: %w", o.Deployment, context.Cause(ctx))
		case <-time.After(every):
		}
	}
}

// stopped reports whether every Pod has at least been told to end.
func (o Options) stopped(ctx context.Context) (bool, error) {
	d, err := o.Client.AppsV1().Deployments(o.Namespace).Get(ctx, o.Deployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("getting Deployment %s in namespace %s: %w", o.Deployment, o.Namespace, err)
	}
	return d.Status.ObservedGeneration >= d.Generation && d.Status.Replicas == 0, nil
}

func (o Options) remove(ctx context.Context) (removed int, err error) {
	registered := o.Client.AdmissionregistrationV1()
	ours := metav1.ListOptions{LabelSelector: registration.LabelManagedBy + "=" + registration.ManagedBy}
	validating, err := registered.ValidatingWebhookConfigurations().List(ctx, ours)
	if err != nil {
		return 0, fmt.Errorf("listing validating configurations: %w", err)
	}
	mutating, err := registered.MutatingWebhookConfigurations().List(ctx, ours)
	if err != nil {
		return 0, fmt.Errorf("listing mutating configurations: %w", err)
	}
	for i := range validating.Items {
		if err := registered.ValidatingWebhookConfigurations().Delete(ctx, validating.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("deleting configuration %s: %w", validating.Items[i].Name, err)
		}
		removed++
	}
	for i := range mutating.Items {
		if err := registered.MutatingWebhookConfigurations().Delete(ctx, mutating.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("deleting configuration %s: %w", mutating.Items[i].Name, err)
		}
		removed++
	}
	return removed, nil
}
