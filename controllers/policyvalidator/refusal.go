package policyvalidator

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Bounds of a refusal. Further errors are counted and not sent.
const (
	maxErrors    = 20
	maxErrorText = 32 << 10 // bytes, all of them together
)

// refusal returns the status of the API server's own validation: 422, with one cause for
// each error.
func refusal(p *v1alpha1.WebhookPolicy, errs field.ErrorList) *metav1.Status {
	shown, size := errs, 0
	for i, e := range errs {
		if size += len(e.Error()); i == maxErrors || (i > 0 && size > maxErrorText) {
			shown = errs[:i]
			break
		}
	}
	status := apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WebhookPolicy").GroupKind(), p.Name, shown).ErrStatus
	if more := len(errs) - len(shown); more > 0 {
		text := fmt.Sprintf("%d more problems were left out", more)
		status.Message += "; " + text
		status.Details.Causes = append(status.Details.Causes,
			metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: text})
	}
	return &status
}
