package doctor

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// request is a request that the cluster needs.
type request struct {
	group, version, resource, subresource, kind string
	namespace, name                             string
	operation                                   admission.Operation
	user                                        string
	groups                                      []string
	labels                                      map[string]string // of the object
}

// String returns the operation and the resource.
func (r request) String() string {
	text := string(r.operation) + " " + r.resource
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	return text
}

// attributes returns the attributes of a request. Its objects have metadata only.
func (r request) attributes() admission.Attributes {
	gv := schema.GroupVersion{Group: r.group, Version: r.version}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gv.WithKind(r.kind))
	u.SetNamespace(r.namespace)
	u.SetName(r.name)
	u.SetLabels(r.labels)
	var old runtime.Object // without a type: nil is no object
	if r.operation == admission.Update {
		old = u.DeepCopy()
	}
	return admission.NewAttributesRecord(u, old, gv.WithKind(r.kind), r.namespace, r.name, gv.WithResource(r.resource), r.subresource,
		r.operation, nil, false, &user.DefaultInfo{Name: r.user, Groups: r.groups})
}

// matcher decides which webhooks API servers call for a request, with their own code.
type matcher struct {
	namespaces namespace.Matcher
	objects    object.Matcher
	compiler   cel.ConditionCompiler
	authorizer authorizer.UnconditionalAuthorizer
}

func newMatcher(namespaces []corev1.Namespace) *matcher {
	return &matcher{
		namespaces: namespace.Matcher{NamespaceLister: lister(namespaces)},
		compiler:   cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())),
		authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionNoOpinion, "", nil
		}),
	}
}

// calls reports whether a webhook is called for a request. If its match conditions
// read more than the request has, the answer is false.
func (m *matcher) calls(w *webhook, r request) bool {
	attributes := r.attributes()
	if matches, err := m.namespaces.MatchNamespaceSelector(w.accessor, attributes); !matches || err != nil {
		return false
	}
	if matches, err := m.objects.MatchObjectSelector(w.accessor, attributes); !matches || err != nil {
		return false
	}
	return w.rulesMatch(attributes) && m.conditions(w, attributes)
}

// rulesMatch treats every version of a resource as one, unless matchPolicy is Exact.
func (w *webhook) rulesMatch(attributes admission.Attributes) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		if !w.exact() {
			rule.APIVersions = []string{wildcard}
		}
		matcher := rules.Matcher{Rule: rule, Attr: attributes}
		return matcher.Matches()
	})
}

func (m *matcher) conditions(w *webhook, attributes admission.Attributes) bool {
	if len(w.MatchConditions) == 0 {
		return true
	}
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(),
		VersionedObject: admission.NewLazyObject(attributes.GetObject()), VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
	}
	result := w.accessor.GetCompiledMatcher(m.compiler).Match(context.Background(), versioned, nil, m.authorizer)
	return result.Error == nil && result.Matches
}

// lister implements NamespaceLister. A namespace that is not listed has the label that
// every namespace has.
type lister []corev1.Namespace

var _ corelisters.NamespaceLister = lister(nil)

// List implements NamespaceLister.
func (l lister) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	var out []*corev1.Namespace
	for i := range l {
		if selector.Matches(labels.Set(l[i].Labels)) {
			out = append(out, &l[i])
		}
	}
	return out, nil
}

// Get implements NamespaceLister.
func (l lister) Get(name string) (*corev1.Namespace, error) {
	if i := slices.IndexFunc(l, func(n corev1.Namespace) bool { return n.Name == name }); i >= 0 {
		return &l[i], nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, nil
}
