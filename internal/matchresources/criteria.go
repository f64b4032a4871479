// Package matchresources matches requests with the matchResources of policies and of their
// bindings: resource rules, and selectors of objects and namespaces. Kubernetes' own
// matchers decide.
package matchresources

import (
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
)

var errNoMatcher = errors.New("matchResources cannot be matched here")

// Matcher reports whether a request matches criteria.
type Matcher interface {
	Matches(
		attr admission.Attributes,
		o admission.ObjectInterfaces,
		criteria matching.MatchCriteria,
	) (bool, schema.GroupVersionResource, schema.GroupVersionKind, error)
}

// Criteria holds matchResources with parsed selectors. It is immutable. Nil matches
// everything.
type Criteria struct {
	resources            admissionregistrationv1.MatchResources
	namespaces, objects  labels.Selector
	namespaceErr, objErr error
}

// NewCriteria does not keep its argument; nil has no criteria.
func NewCriteria(in *admissionregistrationv1.MatchResources) *Criteria {
	if in == nil {
		return nil
	}
	c := &Criteria{resources: *in.DeepCopy()}
	if c.resources.MatchPolicy == nil {
		equivalent := admissionregistrationv1.Equivalent
		c.resources.MatchPolicy = &equivalent
	}
	c.namespaces, c.namespaceErr = parseSelector(c.resources.NamespaceSelector)
	c.objects, c.objErr = parseSelector(c.resources.ObjectSelector)
	return c
}

// NewSelectors returns criteria with two selectors. Without any, it returns nil.
func NewSelectors(namespaces, objects *metav1.LabelSelector) *Criteria {
	if namespaces == nil && objects == nil {
		return nil
	}
	return NewCriteria(&admissionregistrationv1.MatchResources{NamespaceSelector: namespaces, ObjectSelector: objects})
}

// parseSelector parses a selector. An absent one matches everything, like an empty one, as
// with the defaults of the API server.
func parseSelector(in *metav1.LabelSelector) (labels.Selector, error) {
	if in == nil {
		in = &metav1.LabelSelector{}
	}
	return metav1.LabelSelectorAsSelector(in)
}

// Matches reports whether a request matches. Without a matcher or the types of objects,
// that is an error.
func (c *Criteria) Matches(
	attr admission.Attributes,
	matcher Matcher,
	objects admission.ObjectInterfaces,
) (bool, error) {
	if c == nil {
		return true, nil
	}
	if matcher == nil || objects == nil {
		return false, errNoMatcher
	}
	matches, _, _, err := matcher.Matches(withMetadata{attr}, objects, c)
	return matches, err
}

// WithAnyObject returns criteria that match whatever the labels of the object are.
func (c *Criteria) WithAnyObject() *Criteria {
	if c == nil {
		return nil
	}
	out := *c
	out.objects = labels.Everything()
	return &out
}

// GetParsedNamespaceSelector implements matching.MatchCriteria.
func (c *Criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return c.namespaces, c.namespaceErr
}

// GetParsedObjectSelector implements matching.MatchCriteria.
func (c *Criteria) GetParsedObjectSelector() (labels.Selector, error) { return c.objects, c.objErr }

// GetMatchResources implements matching.MatchCriteria.
func (c *Criteria) GetMatchResources() admissionregistrationv1.MatchResources { return c.resources }

// withMetadata hides objects without metadata, such as the options of a CONNECT, from
// selectors. The API server does not treat them as objects: only the empty selector
// matches them. Decoded from JSON they would be objects without labels.
type withMetadata struct{ admission.Attributes }

// GetObject implements admission.Attributes.
func (a withMetadata) GetObject() runtime.Object { return objectWithMetadata(a.Attributes.GetObject()) }

// GetOldObject implements admission.Attributes.
func (a withMetadata) GetOldObject() runtime.Object {
	return objectWithMetadata(a.Attributes.GetOldObject())
}

func objectWithMetadata(object runtime.Object) runtime.Object {
	if u, ok := object.(*unstructured.Unstructured); ok && u.Object["metadata"] == nil {
		return nil
	}
	return object
}
