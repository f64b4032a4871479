package certificates

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// permissionTimeout bounds the questions of Permitted.
const permissionTimeout = 10 * time.Second

// Permitted is an error where nothing can be served: there is no certificate, and
// Ostiary may not write one. Where there is one a replica serves it, whatever it
// may not do besides, and nothing is asked. An API server that does not say is no
// error: whoever writes hears of it.
func (k *Rotator) Permitted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(withoutLogs(ctx), permissionTimeout)
	defer cancel()
	o := k.options
	_, err := k.client.CoreV1().Secrets(o.Namespace).Get(ctx, o.SecretNames.Serving, metav1.GetOptions{})
	missing, unreadable := apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	if !missing && !unreadable || k.mayCreateSecrets(ctx) {
		return nil
	}
	if unreadable {
		return fmt.Errorf("it is not permitted to read Secret %s/%s, nor to create Secrets: apply config/rbac first", o.Namespace, o.SecretNames.Serving)
	}
	return fmt.Errorf("there is no certificate in Secret %s/%s, and Ostiary may not create Secrets: apply config/rbac first", o.Namespace, o.SecretNames.Serving)
}

// mayCreateSecrets is true where the API server does not say that it is not so.
func (k *Rotator) mayCreateSecrets(ctx context.Context) bool {
	review, err := k.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: k.options.Namespace, Verb: "create", Version: "v1", Resource: "secrets"},
		},
	}, metav1.CreateOptions{})
	return err != nil || review.Status.Allowed || review.Status.EvaluationError != ""
}
