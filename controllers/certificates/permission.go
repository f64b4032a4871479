package certificates

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/controllers/internal/secrets"
)

// permissionTimeout bounds the requests of Permitted.
const permissionTimeout = 10 * time.Second

// Permitted returns an error if there is no certificate and Ostiary may not create
// one. It checks nothing else if the certificate exists. If the API server does
// not answer, Permitted returns nil: the Rotator reports the error later.
func (k *Rotator) Permitted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(secrets.WithoutLogs(ctx), permissionTimeout)
	defer cancel()
	o := k.options
	_, err := k.client.CoreV1().Secrets(o.Namespace).Get(ctx, servingName, metav1.GetOptions{})
	missing, unreadable := apierrors.IsNotFound(err), apierrors.IsForbidden(err)
	if !missing && !unreadable || k.mayCreateSecrets(ctx) {
		return nil
	}
	if unreadable {
		return fmt.Errorf("no permission to read Secret %s/%s or to create Secrets: apply config/rbac first", o.Namespace, servingName)
	}
	return fmt.Errorf("there is no certificate in Secret %s/%s, and Ostiary may not create Secrets: apply config/rbac first", o.Namespace, servingName)
}

// mayCreateSecrets returns false only if the API server denies it.
func (k *Rotator) mayCreateSecrets(ctx context.Context) bool {
	review, err := k.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: k.options.Namespace,
				Verb:      "create",
				Version:   "v1",
				Resource:  "secrets",
			},
		},
	}, metav1.CreateOptions{})
	return err != nil || review.Status.Allowed || review.Status.EvaluationError != ""
}
