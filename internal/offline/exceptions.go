package offline

import (
	"cmp"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/load"
)

const (
	// exceptionSuffix ends the kinds of exceptions.
	exceptionSuffix = "WebhookPolicyException"
	// exceptedKey is the key of the audit annotation about them.
	exceptedKey = "excepted"
)

// Exception is an exception with its source.
type Exception struct {
	v1alpha1.Exception
	Source load.Object
}

// NewException decodes an exception of either kind.
func NewException(o load.Object) (Exception, error) {
	x := Exception{Source: o}
	switch o.GroupVersionKind() {
	case v1alpha1.GroupVersion.WithKind(exceptionSuffix):
		x.Exception = &v1alpha1.WebhookPolicyException{}
	case v1alpha1.GroupVersion.WithKind("Cluster" + exceptionSuffix):
		x.Exception = &v1alpha1.ClusterWebhookPolicyException{}
	default:
		return x, o.Errorf("kind", "%s has no kind %s in version %s: write kind: %s or Cluster%s, and apiVersion: %s", v1alpha1.GroupName,
			o.Kind, o.GroupVersionKind().Version, exceptionSuffix, exceptionSuffix, v1alpha1.GroupVersion)
	}
	unknown, err := o.DecodeKnown(x.Exception)
	if err != nil {
		return x, err
	}
	var errs []error
	for _, name := range unknown {
		errs = append(errs, o.Errorf(name, "%s has no such field: correct or remove it", o.Kind))
	}
	if x.GetName() == "" {
		errs = append(errs, o.Errorf("metadata.name", "the exception has no name: add it"))
	}
	return x, errors.Join(errs...)
}

func (in *Input) addException(o load.Object) error {
	x, err := NewException(o)
	if err == nil {
		in.Exceptions = append(in.Exceptions, x)
	}
	return err
}

// AddExceptions adds exceptions, of which the first with a name counts. Those of files that state no
// namespace are in the default one.
func (w *World) AddExceptions(all []Exception) {
	seen := map[exceptions.Key]bool{}
	for _, x := range all {
		if _, isNamespaced := x.Exception.(*v1alpha1.WebhookPolicyException); isNamespaced && x.GetNamespace() == "" {
			x.SetNamespace(cmp.Or(w.apis.DefaultNamespace, metav1.NamespaceDefault))
		}
		e := exceptions.NewEntry(x.Exception)
		if !seen[e.Key] {
			seen[e.Key] = true
			w.exceptions = w.exceptions.With(e)
		}
	}
}

// SetTime makes all later evaluations take place at a time.
func (w *World) SetTime(at time.Time) { w.now = func() time.Time { return at } }

// Inactive is an exception without an effect.
type Inactive struct {
	Exception
	Reason, Message string
}

// Inactive returns those of some exceptions that have no effect now, with the policies of an engine.
func (w *World) Inactive(all []Exception, e *Engine) (out []Inactive) {
	for _, x := range all {
		var spec *v1alpha1.WebhookPolicySpec
		if p := e.Policy(x.GetSpec().PolicyName); p != nil {
			spec = &p.Spec
		}
		if reason, message := exceptions.NewEntry(x.Exception).State(spec, w.now(), e.Compiler); reason != "" {
			out = append(out, Inactive{x, reason, message})
		}
	}
	return slices.Clip(out)
}
