package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// blind gives a manager beside the shared one that learns nothing of policies
// any more until sight is called.
func (c *cluster) blind(t *testing.T) (m *process, sight func()) {
	t.Helper()
	g := c.gate(t)
	m = c.another(t, "--kubeconfig="+g.kubeconfig)
	open := g.keep(t, "/webhookpolicies", silent)
	g.cut()
	return m, func() { open(); g.cut() }
}

func (c *cluster) awaitWaiting(t *testing.T, policy string, m *process) {
	t.Helper()
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), policy)
		if err != nil {
			return err
		}
		got := condition(p, v1alpha1.ConditionRegistered)
		if got.Status != metav1.ConditionFalse || got.Reason != "WaitingForReplicas" || !strings.Contains(got.Message, m.replica) {
			return fmt.Errorf("Registered is %+v, want it to wait for %s", got, m.replica)
		}
		return nil
	}).Should(Succeed())
}

// Promise: never enforce what cannot be served. A policy is registered when
// every replica has loaded it, and not before.
func TestPoliciesWaitForEveryReplica(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("waits-not", namespace))
	config := c.carrier(t, "waits-not")
	m, sight := c.blind(t)

	c.apply(t, newPolicy("waits", namespace, within(9)))
	c.awaitWaiting(t, "waits", m)
	if p, err := c.policy(t.Context(), "waits"); err != nil || len(p.Status.Webhooks) > 0 {
		t.Errorf("webhooks %v, %v: want none", p.Status.Webhooks, err)
	}
	c.remove(t, "waits-not") // a deletion waits for no replica
	c.awaitGone(t, config)
	must(t, c.probe(t.Context(), namespace, bad))
	sight()
	c.awaitReady(t, "waits")
	c.awaitDenied(t, namespace, "waits")
}

// Status tells the truth: a change that leaves the configurations as they are is
// enforced when every replica has loaded it, and not before.
func TestChangesAreEnforcedOnEveryReplica(t *testing.T) {
	c := install(t)
	shared := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("reworded", namespace))
	c.awaitDenied(t, namespace, "reworded")
	config := c.carrier(t, "reworded")
	m, sight := c.blind(t)
	caller := c.caller(t, config)
	says := func(at *process) string {
		answer, err := caller.at(t, at.webhook).ask(t.Context(), review(t, "v1", namespace, bad))
		must(t, err)
		return answer.Response.Result.Message
	}
	c.change(t, "reworded", func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].Message = "another word" })
	c.awaitWaiting(t, "reworded", m)
	await(t).Eventually(func() string { return says(shared) }).Should(ContainSubstring("another word"))
	if got := says(m); !strings.Contains(got, "bad is not good") {
		t.Errorf("the other replica says %q, want it not to know better", got)
	}
	sight()
	c.awaitReady(t, "reworded")
	if got := says(m); !strings.Contains(got, "another word") {
		t.Errorf("the policy is Ready, and the other replica says %q", got)
	}
	if got := c.carrier(t, "reworded"); got.Generation != config.Generation {
		t.Errorf("generation %d of its configuration, which was %d: the change proves nothing", got.Generation, config.Generation)
	}
}

// A replica that is gone without a word is waited for until its Lease runs out.
func TestUnreachableReplicaDelaysNothing(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	m, _ := c.blind(t)
	c.apply(t, newPolicy("outlives", namespace))
	c.awaitWaiting(t, "outlives", m)
	m.kill()
	c.awaitReady(t, "outlives")
}

// A replica that is behind the configurations does not answer for a policy that
// it has not seen: not with "allowed", and not for long.
func TestUnseenPolicyIsNeverAllowed(t *testing.T) {
	c := install(t)
	shared := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("seen", namespace))
	config := c.carrier(t, "seen")
	caller := c.caller(t, config)
	shared.kill()
	// Without a leader, because that would repair the configuration.
	c.releaseLease(t)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now,
		},
	}
	must(t, c.Create(t.Context(), lease))
	t.Cleanup(func() { _ = c.Delete(context.Background(), lease) })
	m, sight := c.blind(t)
	ask := func() error {
		answer, err := caller.at(t, m.webhook).ask(t.Context(), review(t, "v1", namespace, good))
		if err == nil && !answer.Response.Allowed {
			err = errors.New(answer.Response.Result.Message)
		}
		return err
	}
	await(t).Eventually(ask).Should(Succeed())

	unseen := newPolicy("unseen", namespace, saying("false"))
	c.apply(t, unseen)
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(config), config))
	config.Annotations[registration.AnnotationMembers] += ",unseen"
	config.OwnerReferences = append(config.OwnerReferences, metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy", Name: unseen.Name, UID: unseen.UID,
	})
	must(t, c.Update(t.Context(), config))
	notLoaded := func() error {
		resp, text, err := caller.at(t, m.webhook).do(t.Context(), http.MethodPost, "application/json", review(t, "v1", namespace, good))
		if err == nil && (resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" ||
			!strings.Contains(string(text), `policy "unseen" of call group`)) {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return err
	}
	await(t).Eventually(notLoaded).Should(Succeed())
	await(t).Consistently(notLoaded).Should(Succeed())
	sight()
	await(t).Eventually(ask).Should(MatchError(ContainSubstring("WebhookPolicy 'unseen' denied request")))
}
