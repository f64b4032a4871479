// Package uninstall stops Ostiary and deletes its webhook configurations, so that
// API servers do not call webhooks that are gone. WebhookPolicies are kept.
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
	pollInterval = 500 * time.Millisecond
	// quietPeriod is how long no configuration may reappear after the Deployment has
	// no replicas. A kubelet may send the signal to its Pod later.
	quietPeriod = 5 * time.Second
)

// Options name what to stop.
type Options struct {
	Client                kubernetes.Interface
	Namespace, Deployment string
}

// Run scales the Deployment to 0, becomes the leader, so that no replica writes
// configurations, and deletes every generated configuration. It returns their
// number. Replicas answer requests until they have drained.
func Run(ctx context.Context, o Options) (removed int, err error) {
	if err := o.stop(ctx); err != nil {
		return 0, err
	}
	leaderless, err := o.namespaceMissing(ctx)
	if err != nil {
		return 0, err
	}
	leading, done := context.WithCancel(ctx)
	defer done()
	elector := &leadership.Elector{
		Client: o.Client, Namespace: o.Namespace, Identity: "uninstall_" + uuid.NewString(), Log: logr.Discard(),
		// Without a namespace there is neither a Lease nor a Pod.
		Disabled: leaderless,
		Lead: func(ctx context.Context) error {
			defer done()
			n, problem := o.removeAll(ctx)
			removed, err = removed+n, problem
			return nil
		},
	}
	err = fmt.Errorf("acquiring the Lease %s/%s: the leader did not release it in time", o.Namespace, leadership.LeaseName)
	_ = elector.Start(leading)
	return removed, err
}

func (o Options) stop(ctx context.Context) error {
	_, err := o.Client.AppsV1().Deployments(o.Namespace).Patch(ctx, o.Deployment, types.MergePatchType,
		[]byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{}, "scale")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("scaling Deployment %s in namespace %s to 0: %w", o.Deployment, o.Namespace, err)
	}
	return nil
}

// namespaceMissing reports whether Ostiary's namespace does not exist.
func (o Options) namespaceMissing(ctx context.Context) (bool, error) {
	_, err := o.Client.CoreV1().Namespaces().Get(ctx, o.Namespace, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("getting namespace %s: %w", o.Namespace, err)
	}
	return err != nil, nil
}

// removeAll deletes configurations until none is left and no replica can create
// one.
func (o Options) removeAll(ctx context.Context) (removed int, err error) {
	var since time.Time // when nothing was left to delete
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
		case time.Since(since) >= quietPeriod:
			return removed, nil
		}
		select {
		case <-ctx.Done():
			return removed, fmt.Errorf("waiting for Deployment %s to have no replicas: %w", o.Deployment, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// stopped reports whether the Deployment has no Pods, or only terminating ones.
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
		if err := registered.ValidatingWebhookConfigurations().Delete(ctx, validating.Items[i].Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("deleting configuration %s: %w", validating.Items[i].Name, err)
		}
		removed++
	}
	for i := range mutating.Items {
		if err := registered.MutatingWebhookConfigurations().Delete(ctx, mutating.Items[i].Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("deleting configuration %s: %w", mutating.Items[i].Name, err)
		}
		removed++
	}
	return removed, nil
}
