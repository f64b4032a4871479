// Package imagepolicywebhook sends ImageReviews about the images of Pods to a backend. It
// is the only plugin that calls a server other than the API server, and calls only the
// configured backend.
package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
	"github.com/ostiary/ostiary/internal/queue"
)

const (
	cacheSize = 1024
	// maxCached is the maximum length of a cached answer, in bytes.
	maxCached = 4 << 10
	// longest is the time limit of a call for a request without a deadline.
	longest = 30 * time.Second

	ephemeralContainers = "ephemeralcontainers"
	failedOpen          = "failed-open"
)

// Plugin denies Pods with images that the backend does not allow.
type Plugin struct {
	settings settings
	answers  *cache.LRUExpireCache // by the hash of the review
}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginImagePolicyWebhook, func(c Config, at *field.Path) (pluginapi.Plugin, field.ErrorList) {
		settings, errs := c.ImagePolicy.settings(at.Child("imagePolicy"))
		return &Plugin{settings: settings, answers: cache.NewLRUExpireCache(cacheSize)}, errs
	})
}

// Rules implements pluginapi.Plugin.
func (*Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return append(define.Pods(define.Writes()...),
		define.Rule("", "v1", []admissionregistrationv1.OperationType{admissionregistrationv1.Update}, "pods/"+ephemeralContainers))
}

// Backend returns the location of the kubeconfig.
func (p *Plugin) Backend() pluginapi.SecretKey { return p.settings.backend }

// InheritState implements pluginapi.StatefulPlugin: cached answers stay valid while the
// configuration is the same.
func (p *Plugin) InheritState(before pluginapi.Plugin) pluginapi.Plugin {
	if earlier, ok := before.(*Plugin); ok && earlier.settings == p.settings {
		return earlier
	}
	return p
}

// Validate implements pluginapi.Validator.
func (p *Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	pod, err := pluginapi.Typed[corev1.Pod](call, call.Object())
	if err != nil {
		return err
	}
	if call.Images == nil {
		return errors.New("image policy backends are not available here")
	}
	backend, err := call.Images.Backend(p.settings.backend)
	if err != nil {
		return err // the backend was not asked: failurePolicy decides, and not defaultAllow
	}
	status, err := p.answer(ctx, call, backend, questionOf(call, pod))
	switch {
	case err != nil && p.settings.defaultAllow:
		call.Annotate(failedOpen, "true")
		return nil
	case err != nil:
		return call.Forbid("%w", err)
	}
	for key, value := range status.AuditAnnotations {
		call.Annotate(key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return call.Forbid("image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return call.Forbid("one or more images rejected by webhook backend")
}

// questionOf returns the review of the native plugin: for the containers of the Pod, or
// for its ephemeral containers if these change.
func questionOf(call *pluginapi.Call, pod *corev1.Pod) *imagepolicyv1alpha1.ImageReview {
	review := &imagepolicyv1alpha1.ImageReview{
		Spec: imagepolicyv1alpha1.ImageReviewSpec{Annotations: map[string]string{}, Namespace: call.GetNamespace()},
	}
	review.SetGroupVersionKind(imagepolicyv1alpha1.SchemeGroupVersion.WithKind("ImageReview"))
	add := func(image string) {
		review.Spec.Containers = append(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if call.GetSubresource() == ephemeralContainers {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	} else {
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				add(list[i].Image)
			}
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			review.Spec.Annotations[key] = value
		}
	}
	return review
}

// answer returns the answer of the backend, or a cached one to an equal review.
func (p *Plugin) answer(ctx context.Context, call *pluginapi.Call, backend pluginapi.ImageBackend,
	review *imagepolicyv1alpha1.ImageReview) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	question, err := json.Marshal(review.Spec)
	if err != nil {
		return imagepolicyv1alpha1.ImageReviewStatus{}, fmt.Errorf("writing the question: %w", err)
	}
	key := sha256.Sum256(question) // a review can be long
	if found, ok := p.answers.Get(key); ok {
		if status, ok := found.(imagepolicyv1alpha1.ImageReviewStatus); ok {
			return status, nil
		}
	}
	status, err := p.ask(ctx, call.Now(), backend, review)
	if err != nil {
		return status, err
	}
	ttl := p.settings.denyTTL
	if status.Allowed {
		ttl = p.settings.allowTTL
	}
	if ttl > 0 && sizeOf(status) <= maxCached {
		p.answers.Add(key, status, ttl)
	}
	return status, nil
}

// ask sends a review with the retries of the native plugin. It ends before the deadline
// of the request, so that there is time for a response. It yields its slot while it
// waits.
func (p *Plugin) ask(ctx context.Context, now time.Time, backend pluginapi.ImageBackend,
	review *imagepolicyv1alpha1.ImageReview) (status imagepolicyv1alpha1.ImageReviewStatus, err error) {
	left := longest
	if end, ok := ctx.Deadline(); ok {
		left = min(left, end.Sub(now)*9/10)
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	queue.Yield(ctx, func() {
		err = webhook.WithExponentialBackoff(ctx, webhook.DefaultRetryBackoffWithInitialDelay(p.settings.retryBackoff), func() error {
			status, err = backend.Review(ctx, review)
			return err
		}, webhook.DefaultShouldRetry)
	})
	return status, err
}

func sizeOf(status imagepolicyv1alpha1.ImageReviewStatus) int {
	size := len(status.Reason)
	for key, value := range status.AuditAnnotations {
		size += len(key) + len(value)
	}
	return size
}
