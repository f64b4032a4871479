package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// onTemplates makes a policy one for Pods without the image latest, and for templates.
func onTemplates(p *v1alpha1.WebhookPolicy) {
	p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{rule("", "pods", admissionregistrationv1.Create)}
	p.Spec.Validations = []v1alpha1.Validation{
		{Name: "no-latest", Expression: `object.spec.containers.all(c, c.image != "latest")`, Message: "pin the image"},
	}
	p.Spec.PodTemplates = &v1alpha1.PodTemplates{}
}

func podTemplate(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

func deploymentOf(namespace, name, image string) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: podTemplate(image),
		},
	}
}

// A policy for Pods denies workloads when they are applied, and then only changes of their
// templates.
func TestPodTemplates(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	old := deploymentOf(namespace, "old", "latest")
	must(t, c.Create(t.Context(), old))
	c.enforce(t, newPolicy("pinned", namespace, onTemplates))
	const want = "WebhookPolicy 'pinned' denied request: no-latest at spec.template: pin the image"
	t.Run("apply", func(t *testing.T) {
		text, err := yaml.Marshal(deploymentOf(namespace, "web", "latest"))
		must(t, err)
		_, errOut, err := c.kubectl(t.Context(), string(text), "apply", "-f", "-")
		if err == nil || !strings.Contains(errOut, want) {
			t.Errorf("kubectl apply: %v\n%s\nwant %q", err, errOut, want)
		}
	})
	t.Run("cause", func(t *testing.T) {
		err := c.Create(t.Context(), deploymentOf(namespace, "web", "latest"))
		var status apierrors.APIStatus
		if !errors.As(err, &status) || len(status.Status().Details.Causes) != 1 {
			t.Fatalf("got %v, want one cause", err)
		}
		if cause := status.Status().Details.Causes[0]; cause.Field != "spec.template" || cause.Type != "no-latest" {
			t.Errorf("cause = %+v", cause)
		}
	})
	t.Run("other kinds", func(t *testing.T) {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		template := podTemplate("latest")
		job := template.DeepCopy()
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "other"}
		for path, object := range map[string]client.Object{
			"spec.template (StatefulSet)": &appsv1.StatefulSet{
				ObjectMeta: meta,
				Spec:       appsv1.StatefulSetSpec{Selector: selector, Template: template},
			},
			"spec.template (DaemonSet)": &appsv1.DaemonSet{
				ObjectMeta: meta,
				Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: template},
			},
			"spec.template (ReplicaSet)": &appsv1.ReplicaSet{
				ObjectMeta: meta,
				Spec:       appsv1.ReplicaSetSpec{Selector: selector, Template: template},
			},
			"spec.template (RC)": &corev1.ReplicationController{
				ObjectMeta: meta,
				Spec:       corev1.ReplicationControllerSpec{Template: &template},
			},
			"spec.template (Job)": &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: *job}},
			"spec.jobTemplate.spec.template (CronJob)": &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
				Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: *job}},
			}},
		} {
			where, _, _ := strings.Cut(path, " ")
			if err := c.Create(t.Context(), object, client.DryRunAll); !deniedBy(err, "pinned") ||
				!strings.Contains(err.Error(), "no-latest at "+where+": ") {
				t.Errorf("%s: got %v, want a denial", path, err)
			}
		}
		if err := c.Create(t.Context(), deploymentOf(namespace, "good", "web:1"), client.DryRunAll); err != nil {
			t.Errorf("a pinned image: %v", err)
		}
	})
	t.Run("scale", func(t *testing.T) {
		for _, args := range [][]string{{"scale", "--replicas=3", "deployment/old"}, {"label", "deployment/old", "team=shop"}} {
			if _, errOut, err := c.kubectl(t.Context(), "", append([]string{"-n", namespace}, args...)...); err != nil {
				t.Errorf("kubectl %v: %v\n%s", args, err, errOut)
			}
		}
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(old), old))
		old.Spec.Replicas = new(int32(4))
		if err := c.Update(t.Context(), old); err != nil {
			t.Errorf("an update of spec.replicas: %v", err)
		}
	})
	t.Run("rollout restart", func(t *testing.T) {
		_, errOut, err := c.kubectl(t.Context(), "", "-n", namespace, "rollout", "restart", "deployment/old")
		if err == nil || !strings.Contains(errOut, want) {
			t.Errorf("kubectl rollout restart: %v\n%s\nwant %q", err, errOut, want)
		}
	})
	t.Run("owned", func(t *testing.T) {
		owned := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      "owned",
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(old, appsv1.SchemeGroupVersion.WithKind("Deployment")),
				},
			},
			Spec: appsv1.ReplicaSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
				Template: podTemplate("latest"),
			},
		}
		if err := c.Create(t.Context(), owned, client.DryRunAll); err != nil {
			t.Errorf("a ReplicaSet of a Deployment: %v", err)
		}
	})
	t.Run("status", func(t *testing.T) {
		var p v1alpha1.WebhookPolicy
		must(t, c.Get(t.Context(), client.ObjectKey{Name: "pinned"}, &p))
		if len(p.Status.Webhooks) != 2 {
			t.Errorf("webhooks = %+v, want that for Pods and that for templates", p.Status.Webhooks)
		}
	})
}

// While Ostiary does not answer, API servers deny new templates and not scaling.
func TestPodTemplatesDuringAnOutage(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	old := deploymentOf(namespace, "old", "latest")
	must(t, c.Create(t.Context(), old))
	c.enforce(t, newPolicy("pinned", namespace, onTemplates))
	m.kill()
	NewWithT(t).Eventually(func() error {
		return c.Create(t.Context(), deploymentOf(namespace, "web", "web:1"), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("failed calling webhook")))
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	old.Spec.Replicas = new(int32(4))
	if err := c.Update(t.Context(), old); err != nil {
		t.Errorf("an update of spec.replicas: %v", err)
	}
}

// An update passes with a warning and an annotation if the stored object fails too.
func TestRatchet(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old"}, Data: map[string]string{"verdict": "bad"}}
	must(t, c.Create(t.Context(), old))
	c.enforce(t, newPolicy("tolerates", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations[0].Name, p.Spec.Ratchet = "only-good", true
	}))
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{"touched": "true"}}})
	must(t, err)
	_, errOut, err := c.kubectl(t.Context(), "", "-n", namespace, "patch", "configmap", "old", "--type=merge", "-p", string(patch))
	const want = "WebhookPolicy 'tolerates' allowed request, because the stored object fails it too: only-good: bad is not good"
	if err != nil || !strings.Contains(errOut, want) {
		t.Errorf("kubectl patch: %v\n%s\nwant a warning %q", err, errOut, want)
	}
	good := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "good"}, Data: map[string]string{"verdict": "good"}}
	must(t, c.Create(t.Context(), good))
	good.Data["verdict"] = "bad"
	if err := c.Update(t.Context(), good); !deniedBy(err, "tolerates") {
		t.Errorf("a good object that becomes bad: %v, want a denial", err)
	}
}

// An object to which a policy does not apply can be created with any content. A later update
// that makes the policy apply to it is denied, as the creation of the result is: the stored
// object fails the validation, and does not let it pass.
func TestRatchetInTwoSteps(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	onProd := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "prod"}}
	ways := map[string]func(*v1alpha1.WebhookPolicy){
		"condition": func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{
				{Name: "prod", Expression: `object.metadata.?labels.tier.orValue("") == "prod"`},
			}
		},
		"binding": func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings = []v1alpha1.Binding{{
				Name: "prod", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{ObjectSelector: onProd},
			}}
		},
		"selector": func(p *v1alpha1.WebhookPolicy) { p.Spec.MatchConstraints.ObjectSelector = onProd },
	}
	for way, change := range ways {
		c.enforce(t, newPolicy("in-two-steps-"+way, namespace, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Ratchet = true
			p.Spec.Validations = []v1alpha1.Validation{
				{Expression: fmt.Sprintf(`!(%q in object.?data.orValue({}))`, way), Message: "production objects have no " + way},
			}
			change(p)
		}))
	}
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			object := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-" + way, Labels: map[string]string{"tier": "prod"}},
				Data:       map[string]string{way: "x"},
			}
			if err := c.Create(t.Context(), object.DeepCopy()); !deniedBy(err, "in-two-steps-"+way) {
				t.Errorf("a production object: %v, want a denial", err)
			}
			object.Labels = nil
			must(t, c.Create(t.Context(), object))
			object.Labels = map[string]string{"tier": "prod"}
			if err := c.Update(t.Context(), object.DeepCopy()); !deniedBy(err, "in-two-steps-"+way) {
				t.Errorf("an object that becomes one of production: %v, want a denial", err)
			}
			delete(object.Data, way)
			if err := c.Update(t.Context(), object); err != nil {
				t.Errorf("a good object that becomes one of production: %v", err)
			}
		})
	}
}
