package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	largePlace = "chaos-large"
	// stored is close to what etcd takes, and sent to what API servers take.
	stored, sent = 1_300_000, 3_100_000
	atATime      = 50
)

// largeObjects sends updates of 3 MiB, 50 at a time, while there is load: with
// the object as it was, API servers ask about more than 4 MiB. A body of 30 MiB,
// which none of them sends, is refused.
func largeObjects(r *run) {
	r.limits.quiet = true
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: largePlace}}
	p := largePolicy()
	must(r.T, client.IgnoreAlreadyExists(r.admin().Create(r.Context(), ns)))
	must(r.T, r.admin().Create(r.Context(), largeDeployment("good", stored)))
	must(r.T, r.admin().Create(r.Context(), p))
	defer func() {
		must(r.T, r.admin().Delete(r.Context(), largeDeployment("good", 0)))
		must(r.T, r.admin().Delete(r.Context(), p))
	}()
	var senders []client.Client
	for i := range apiServers {
		config := r.plane.Config(i)
		config.Timeout, config.WarningHandler = time.Minute, rest.NoWarnings{}
		c, err := client.New(config, client.Options{Scheme: r.admin().Scheme()})
		must(r.T, err)
		senders = append(senders, c)
		await(r.T, "the policy about large objects", func() error { return refusesLarge(r.Context(), c) })
	}
	var failed, wrong, done atomic.Int64
	for range r.size.of(2, 20) {
		var group sync.WaitGroup
		for i := range atATime {
			group.Go(func() {
				d := largeDeployment("good", sent)
				if i%5 == 0 {
					d.Annotations = map[string]string{"bad": "yes"}
				}
				err := senders[i%apiServers].Update(r.Context(), d, client.DryRunAll)
				done.Add(1)
				switch {
				case err != nil && !strings.Contains(err.Error(), "denied the request"):
					failed.Add(1)
					r.logf("%v", err)
				case (err != nil) != (i%5 == 0):
					wrong.Add(1)
				}
			})
		}
		group.Wait()
	}
	most := 0
	for _, m := range r.all() {
		most = max(most, m.memory(r))
		r.refusesTooLarge(m)
	}
	if failed.Load()+wrong.Load() > 0 {
		r.problem("%d of %d updates of large objects failed, and %d were answered wrongly", failed.Load(), done.Load(), wrong.Load())
	}
	if most>>10 > 1024 {
		r.problem("a replica took %d MiB", most>>10)
	}
	r.note("%d updates of 3 MiB, %d at a time, %d MiB of memory at most", done.Load(), atATime, most>>10)
}

func largePolicy() *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: largePlace},
		Spec: v1alpha1.WebhookPolicySpec{
			TimeoutSeconds: ptr.To[int32](30),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: largePlace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				}}},
			},
			Validations: []v1alpha1.Validation{{
				Expression: `!("bad" in object.metadata.?annotations.orValue({})) && (oldObject == null || size(oldObject.spec.template.spec.containers[0].args[0]) > 1000)`,
				Message:    "bad is not good",
			}},
		},
	}
}

func largeDeployment(name string, size int) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: largePlace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none", Args: []string{strings.Repeat("x", size)}}}},
			},
		},
	}
}

// refusesLarge is an error until an API server has the policy enforced.
func refusesLarge(ctx context.Context, c client.Client) error {
	d := largeDeployment("probe", 1)
	d.Annotations = map[string]string{"bad": "yes"}
	err := c.Create(ctx, d, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "bad is not good") {
		return fmt.Errorf("it is not denied: %w", err)
	}
	return nil
}

// refusesTooLarge sends a replica what is larger than any review.
func (r *run) refusesTooLarge(m *member) {
	configs, err := r.configs(r.Context())
	must(r.T, err)
	path := *registration.Webhooks(configs[0])[0].ClientConfig.Service.Path
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://"+m.webhook+path, bytes.NewReader(make([]byte, 30<<20)))
	must(r.T, err)
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // nothing secret is sent
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	must(r.T, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		r.problem("a body of 30 MiB is answered with %s", resp.Status)
	}
}
