package registration

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Phase is a phase of admission.
type Phase string

// The phases of admission, as in the label LabelPhase and in paths.
const (
	PhaseMutate   Phase = "mutate"
	PhaseValidate Phase = "validate"
)

// ConfigurationPrefix returns the prefix of the names of the phase's configurations.
// The name of the call group follows. Diff deletes only configurations with it.
func (p Phase) ConfigurationPrefix() string { return "ostiary-" + string(p) + "-" }

// PathPrefix returns the prefix of the paths of the phase's webhooks. The name of
// the call group follows.
func (p Phase) PathPrefix() string { return "/" + string(p) + "/" }

// webhookDomain ends the names of all webhooks. API servers quote the names in
// messages to users.
const webhookDomain = ".ostiary.dev"

func (p Phase) kind() string {
	if p == PhaseMutate {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// adjective returns mutating or validating, for messages.
func (p Phase) adjective() string {
	if p == PhaseMutate {
		return "mutating"
	}
	return "validating"
}

// Configuration is a *MutatingWebhookConfiguration or a
// *ValidatingWebhookConfiguration.
type Configuration interface {
	metav1.Object
	runtime.Object
}

// NewConfiguration returns an empty configuration of the phase's kind.
func NewConfiguration(phase Phase) Configuration {
	if phase == PhaseMutate {
		return &admissionregistrationv1.MutatingWebhookConfiguration{}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{}
}

// PhaseOf returns the phase of a configuration, by its type.
func PhaseOf(c Configuration) Phase {
	if _, ok := c.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		return PhaseMutate
	}
	return PhaseValidate
}

// GroupKey identifies a call group. Names are unique in each phase.
type GroupKey struct {
	Phase Phase
	Name  string
}

// GroupOf returns the call group in the name of a configuration. ok is false if
// there is none.
func GroupOf(c Configuration) (key GroupKey, ok bool) {
	key.Phase = PhaseOf(c)
	key.Name, ok = strings.CutPrefix(c.GetName(), key.Phase.ConfigurationPrefix())
	return key, ok
}

// Key identifies a configuration. Both kinds may have one of the same name.
type Key struct {
	Phase Phase
	Name  string
}

// KeyOf returns the key of a configuration.
func KeyOf(c Configuration) Key { return Key{PhaseOf(c), c.GetName()} }

// ByKey returns configurations by key.
func ByKey(configs []Configuration) map[Key]Configuration {
	out := make(map[Key]Configuration, len(configs))
	for _, c := range configs {
		out[KeyOf(c)] = c
	}
	return out
}

// Webhooks returns the webhooks of a configuration of either kind, which share
// their contents with it. Validating webhooks have no reinvocationPolicy, and every
// other field.
func Webhooks(c Configuration) []admissionregistrationv1.MutatingWebhook {
	if m, ok := c.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		return m.Webhooks
	}
	v, ok := c.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	if !ok {
		return nil
	}
	out := make([]webhook, len(v.Webhooks))
	for i := range v.Webhooks {
		out[i] = fromValidating(&v.Webhooks[i])
	}
	return out
}

// webhook is a webhook of either kind.
type webhook = admissionregistrationv1.MutatingWebhook

func setWebhooks(c Configuration, webhooks []webhook) {
	switch c := c.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		c.Webhooks = webhooks
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		c.Webhooks = make([]admissionregistrationv1.ValidatingWebhook, len(webhooks))
		for i := range webhooks {
			c.Webhooks[i] = toValidating(&webhooks[i])
		}
	}
}

func fromValidating(w *admissionregistrationv1.ValidatingWebhook) webhook {
	return webhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         w.MatchConditions,
	}
}

func toValidating(w *webhook) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         w.MatchConditions,
	}
}

func clone(c Configuration) Configuration {
	out, _ := c.DeepCopyObject().(Configuration) // a copy has the same type
	return out
}

// AnnotationTouched is the annotation of a touched configuration. Its value is the
// previous resourceVersion.
const AnnotationTouched = "admission.ostiary.dev/announced"

// Touched returns a copy of c with a new annotation, which causes an event for API
// servers. It can be written only if c still has the resourceVersion.
func Touched(c Configuration, resourceVersion string) Configuration {
	out := clone(c)
	annotations := out.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationTouched] = resourceVersion
	out.SetAnnotations(annotations)
	out.SetResourceVersion(resourceVersion)
	return out
}

// Owned reports whether an observed configuration has the planned owners. It may
// have others too.
func Owned(have, want Configuration) bool {
	return !slices.ContainsFunc(want.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
	})
}

// WithoutOwners returns a copy of a configuration without some owner references.
func WithoutOwners(c Configuration, owners []metav1.OwnerReference) Configuration {
	out := clone(c)
	out.SetOwnerReferences(slices.DeleteFunc(out.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(owners, func(other metav1.OwnerReference) bool { return other.UID == o.UID })
	}))
	return out
}
