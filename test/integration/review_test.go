package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// What cannot be enforced is refused when it is applied, with the field.
func TestPolicyReviewedWhenApplied(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	const denied = `admission webhook "webhookpolicies.ostiary.dev" denied the request: WebhookPolicy.admission.ostiary.dev "reviewed" is invalid: `
	tests := map[string]struct {
		edit      func(*v1alpha1.WebhookPolicy)
		wantField string
		wantType  metav1.CauseType
		want      string
	}{
		"a syntax error": {
			edit: saying("object.metadata.name =="), wantField: "spec.validations[0].expression", wantType: metav1.CauseTypeFieldValueInvalid,
			want: `Invalid value: "object.metadata.name ==": compilation failed: ERROR: <input>:1:24: Syntax error: mismatched input '<EOF>'`,
		},
		"a variable that does not exist": {
			edit: saying("variables.team == 'x'"), wantField: "spec.validations[0].expression", wantType: metav1.CauseTypeFieldValueInvalid,
			want: "undeclared reference to 'variables'",
		},
		"a resource that no webhook is called for": {
			edit: func(p *v1alpha1.WebhookPolicy) {
				p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"events"}
			},
			wantField: "spec.matchConstraints.resourceRules[0].resources[0]", wantType: "FieldValueForbidden",
			want: `Forbidden: remove "events", or set spec.allowCriticalResources to true: by default policies do not apply to it, so that a broken policy cannot lock the cluster`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), newPolicy("reviewed", "nowhere", tt.edit))
			var status apierrors.APIStatus
			if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
				t.Fatalf("got %v, want Invalid", err)
			}
			s := status.Status()
			if s.Code != http.StatusUnprocessableEntity || !strings.HasPrefix(s.Message, denied+tt.wantField+": ") ||
				!strings.Contains(s.Message, tt.want) {
				t.Errorf("code %d, message %q; want %q", s.Code, s.Message, tt.want)
			}
			if len(s.Details.Causes) != 1 || s.Details.Causes[0].Field != tt.wantField || s.Details.Causes[0].Type != tt.wantType {
				t.Errorf("causes %+v, want one %s at %s", s.Details.Causes, tt.wantType, tt.wantField)
			}
		})
	}
	t.Run("by kubectl", func(t *testing.T) {
		_, errOut, err := c.kubectl(t.Context(), fmt.Sprintf(manifest, "reviewed", "nowhere", "object.metadata.name ==", ""), "apply", "-f", "-")
		const want = `The WebhookPolicy "reviewed" is invalid: spec.validations[0].expression: Invalid value: "object.metadata.name ==": compilation failed: ERROR: <input>:1:24: Syntax error`
		if err == nil || !strings.HasPrefix(errOut, want) {
			t.Errorf("kubectl ended with %v and said %q, want %q", err, errOut, want)
		}
	})
}

// Whatever is wrong with a stored policy, it can be labelled, let go of, mended
// and deleted; only its spec cannot be changed into something else that is wrong.
func TestStoredBrokenPolicyCanBeWorkedWith(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	c.apply(t, newPolicy("stored", "nowhere", saying("nonsense")), newPolicy("mended", "nowhere", saying("nonsense")))
	c.awaitCondition(t, "stored", v1alpha1.ConditionAccepted, metav1.ConditionFalse)
	c.reviewing(t, true)

	c.change(t, "stored", func(p *v1alpha1.WebhookPolicy) {
		p.Labels = map[string]string{"a": "b"}
		p.Finalizers = []string{"example.com/hold"}
	})
	await(t).Eventually(func() error { // again, if another client wrote it in between
		p, err := c.policy(t.Context(), "stored")
		if err != nil {
			return err
		}
		saying("nonsense of another kind")(p)
		if err := c.Update(t.Context(), p); !apierrors.IsInvalid(err) {
			return fmt.Errorf("changed to something else that is wrong: got %w, want Invalid", err)
		}
		return nil
	}).Should(Succeed())
	c.remove(t, "stored")
	c.change(t, "stored", func(p *v1alpha1.WebhookPolicy) { p.Finalizers = nil })
	await(t).Eventually(func() bool {
		_, err := c.policy(t.Context(), "stored")
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())

	c.change(t, "mended", saying(onlyGood))
	c.awaitReady(t, "mended")
}

// withoutRehearsal matches the warning that a busy machine causes.
var withoutRehearsal = regexp.MustCompile(`(?m)^(Warning: )?not rehearsed: .*\n?`)

// What is risky is taken, with warnings; who did not see them finds an event.
func TestRiskyPolicyIsWarnedOf(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	const more = "  timeoutSeconds: 20\n  failurePolicy: Ignore\n"
	want := "Warning: spec.timeoutSeconds: requests wait up to 20 seconds while Ostiary does not answer, longer than many clients do; choose 10 or less\n" +
		`Warning: spec.matchConstraints.resourceRules[0].resources[0]: the API server does not serve "configmap" in these groups and versions, did you mean "configmaps"?` + "\n"
	text := strings.Replace(fmt.Sprintf(manifest, "risky", "nowhere", "true", more), "[configmaps]", "[configmap]", 1)
	t.Cleanup(func() { c.discard("risky") })
	out, errOut, err := c.kubectl(t.Context(), text, "apply", "-f", "-")
	errOut = withoutRehearsal.ReplaceAllString(errOut, "")
	if err != nil || errOut != want || out != "webhookpolicy.admission.ostiary.dev/risky created\n" {
		t.Errorf("kubectl ended with %v and said\n%s%s, want\n%s", err, out, errOut, want)
	}
	c.awaitEvent(t, "risky", "Warning", "Risky")
	out, errOut, err = c.kubectl(t.Context(), "", "label", "whp", "risky", "a=b")
	if err != nil || errOut != "" {
		t.Errorf("labelling: kubectl ended with %v and said\n%s%s", err, out, errOut)
	}
}

// A kind that was installed a moment before the policy for it is known.
func TestPolicyForANewKind(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.reviewed.test}
spec:
  group: reviewed.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`
	t.Cleanup(func() { _, _, _ = c.kubectl(context.Background(), definition, "delete", "-f", "-") })
	_, errOut, err := c.kubectl(t.Context(), definition, "apply", "-f", "-")
	if err != nil {
		t.Fatalf("kubectl: %v: %s", err, errOut)
	}
	_, errOut, err = c.kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s", "crd/widgets.reviewed.test")
	if err != nil {
		t.Fatalf("kubectl: %v: %s", err, errOut)
	}
	for resource, wantWarning := range map[string]string{
		"widgets": "existing objects were not evaluated (Widgets): Ostiary may not list them",
		"gadgets": `"gadgets"`,
	} {
		p := newPolicy("new-kind", "nowhere", failing(admissionregistrationv1.Ignore), func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
				rule("reviewed.test", resource, admissionregistrationv1.Create),
			}
		}, saying("true"))
		a := c.asker(t)
		must(t, a.Create(t.Context(), p, client.DryRunAll))
		a.warnings = slices.DeleteFunc(a.warnings, withoutRehearsal.MatchString)
		if len(a.warnings) != 1 || !strings.Contains(a.warnings[0], wantWarning) {
			t.Errorf("%s: warnings %q, want one with %q", resource, a.warnings, wantWarning)
		}
	}
}

// A thousand policies applied at once do not delay decisions.
func TestManyPoliciesReviewedAtOnce(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	// What a hundred callers at a time keep waiting is the API server, and this program:
	// how long Ostiary takes it says itself.
	c.enforce(t, newPolicy("beside-reviews", namespace, within(30)))
	c.awaitDenied(t, namespace, "beside-reviews")
	decisions := func(series string) float64 {
		return m.series(t, "ostiary_webhook_http_request_duration_seconds_"+series)
	}
	const all, soon = `count{phase="validate"}`, `bucket{phase="validate",le="1"}`
	late := decisions(all) - decisions(soon)
	config := rest.CopyConfig(c.config)
	config.QPS = -1 // all at once
	crowd, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var answered, reviewed, unreviewed atomic.Int64
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for ctx.Err() == nil {
				if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "beside-reviews") {
					t.Errorf("got %v, want a denial", err)
				}
				answered.Add(1)
			}
		})
	}
	workqueue.ParallelizeUntil(ctx, 100, 1000, func(i int) {
		p := newPolicy("reviewed-at-once", "nowhere", saying("nonsense"))
		for j := range 4 {
			p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{
				Name:       fmt.Sprintf("v%d", j),
				Expression: fmt.Sprintf(`object.data["%d"].startsWith("%d")`, i, j),
			})
		}
		switch err := crowd.Create(t.Context(), p, client.DryRunAll); {
		case apierrors.IsInvalid(err):
			reviewed.Add(1)
		case err == nil:
			unreviewed.Add(1)
		default:
			t.Error(err)
		}
	})
	cancel()
	asking.Wait()
	t.Logf("%d reviewed, %d not; %d requests answered meanwhile", reviewed.Load(), unreviewed.Load(), answered.Load())
	if reviewed.Load() == 0 || answered.Load() == 0 {
		t.Error("nothing was reviewed, or no request was answered")
	}
	// A machine that stands still for a moment makes a few late.
	if late := decisions(all) - decisions(soon) - late; 10*late > float64(answered.Load()) {
		t.Errorf("%v decisions took more than a second, a thousand times what they take", late)
	}
}

// Whether one replica is enough is said to who lets requests depend on it.
func TestSingleReplicaIsWarnedOf(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	const want = "spec.failurePolicy: Fail with a single replica of Ostiary: while it restarts, matching requests are denied; run two or more"
	warnings := func() []string {
		a := c.asker(t)
		must(t, a.Create(t.Context(), newPolicy("single", "nowhere"), client.DryRunAll))
		return a.warnings
	}
	await(t).Eventually(warnings).Should(Equal([]string{want})) // replicas of other tests may still be taken to be alive
	c.startAnother(t)
	await(t).Eventually(warnings).Should(BeEmpty())
}

// The configuration for policies is kept as it is wanted, and goes when it is not.
func TestReviewConfigurationIsKept(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	get := func() (*configuration, error) {
		config := &configuration{}
		return config, c.Get(t.Context(), client.ObjectKey{Name: registration.ReviewConfiguration}, config)
	}
	wanted, err := get()
	must(t, err)
	delete(wanted.Annotations, registration.AnnotationTouched) // differs after each write
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	must(t, c.Get(t.Context(), client.ObjectKey{Name: "webhookpolicies.admission.ostiary.dev"}, crd))
	if o := wanted.OwnerReferences; len(o) != 1 || o[0].UID != crd.UID || o[0].Kind != "CustomResourceDefinition" {
		t.Errorf("owners %+v, want the CustomResourceDefinition", o)
	}
	if w := wanted.Webhooks[0]; *w.FailurePolicy != admissionregistrationv1.Ignore || len(w.Rules) != 1 ||
		len(w.Rules[0].Resources) != 1 || w.Rules[0].Resources[0] != "webhookpolicies" {
		t.Errorf("it could lock clients out: %+v", w)
	}
	tests := map[string]func(*configuration) error{
		"edited": func(config *configuration) error {
			config.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
			config.Webhooks[0].Rules[0].Resources = []string{"*/*"}
			return c.Update(t.Context(), config)
		},
		"emptied":   func(config *configuration) error { config.Webhooks = nil; return c.Update(t.Context(), config) },
		"disowned":  func(config *configuration) error { config.OwnerReferences = nil; return c.Update(t.Context(), config) },
		"unlabeled": func(config *configuration) error { config.Labels = nil; return c.Update(t.Context(), config) },
		"deleted":   func(config *configuration) error { return c.Delete(t.Context(), config) },
	}
	for name, disturb := range tests {
		t.Run(name, func(t *testing.T) {
			await(t).Eventually(func() error {
				config, err := get()
				if err != nil {
					return err
				}
				return disturb(config)
			}).Should(Succeed())
			await(t).Eventually(func() error {
				config, err := get()
				if err != nil {
					return err
				}
				if !registration.Matches(config, wanted) || !registration.Owned(config, wanted) {
					return fmt.Errorf("it is not repaired: %+v", config)
				}
				return nil
			}).Should(Succeed())
		})
	}
	c.wantNoWrites(t, c.rest(t))
	c.reviewing(t, false)
	c.awaitGone(t, wanted)
}

// The webhook for policies cannot stand in the way of any of them, whatever has
// become of the manager.
func TestReviewNeverBlocks(t *testing.T) {
	c := install(t)
	m := c.reviewing(t, true)
	m.kill()
	tests := map[string]func(t *testing.T){
		"no listener": func(*testing.T) {},
		"another certificate": func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			must(t, server.Listener.Close())
			server.Listener, server.Config.ErrorLog = c.listen(t), log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
		},
		"no answer": func(t *testing.T) { c.listen(t) },
	}
	for name, stand := range tests {
		t.Run(name, func(t *testing.T) {
			stand(t)
			c.apply(t, newPolicy("unreviewed", "nowhere", saying("nonsense")))
			c.change(t, "unreviewed", saying("more nonsense"))
			c.remove(t, "unreviewed")
			await(t).Eventually(func() bool {
				_, err := c.policy(context.Background(), "unreviewed")
				return apierrors.IsNotFound(err)
			}).Should(BeTrue())
		})
	}
}

// listen takes the address that the configurations name until the test ends.
func (c *cluster) listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", c.webhook)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
