package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook"

	"github.com/ostiary/ostiary/internal/registration"
)

const (
	wildcard = "*"

	kindValidating = "ValidatingWebhookConfiguration"
	kindMutating   = "MutatingWebhookConfiguration"

	// Defaults of the API, for manifests that no API server has completed.
	defaultTimeout = 10
	defaultPort    = 443
)

// webhook is a webhook of either kind.
type webhook struct {
	// MutatingWebhook has every field of a validating webhook.
	admissionregistrationv1.MutatingWebhook
	mutating      bool
	configuration Object
	labels        map[string]string // of the configuration
	path          string            // in the configuration
	accessor      admissionwebhook.WebhookAccessor
}

func newWebhook(h admissionregistrationv1.MutatingWebhook, kind string, meta *metav1.ObjectMeta, i int) *webhook {
	w := &webhook{
		MutatingWebhook: h, mutating: kind == kindMutating, configuration: Object{Kind: kind, Name: meta.Name},
		labels: meta.Labels, path: fmt.Sprintf("webhooks[%d]", i),
	}
	// Its selectors are never nil in an API server: nil selects nothing here.
	w.NamespaceSelector = cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{})
	w.ObjectSelector = cmp.Or(w.ObjectSelector, &metav1.LabelSelector{})
	w.accessor = admissionwebhook.NewMutatingWebhookAccessor("", meta.Name, &w.MutatingWebhook)
	return w
}

// webhooksOf returns all webhooks, sorted as API servers call mutating ones: by the name
// of the configuration, and then as they are listed.
func webhooksOf(d *Dump) []*webhook {
	var out []*webhook
	for i := range d.Validating {
		for j, h := range d.Validating[i].Webhooks {
			out = append(out, newWebhook(asMutating(h), kindValidating, &d.Validating[i].ObjectMeta, j))
		}
	}
	for i := range d.Mutating {
		for j, h := range d.Mutating[i].Webhooks {
			out = append(out, newWebhook(h, kindMutating, &d.Mutating[i].ObjectMeta, j))
		}
	}
	slices.SortStableFunc(out, func(a, b *webhook) int {
		return strings.Compare(a.configuration.Name, b.configuration.Name)
	})
	return out
}

func asMutating(h admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
		NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
		TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
	}
}

// String names a webhook and its configuration.
func (w *webhook) String() string { return fmt.Sprintf("%q of %s", w.Name, w.configuration) }

func (w *webhook) failsClosed() bool {
	return w.FailurePolicy == nil || *w.FailurePolicy != admissionregistrationv1.Ignore
}

func (w *webhook) exact() bool {
	return w.MatchPolicy != nil && *w.MatchPolicy == admissionregistrationv1.Exact
}

func (w *webhook) reinvoked() bool {
	return w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
}

func (w *webhook) timeoutSeconds() int32 {
	if w.TimeoutSeconds == nil {
		return defaultTimeout
	}
	return *w.TimeoutSeconds
}

// ofOstiary reports whether Ostiary has generated the configuration.
func (w *webhook) ofOstiary() bool {
	return w.labels[registration.LabelManagedBy] == registration.ManagedBy
}

// isCanary reports whether the webhook is one with which Ostiary tests API servers. They call
// it for a ConfigMap that exists only in Ostiary's own dry-run requests.
func (w *webhook) isCanary() bool {
	name := w.configuration.Name
	return w.ofOstiary() && (name == registration.PhaseValidate.CanaryConfiguration() || name == registration.PhaseMutate.CanaryConfiguration())
}

// target returns the Service that is called; false if it is a URL.
func (w *webhook) target() (Target, bool) {
	s := w.ClientConfig.Service
	if s == nil {
		return Target{}, false
	}
	t := Target{Namespace: s.Namespace, Name: s.Name, Port: defaultPort}
	if s.Port != nil {
		t.Port = *s.Port
	}
	return t, true
}

// rulePath returns the path of a field of a rule within the webhook.
func rulePath(i int, field string) string { return fmt.Sprintf("rules[%d].%s", i, field) }
