package registration

import (
	"context"
	"net/http"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	hooks "k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/nativeengine"
)

// oracle uses the API server's code to decide which webhooks and native policies a
// request matches.
type oracle struct {
	webhooks   *generic.Webhook
	policies   *matching.Matcher
	interfaces admission.ObjectInterfaces
	compiler   cel.ConditionCompiler
}

func newOracle(t testing.TB, namespaces []*corev1.Namespace, resources []testResource) *oracle {
	t.Helper()
	// The client is never used: the informer has every namespace.
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "localhost"}, &http.Client{Transport: noNetwork{}})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, namespace := range namespaces {
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(namespace); err != nil {
			t.Fatal(err)
		}
	}
	hook, err := generic.NewWebhook(admission.NewHandler(), nil,
		func(informers.SharedInformerFactory, sets.Set[schema.GroupResource]) generic.Source { return nil },
		func(*webhookutil.ClientManager) generic.Dispatcher { return nil })
	if err != nil {
		t.Fatal(err)
	}
	hook.SetExternalKubeClientSet(client)
	hook.SetExternalKubeInformerFactory(factory)
	mapper := runtime.NewEquivalentResourceRegistryWithIdentity(func(gr schema.GroupResource) string {
		if gr == (schema.GroupResource{Resource: "events"}) || gr == (schema.GroupResource{Group: "events.k8s.io", Resource: "events"}) {
			return "events"
		}
		return ""
	})
	for _, r := range resources {
		for _, version := range r.versions {
			gvr := schema.GroupVersionResource{Group: r.group, Version: version, Resource: r.resource}
			for _, sub := range r.subresources {
				mapper.RegisterKindFor(gvr, sub, schema.GroupVersionKind{Group: r.group, Version: version, Kind: "Kind" + r.resource + sub})
			}
		}
	}
	return &oracle{
		webhooks:   hook,
		policies:   matching.NewMatcher(factory.Core().V1().Namespaces().Lister(), client),
		interfaces: interfaces{mapper},
		compiler:   cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())),
	}
}

// called reports whether the API server calls the configuration's webhook for
// a request, and returns the resource and version in the call.
func (o *oracle) called(t testing.TB, config Configuration, attr admission.Attributes) (schema.GroupVersionResource, bool) {
	t.Helper()
	var accessor hooks.WebhookAccessor
	switch c := config.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		accessor = hooks.NewMutatingWebhookAccessor(c.Name, c.Name, &c.Webhooks[0])
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		accessor = hooks.NewValidatingWebhookAccessor(c.Name, c.Name, &c.Webhooks[0])
	}
	invocation, err := o.webhooks.ShouldCallHook(context.Background(), accessor, attr, o.interfaces, versioned{attr})
	if err != nil {
		t.Fatalf("%s: matching %s: %v", describe(attr), config.GetName(), err)
	}
	if invocation == nil {
		return schema.GroupVersionResource{}, false
	}
	return invocation.Resource, true
}

// matched reports whether a native policy with these constraints matches a
// request, and returns the resource and version on which it is evaluated.
func (o *oracle) matched(t testing.TB, match *admissionregistrationv1.MatchResources, attr admission.Attributes) (schema.GroupVersionResource, bool) {
	t.Helper()
	defaulted := match.DeepCopy()
	if defaulted.MatchPolicy == nil {
		defaulted.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	ok, gvr, _, err := o.policies.Matches(attr, o.interfaces, nativeengine.Criteria{MatchResources: *defaulted})
	if err != nil {
		t.Fatalf("%s: matching: %v", describe(attr), err)
	}
	return gvr, ok
}

// evaluates reports whether a native policy evaluates a request, or denies it because
// of an error: rules, names and exclusions match, and no match condition is false.
func (o *oracle) evaluates(t testing.TB, policy *v1alpha1.WebhookPolicy, attr admission.Attributes) bool {
	t.Helper()
	gvr, ok := o.matched(t, policy.Spec.MatchConstraints, attr)
	if !ok || len(policy.Spec.MatchConditions) == 0 || policy.Spec.ParamKind != nil {
		return ok
	}
	var accessors []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		condition := matchconditions.MatchCondition(policy.Spec.MatchConditions[i])
		accessors = append(accessors, &condition)
	}
	fail := admissionregistrationv1.Fail
	evaluator := o.compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	kind := attr.GetKind()
	kind.Version = gvr.Version
	object, err := versioned{attr}.VersionedAttribute(kind)
	if err != nil {
		t.Fatal(err)
	}
	result := matchconditions.NewMatcher(evaluator, &fail, "policy", "validate", policy.Name).Match(context.Background(), object, nil, nil)
	return result.Matches || result.Error != nil
}

// rulesOnly returns the rules and selectors of a policy in a phase, without the
// parts that Ostiary evaluates.
func rulesOnly(policy *v1alpha1.WebhookPolicy, phase Phase) *admissionregistrationv1.MatchResources {
	match := policy.Spec.MatchConstraints.DeepCopy()
	match.ExcludeResourceRules = nil
	var rules []admissionregistrationv1.NamedRuleWithOperations
	for _, rule := range match.ResourceRules {
		rule.ResourceNames = nil
		if phase == PhaseMutate {
			rule.Operations = mutable(rule.Operations)
		}
		if len(rule.Operations) > 0 {
			rules = append(rules, rule)
		}
	}
	match.ResourceRules = rules
	return match
}

func mutable(ops []admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	if slices.Contains(ops, admissionregistrationv1.OperationAll) {
		return []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "CONNECT"}
	}
	return slices.DeleteFunc(slices.Clone(ops), func(op admissionregistrationv1.OperationType) bool { return op == admissionregistrationv1.Delete })
}

type testResource struct {
	group, resource string
	versions        []string
	subresources    []string
	namespaced      bool
}

func (r testResource) attributes(version, sub, namespace, name string, op admission.Operation, objectLabels, oldLabels map[string]string) admission.Attributes {
	kind := schema.GroupVersionKind{Group: r.group, Version: version, Kind: "Kind" + r.resource + sub}
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: objectLabels}}
	object.SetGroupVersionKind(kind)
	oldObject := object.DeepCopy()
	if oldLabels != nil {
		oldObject.Labels = oldLabels
	}
	resource := schema.GroupVersionResource{Group: r.group, Version: version, Resource: r.resource}
	var obj, old runtime.Object
	switch op {
	case admission.Create, admission.Connect:
		obj = object
	case admission.Update:
		obj, old = object, oldObject
	case admission.Delete:
		old = oldObject
	}
	return admission.NewAttributesRecord(obj, old, kind, namespace, name, resource, sub, op, nil, false, &user.DefaultInfo{Name: "jane"})
}

func describe(attr admission.Attributes) string {
	return string(attr.GetOperation()) + " " + attr.GetResource().String() + "/" + attr.GetSubresource() + " in " + attr.GetNamespace()
}

// interfaces has the one interface that matching uses.
type interfaces struct {
	mapper runtime.EquivalentResourceMapper
}

func (i interfaces) GetObjectCreater() runtime.ObjectCreater     { return nil }
func (i interfaces) GetObjectTyper() runtime.ObjectTyper         { return nil }
func (i interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return nil }
func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor { return nil }
func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return i.mapper
}

type versioned struct{ attr admission.Attributes }

func (v versioned) VersionedAttribute(kind schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	return &admission.VersionedAttributes{
		Attributes: v.attr, VersionedKind: kind,
		VersionedObject: admission.NewLazyObject(v.attr.GetObject()), VersionedOldObject: admission.NewLazyObject(v.attr.GetOldObject()),
	}, nil
}

type noNetwork struct{}

func (noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	panic("request to " + r.URL.String())
}
