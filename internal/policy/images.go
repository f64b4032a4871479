package policy

import (
	"context"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

// SecretKey is a field of a Secret in Ostiary's namespace.
type SecretKey struct{ Name, Key string }

// Images finds the backends that decide about images.
type Images interface {
	// Backend returns the backend whose kubeconfig is in a field of a Secret. An error
	// means that it is not known.
	Backend(at SecretKey) (ImageBackend, error)
}

// ImageBackend decides about images.
type ImageBackend interface {
	// Review sends one review. An error means that the backend did not answer.
	Review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error)
}
