package offline

import (
	"context"
	"errors"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// ImageAnswers are the answers of the backends of the plugin ImagePolicyWebhook. It
// implements pluginapi.Images.
type ImageAnswers map[pluginapi.SecretKey]imagepolicyv1alpha1.ImageReviewStatus

// Backend implements pluginapi.Images.
func (a ImageAnswers) Backend(at pluginapi.SecretKey) (pluginapi.ImageBackend, error) {
	answer, ok := a[at]
	if !ok {
		return nil, errors.New("the backend is called, and no answer is given for it")
	}
	return imageAnswer(answer), nil
}

type imageAnswer imagepolicyv1alpha1.ImageReviewStatus

// Review implements pluginapi.ImageBackend.
func (a imageAnswer) Review(context.Context, *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	return imagepolicyv1alpha1.ImageReviewStatus(a), nil
}
