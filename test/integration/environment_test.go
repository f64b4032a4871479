package integration

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// create creates an object that ends with the test.
func (c *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	must(t, c.Create(t.Context(), object))
	t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
}

// mayRead lets Ostiary read a kind as params, as an operator would.
func (c *cluster) mayRead(t *testing.T, group, resource string) {
	t.Helper()
	c.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "params-", Labels: map[string]string{"admission.ostiary.dev/aggregate-to-params": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}},
	})
}

func readingParams(namespace, name string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ResourceQuota"}
		p.Spec.Validations = []v1alpha1.Validation{
			{Expression: `object.data.verdict == params.metadata.labels["verdict"]`, Message: "bad is not good"},
		}
		p.Spec.Bindings = []v1alpha1.Binding{{
			Name:              "all",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{
				Namespace:               namespace,
				Name:                    name,
				ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction),
			},
		}}
	}
}

// TestParamsFromPermissionToEffect follows a policy with params from the
// missing permission to the params' last change. It uses a kind of its own:
// other tests grant the one that they read.
func TestParamsFromPermissionToEffect(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	limits := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "verdicts", Labels: map[string]string{"verdict": "good"}},
	}
	must(t, c.Create(t.Context(), limits))
	c.apply(t, newPolicy("with-params", namespace, readingParams(namespace, "verdicts"),
		func(p *v1alpha1.WebhookPolicy) { p.Spec.ParamKind.Kind = "LimitRange" }))

	c.awaitCondition(t, "with-params", v1alpha1.ConditionRegistered, metav1.ConditionTrue)
	p := c.awaitCondition(t, "with-params", v1alpha1.ConditionReady, metav1.ConditionFalse)
	ready := condition(p, v1alpha1.ConditionReady)
	const want = `Ostiary may not read objects of kind LimitRange in v1: create a ClusterRole with the label ` +
		`admission.ostiary.dev/aggregate-to-params: "true" and the rule {apiGroups: [""], resources: ["limitranges"], verbs: [get, list, watch]}`
	if ready.Reason != "ParamsNotReady" || ready.Message != want {
		t.Errorf("Ready is %s: %s", ready.Reason, ready.Message)
	}
	c.awaitEvent(t, "with-params", corev1.EventTypeWarning, "ParamsNotReady")
	// What cannot be evaluated follows failurePolicy, even for the good.
	await(t).Eventually(func() bool { return deniedBy(c.probe(t.Context(), namespace, "good"), "with-params") }).Should(BeTrue())

	c.mayRead(t, "", "limitranges")
	p = c.awaitReady(t, "with-params")
	c.awaitDenied(t, namespace, "with-params")
	must(t, c.probe(t.Context(), namespace, "good"))

	before := p.Status.Webhooks
	limits.Labels["verdict"] = "bad"
	must(t, c.Update(t.Context(), limits))
	await(t).Eventually(func() error { return c.probe(t.Context(), namespace, "bad") }).Should(Succeed())
	if !deniedBy(c.probe(t.Context(), namespace, "good"), "with-params") {
		t.Error("the old params still apply")
	}
	must(t, c.Delete(t.Context(), limits))
	await(t).Eventually(func() bool { return deniedBy(c.probe(t.Context(), namespace, "bad"), "with-params") }).Should(BeTrue())
	if p = c.awaitReady(t, "with-params"); len(p.Status.Webhooks) != 1 || p.Status.Webhooks[0] != before[0] {
		t.Errorf("the policy was registered anew: %v, before %v", p.Status.Webhooks, before)
	}
}

// TestParamsOfWhatOstiaryReads: authors read as params what is granted for params,
// and not what Ostiary reads for plugins or for itself.
func TestParamsOfWhatOstiaryReads(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.create(t, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "q", Labels: map[string]string{"verdict": "good"}},
	})
	c.apply(t, newPolicy("lists-quotas", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations, p.Spec.MatchConstraints = nil, nil
		p.Spec.Plugin = &v1alpha1.Plugin{
			Name: v1alpha1.PluginResourceQuota,
			Config: &runtime.RawExtension{
				Raw: []byte(`{"limitedResources":[{"resource":"persistentvolumeclaims",` +
					`"matchContains":["gold.storageclass.storage.k8s.io/requests.storage"]}]}`),
			},
		}
	}))
	c.awaitReady(t, "lists-quotas")
	reading := func(apiVersion, kind, resource string) {
		name := "reads-" + resource
		c.apply(t, newPolicy(name, namespace, readingParams(namespace, "q"), func(p *v1alpha1.WebhookPolicy) {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: apiVersion, Kind: kind}
		}))
		await(t).Eventually(func() string {
			return condition(c.awaitCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionFalse), v1alpha1.ConditionReady).Message
		}).Should(HavePrefix("Ostiary may not read objects of kind " + kind + " in " + apiVersion +
			": create a ClusterRole with the label admission.ostiary.dev/aggregate-to-params"))
	}
	reading("v1", "ResourceQuota", "resourcequotas")
	reading("v1", "Namespace", "namespaces")
	reading("v1", "Pod", "pods")
	reading("v1", "Secret", "secrets")
	reading("storage.k8s.io/v1", "StorageClass", "storageclasses")
	reading("admission.ostiary.dev/v1alpha1", "WebhookPolicy", "webhookpolicies")
	for _, name := range []string{"namespaces", "pods", "secrets", "storageclasses", "webhookpolicies"} {
		c.remove(t, "reads-"+name)
	}
	c.mayRead(t, "", "resourcequotas")
	c.awaitReady(t, "reads-resourcequotas")
	await(t).Eventually(func() error { return c.probe(t.Context(), namespace, good) }).Should(Succeed())
	c.awaitDenied(t, namespace, "reads-resourcequotas")
}

func TestKindOfParamsThatIsMissing(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("missing-kind", namespace, readingParams(namespace, "x"), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "missing.example.com/v1", Kind: "Thing"}
	}))
	p := c.awaitCondition(t, "missing-kind", v1alpha1.ConditionReady, metav1.ConditionFalse)
	await(t).Eventually(func() string {
		p = c.awaitCondition(t, "missing-kind", v1alpha1.ConditionReady, metav1.ConditionFalse)
		return condition(p, v1alpha1.ConditionReady).Message
	}).Should(Equal("the API server has no kind Thing in missing.example.com/v1: install it, or change spec.paramKind"))
	// It keeps no replica from its work.
	c.restarted(t).awaitReady(t)
}

// TestAuthorizer asks what the user of the request may do.
func TestAuthorizer(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("asks", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = []v1alpha1.Validation{{
			Expression: `authorizer.group("").resource("secrets").namespace(object.metadata.namespace).check("list").allowed()`,
			Message:    "you may not list secrets",
		}}
	}))
	must(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edits"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "editor"}},
	}))
	c.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "writes-config"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}},
	})
	must(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "writes"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writes-config"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "writer"}},
	}))
	as := func(user string) func() error {
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
		impersonated, err := client.New(config, client.Options{Scheme: c.Scheme()})
		must(t, err)
		return func() error { return impersonated.Create(t.Context(), configMap(namespace, "good"), client.DryRunAll) }
	}
	await(t).Eventually(as("editor")).Should(Succeed())
	await(t).Eventually(as("writer")).Should(MatchError(ContainSubstring("WebhookPolicy 'asks' denied request: you may not list secrets")))
}

// TestFirstRequestIsMutated sends a request as soon as a policy is Ready.
func TestFirstRequestIsMutated(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("replicates", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("apps", "deployments", admissionregistrationv1.Create),
		}
		p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: ` +
					`[Object.spec.template.spec.containers{name: "c", image: "mended"}]}}}}`,
			},
		}}
	}))
	labels := map[string]string{"app": "a"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "b", Image: "kept"}, {Name: "c", Image: "x"}}},
			},
		},
	}
	must(t, c.Create(t.Context(), deployment, client.DryRunAll))
	var images []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Image)
	}
	if got := strings.Join(images, ","); got != "kept,mended" {
		t.Errorf("images = %s, want the list merged by name", got)
	}

	c.apply(t, newPolicy("mutates-nothing", namespace, mutating, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = nil
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("missing.example.com", "nothings", admissionregistrationv1.Create),
		}
		p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
	}))
	await(t).Eventually(func() string {
		p := c.awaitCondition(t, "mutates-nothing", v1alpha1.ConditionReady, metav1.ConditionFalse)
		return condition(p, v1alpha1.ConditionReady).Reason
	}).Should(Equal("SchemaNotReady"))
}

// TestBindingForAnotherVersion names a resource in a version that is not the
// one of the request.
func TestBindingForAnotherVersion(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("equivalent", namespace, saying("false"), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("autoscaling", "horizontalpodautoscalers", admissionregistrationv1.Create),
		}
		other := rule("autoscaling", "horizontalpodautoscalers", admissionregistrationv1.Create)
		other.APIVersions = []string{"v1"}
		p.Spec.Bindings = []v1alpha1.Binding{
			{
				Name: "v1",
				MatchResources: &admissionregistrationv1.MatchResources{
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{other},
				},
			},
		}
	}))
	await(t).Eventually(func() bool {
		err := c.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "h"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MaxReplicas: 2, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"},
			},
		}, client.DryRunAll)
		return deniedBy(err, "equivalent")
	}).Should(BeTrue())
}

func TestTypesAreChecked(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("mistyped", namespace, saying(`object.nothing == "x"`), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1"}
	}))
	warnings := func() (*admissionregistrationv1.TypeChecking, error) {
		p, err := c.policy(t.Context(), "mistyped")
		return p.Status.TypeChecking, err
	}
	var got *admissionregistrationv1.TypeChecking
	await(t).Eventually(func() (*admissionregistrationv1.TypeChecking, error) {
		var err error
		got, err = warnings()
		return got, err
	}).ShouldNot(BeNil())
	if len(got.ExpressionWarnings) != 1 || got.ExpressionWarnings[0].FieldRef != "spec.validations[0].expression" ||
		!strings.Contains(got.ExpressionWarnings[0].Warning, "ConfigMap has no field nothing") {
		t.Errorf("warnings = %+v", got.ExpressionWarnings)
	}
	c.change(t, "mistyped", func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations[0].Expression = `object.metadata.name != "x"`
	})
	await(t).Eventually(func() (int, error) {
		got, err := warnings()
		if err != nil || got == nil {
			return -1, err
		}
		return len(got.ExpressionWarnings), nil
	}).Should(Equal(0))
}
