package registration

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Phase is a phase of admission.
type Phase string

// The phases of admission, as the label LabelPhase and paths have them.
const (
	PhaseMutate   Phase = "mutate"
	PhaseValidate Phase = "validate"
)

// ConfigurationPrefix begins the name of every configuration that is generated
// for the phase. The name of the call group follows. Nothing without it is ever
// deleted.
func (p Phase) ConfigurationPrefix() string { return "ostiary-" + string(p) + "-" }

// PathPrefix begins the path of every call of the phase. The name of the call
// group follows.
func (p Phase) PathPrefix() string { return "/" + string(p) + "/" }

func (p Phase) webhookDomain() string { return "." + string(p) + "." + v1alpha1.GroupName }

func (p Phase) kind() string {
	if p == PhaseMutate {
		return "MutatingWebhookConfiguration"
	}
	return "ValidatingWebhookConfiguration"
}

// adjective is for messages.
func (p Phase) adjective() string {
	if p == PhaseMutate {
		return "mutating"
	}
	return "validating"
}

// Configuration is a *MutatingWebhookConfiguration or a
// *ValidatingWebhookConfiguration. Nothing else will do.
type Configuration interface {
	metav1.Object
	runtime.Object
}

// NewConfiguration is an empty configuration of the phase's kind.
func NewConfiguration(phase Phase) Configuration {
	if phase == PhaseMutate {
		return &admissionregistrationv1.MutatingWebhookConfiguration{}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{}
}

// PhaseOf is the phase that a configuration is for, by its type.
func PhaseOf(c Configuration) Phase {
	if _, ok := c.(*admissionregistrationv1.MutatingWebhookConfiguration); ok {
		return PhaseMutate
	}
	return PhaseValidate
}

// GroupKey names a call group. A name is taken once in each phase.
type GroupKey struct {
	Phase Phase
	Name  string
}

// GroupOf is the call group that a configuration is named for; ok is false
// where it is not named for any.
func GroupOf(c Configuration) (key GroupKey, ok bool) {
	key.Phase = PhaseOf(c)
	key.Name, ok = strings.CutPrefix(c.GetName(), key.Phase.ConfigurationPrefix())
	return key, ok
}

// objectKey tells configurations apart: the two kinds may share a name.
type objectKey struct {
	phase Phase
	name  string
}

func keyOf(c Configuration) objectKey { return objectKey{PhaseOf(c), c.GetName()} }

func byKey(configs []Configuration) map[objectKey]Configuration {
	out := make(map[objectKey]Configuration, len(configs))
	for _, c := range configs {
		out[keyOf(c)] = c
	}
	return out
}

// Webhooks are the webhooks of a configuration of either kind. Those of a
// validating one come without a reinvocationPolicy, the only field that they
// do not have. They share their contents with the configuration.
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

// webhook stands for a webhook of either kind.
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
	out, _ := c.DeepCopyObject().(Configuration) // a copy has the type of what it was copied from
	return out
}

// AnnotationTouched is in a configuration that was written once more as it was,
// for API servers to hear of it: the resourceVersion that it had before.
const AnnotationTouched = "admission.ostiary.dev/announced"

// Touched is a configuration that differs from c in an annotation alone. It can
// be written over what is of a resourceVersion, and over nothing else.
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

// Matches reports whether an observed configuration is as planned: our labels,
// annotations and owner references are in it, and its webhooks are the planned
// ones and no others.
func Matches(have, want Configuration) bool {
	return isApplied(want, have)
}
