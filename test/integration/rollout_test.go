package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/rollout"
)

// stage is a step of a rollout that lasts for seconds.
func stage(
	name string, action admissionregistrationv1.ValidationAction, seconds int64, edits ...func(*v1alpha1.RolloutStep),
) v1alpha1.RolloutStep {
	s := v1alpha1.RolloutStep{Name: name, ValidationActions: []admissionregistrationv1.ValidationAction{action}, MinDurationSeconds: seconds}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

func atMost(violations int64) func(*v1alpha1.RolloutStep) {
	return func(s *v1alpha1.RolloutStep) { s.MaxViolations = &violations }
}

func inTier(tier string) func(*v1alpha1.RolloutStep) {
	return func(s *v1alpha1.RolloutStep) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	}
}

// rollingOut replaces the actions of a policy by steps, after which it denies.
func rollingOut(evidence v1alpha1.RolloutEvidence, steps ...v1alpha1.RolloutStep) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "all", Rollout: &v1alpha1.Rollout{
			Steps: steps, Evidence: evidence,
			Final: v1alpha1.RolloutFinal{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}}}
	}
}

// matchingIn makes a policy match the namespaces with a label.
func matchingIn(key, value string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// awaitBinding waits for a state of the only binding of a policy.
func (c *cluster) awaitBinding(t *testing.T, policy string, is func(*v1alpha1.BindingStatus) bool) *v1alpha1.BindingStatus {
	t.Helper()
	var got v1alpha1.BindingStatus
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), policy)
		if err != nil {
			return err
		}
		if got = rollout.StateOf(p.Status.Bindings, "all"); !is(&got) {
			return fmt.Errorf("the state is %+v", got)
		}
		return nil
	}).Should(Succeed())
	return &got
}

func (c *cluster) awaitAction(t *testing.T, policy, action string) *v1alpha1.BindingStatus {
	t.Helper()
	return c.awaitBinding(t, policy, func(s *v1alpha1.BindingStatus) bool { return s.Action == action })
}

// commands sends a command of kubectl ostiary rollout for the current state.
func (c *cluster) commands(t *testing.T, policy string, action rollout.Action) {
	t.Helper()
	c.change(t, policy, func(p *v1alpha1.WebhookPolicy) {
		command := rollout.Command{Action: action, Binding: "all", Token: rollout.StateOf(p.Status.Bindings, "all").Token}
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, rollout.Annotation, command.String())
	})
}

// actionHistory has the actions that the status of a policy had, in their order.
type actionHistory struct {
	mu      sync.Mutex
	actions []string
	writes  int
}

func (c *cluster) follow(t *testing.T, policy string) *actionHistory {
	t.Helper()
	h := &actionHistory{}
	w, err := c.Watch(t.Context(), &v1alpha1.WebhookPolicyList{}, client.MatchingFields{"metadata.name": policy})
	must(t, err)
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			if p, ok := event.Object.(*v1alpha1.WebhookPolicy); ok && len(p.Status.Bindings) > 0 {
				h.add(p.Status.Bindings[0].Action)
			}
		}
	}()
	return h
}

func (h *actionHistory) add(action string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	if len(h.actions) == 0 || h.actions[len(h.actions)-1] != action {
		h.actions = append(h.actions, action)
	}
}

func (h *actionHistory) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.actions)
}

// early sends bad requests until it is stopped, and counts the denials before the final action is recorded.
type early struct {
	sent, denied, early atomic.Int64
	stop                func()
}

func (c *cluster) denials(t *testing.T, policy string, namespaces ...string) *early {
	ctx, cancel := context.WithCancel(t.Context())
	e := &early{}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				err := c.probe(ctx, namespaces[i%len(namespaces)], bad)
				e.sent.Add(1)
				if !deniedBy(err, policy) {
					continue
				}
				e.denied.Add(1)
				// The final action stays, so it was not recorded at the denial if it is not now.
				p, err := c.policy(ctx, policy)
				if err == nil && !rollout.StateOf(p.Status.Bindings, "all").Final {
					e.early.Add(1)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	e.stop = func() {
		cancel()
		group.Wait()
	}
	t.Cleanup(e.stop)
	return e
}

// A policy runs through all steps while the leader is killed in each of them. No replica denies before the final action
// is recorded, and nothing is skipped or repeated.
func TestRolloutOnThreeReplicas(t *testing.T) {
	const requests = 10_000
	c := install(t)
	f := c.newReplicaGroup(t, 3)
	dev := c.namespace(t, map[string]string{"rollout": "three", "tier": "dev"})
	prod := c.namespace(t, map[string]string{"rollout": "three"})
	h := c.follow(t, "rollout-three")
	c.apply(t, newPolicy("rollout-three", "", matchingIn("rollout", "three"), rollingOut(v1alpha1.RolloutEvidenceRequests,
		stage("learn", "Audit", 3), stage("warn-dev", "Warn", 3, inTier("dev"), atMost(5)), stage("warn", "Warn", 3, atMost(5)))))
	e := c.denials(t, "rollout-three", prod, dev)
	for _, action := range []string{"Audit 1/3", "Warn 2/3", "Warn 3/3"} {
		c.awaitAction(t, "rollout-three", action)
		if action == "Warn 3/3" {
			c.commands(t, "rollout-three", rollout.Pause)
			c.awaitBinding(t, "rollout-three", func(s *v1alpha1.BindingStatus) bool { return s.Paused })
		}
		f.crash(t, f.leader(t))
	}
	await(t).Eventually(e.sent.Load).Should(BeNumerically(">=", requests))
	if n := e.denied.Load(); n != 0 {
		t.Errorf("%d denials of %d requests before the final action", n, e.sent.Load())
	}
	c.commands(t, "rollout-three", rollout.Resume)
	c.awaitAction(t, "rollout-three", "Deny")
	f.crash(t, f.leader(t))
	c.awaitDenied(t, prod, "rollout-three")
	c.awaitDenied(t, dev, "rollout-three")
	c.awaitCondition(t, "rollout-three", v1alpha1.ConditionRolledOut, metav1.ConditionTrue)
	e.stop()
	t.Logf("%d requests, %d denials, %d writes of the status", e.sent.Load(), e.denied.Load(), h.writes)
	if n := e.early.Load(); n != 0 {
		t.Errorf("%d denials of %d requests before the final action was recorded", n, e.sent.Load())
	}
	if diff := cmp.Diff([]string{"Audit 1/3", "Warn 2/3", "Warn 3/3", "Deny"}, h.got()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	c.wantNoWrites(t, c.rest(t))
}

// The leader is killed after it has decided and before the API server has its write.
func TestRolloutBetweenDecisionAndWrite(t *testing.T) {
	c := install(t)
	g := c.gate(t)
	m := c.behind(t, g)
	namespace := c.namespace(t, nil)
	h := c.follow(t, "rollout-between")
	c.enforce(t, newPolicy("rollout-between", namespace, rollingOut("", stage("learn", "Audit", 6), stage("warn", "Warn", 600))))
	before := c.awaitAction(t, "rollout-between", "Audit 1/2")
	open := g.keep(t, "/webhookpolicies/rollout-between/status", silent)
	await(t).Eventually(func() bool { return time.Now().After(before.Next.Add(2 * time.Second)) }).Should(BeTrue())
	if after := c.awaitBinding(t, "rollout-between", func(*v1alpha1.BindingStatus) bool { return true }); after.Token != before.Token {
		t.Errorf("the state has changed without a write: %+v", after)
	}
	if err := c.probe(t.Context(), namespace, bad); err != nil {
		t.Errorf("a request in the first step: %v", err)
	}
	m.kill()
	open()
	c.manager(t)
	c.awaitAction(t, "rollout-between", "Warn 2/2")
	if diff := cmp.Diff([]string{"Audit 1/2", "Warn 2/2"}, h.got()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// An object that violates the policy holds the step, until it is corrected.
func TestRolloutHeldByObjects(t *testing.T) {
	c := install(t)
	c.audited(t)
	dev, prod := c.namespace(t, map[string]string{"rollout": "held", "tier": "dev"}), c.namespace(t, map[string]string{"rollout": "held"})
	stored, other := configMap(dev, bad), configMap(prod, bad)
	must(t, c.Create(t.Context(), stored))
	must(t, c.Create(t.Context(), other))
	c.apply(t, newPolicy("rollout-held", "", matchingIn("rollout", "held"), rollingOut(v1alpha1.RolloutEvidenceObjects,
		stage("learn", "Audit", 1), stage("warn-dev", "Warn", 2, inTier("dev"), atMost(0)), stage("warn", "Warn", 600))))
	held := c.awaitBinding(t, "rollout-held", func(s *v1alpha1.BindingStatus) bool { return s.Step == "warn-dev" && s.HeldBy != "" })
	if want := "1 stored objects violate the policy, and maxViolations is 0"; held.HeldBy != want {
		t.Errorf("held by %q, want %q", held.HeldBy, want)
	}
	if diff := cmp.Diff([]string{"configmaps " + dev + "/probe"}, held.Examples); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
	c.awaitEvent(t, "rollout-held", corev1.EventTypeWarning, rollout.ReasonHeld)
	p := c.awaitCondition(t, "rollout-held", v1alpha1.ConditionRolledOut, metav1.ConditionFalse)
	if got := condition(p, v1alpha1.ConditionRolledOut); got.Reason != "RolloutHeld" {
		t.Errorf("the condition is %+v", got)
	}
	out, _, err := c.kubectl(t.Context(), "", "get", "whp", "rollout-held")
	if err != nil || !strings.Contains(out, "Warn,Audit 2/3") {
		t.Errorf("kubectl get: %v: %s", err, out)
	}
	stored.Data["verdict"] = good
	must(t, c.Update(t.Context(), stored))
	c.awaitAction(t, "rollout-held", "Warn 3/3")
}

// Requests of one controller count once, and hold the step.
func TestRolloutHeldByRequests(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("rollout-requests", namespace, rollingOut(v1alpha1.RolloutEvidenceRequests,
		stage("learn", "Audit", 8, atMost(1)), stage("warn", "Warn", 600))))
	c.awaitCondition(t, "rollout-requests", v1alpha1.ConditionReady, metav1.ConditionTrue)
	for i := range 20 {
		owned := configMap(namespace, bad)
		owned.Name = fmt.Sprintf("owned-%d", i)
		owned.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: ptr.To(true),
		}}
		must(t, c.Create(t.Context(), owned, client.DryRunAll))
	}
	must(t, c.probe(t.Context(), namespace, bad))
	held := c.awaitBinding(t, "rollout-requests", func(s *v1alpha1.BindingStatus) bool { return s.HeldBy != "" })
	if want := "2 owners or objects have had requests that violate the policy, and maxViolations is 1"; held.HeldBy != want {
		t.Errorf("held by %q, want %q", held.HeldBy, want)
	}
	if diff := cmp.Diff([]string{"ConfigMap/" + namespace + "/probe", "ReplicaSet/" + namespace + "/web"}, held.Examples); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
	c.change(t, "rollout-requests", func(p *v1alpha1.WebhookPolicy) { p.Spec.Bindings[0].Rollout.Steps[0].MaxViolations = ptr.To[int64](2) })
	c.awaitAction(t, "rollout-requests", "Warn 2/2")
}

// While the policy moves to the call group that fails closed, Ostiary is killed. Nothing is denied that is not recorded, and
// after the outage one webhook denies.
func TestRolloutOutageDuringTheMove(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("rollout-move", namespace, rollingOut("", stage("warn", "Warn", 3))))
	if got := c.failurePolicyOf(t, "rollout-move"); got != admissionregistrationv1.Ignore {
		t.Errorf("failurePolicy %s before the move, want Ignore", got)
	}
	c.awaitAction(t, "rollout-move", "Deny")
	m.kill()
	for _, verdict := range []string{good, bad} {
		if err := c.probe(t.Context(), namespace, verdict); err != nil && !unreachable(err) {
			t.Errorf("%s during the outage: %v", verdict, err)
		}
	}
	c.manager(t)
	c.awaitDenied(t, namespace, "rollout-move")
	c.awaitCondition(t, "rollout-move", v1alpha1.ConditionRolledOut, metav1.ConditionTrue)
	if err := c.probe(t.Context(), namespace, bad); err == nil || strings.Count(err.Error(), "rollout-move") != 1 {
		t.Errorf("the denial is %v, want the policy once", err)
	}
	must(t, c.probe(t.Context(), namespace, good))
	c.carrier(t, "rollout-move") // exactly one configuration names it
	if got := c.failurePolicyOf(t, "rollout-move"); got != admissionregistrationv1.Fail {
		t.Errorf("failurePolicy %s after the move, want Fail", got)
	}
}

// A status that is lost begins with the first step, and says so.
func TestRolloutWithLostStatus(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("rollout-lost", namespace, rollingOut("", stage("learn", "Audit", 600))))
	c.awaitAction(t, "rollout-lost", "Audit 1/1")
	c.commands(t, "rollout-lost", rollout.Complete)
	c.awaitAction(t, "rollout-lost", "Deny")
	c.awaitDenied(t, namespace, "rollout-lost")
	c.remove(t, "rollout-lost")
	c.apply(t, newPolicy("rollout-lost", namespace, rollingOut("", stage("learn", "Audit", 600))))
	c.awaitAction(t, "rollout-lost", "Audit 1/1")
	c.awaitEvent(t, "rollout-lost", corev1.EventTypeWarning, rollout.ReasonRestarted)
	c.awaitAllowed(t, namespace)

	c.restarted(t, "--assume-rollouts-complete")
	c.manager(t)
	c.remove(t, "rollout-lost")
	c.apply(t, newPolicy("rollout-lost", namespace, rollingOut("", stage("learn", "Audit", 600))))
	c.awaitAction(t, "rollout-lost", "Deny")
	c.awaitDenied(t, namespace, "rollout-lost")
}

// A replica that does not know rollouts would deny in each step, so nothing is registered until it has ended.
func TestRolloutWaitsForOlderReplica(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("rollout-skewed", namespace, acting("Warn")))
	older := c.olderReplica(t, "bindings")
	c.change(t, "rollout-skewed", rollingOut("", stage("learn", "Audit", 1)))
	c.awaitSkew(t, "rollout-skewed", "waiting for replica older, which does not know spec.bindings", "until then generation 1 stays enforced")
	await(t).Consistently(c.denial(t, namespace), 3*time.Second, 200*time.Millisecond).Should(BeEmpty())
	must(t, c.Delete(t.Context(), older))
	c.awaitAction(t, "rollout-skewed", "Deny")
	c.awaitDenied(t, namespace, "rollout-skewed")
}

// Many policies advance to the next step at once, with one write of each status. At rest, nothing is written.
func TestRolloutsOfManyPolicies(t *testing.T) {
	count := 1000
	if testing.Short() {
		count = 50
	}
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	name := func(i int) string { return fmt.Sprintf("rollout-many-%d", i) }
	for i := range count {
		c.apply(t, newPolicy(name(i), namespace, rollingOut("", stage("learn", "Audit", 600), stage("warn", "Warn", 600))))
	}
	for i := range count {
		c.awaitReady(t, name(i))
	}
	since := c.rest(t)
	for i := range count { // all of them within some seconds
		c.change(t, name(i), func(p *v1alpha1.WebhookPolicy) {
			command := rollout.Command{Action: rollout.Skip, Binding: "all", Token: p.Status.Bindings[0].Token}
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, rollout.Annotation, command.String())
		})
	}
	for i := range count {
		c.awaitAction(t, name(i), "Warn 2/2")
	}
	c.rest(t)
	writes := map[string]int{}
	for _, write := range c.audit.managerWrites(t, since) {
		for word := range strings.FieldsSeq(write) {
			if strings.Contains(word, "rollout-many-") {
				writes[word]++
			}
		}
	}
	most := 0
	for _, n := range writes {
		most = max(most, n)
	}
	t.Logf("at most %d writes of each of %d statuses", most, len(writes))
	if most != 1 || len(writes) != count {
		t.Errorf("got at most %d writes of each of %d statuses, want 1 of %d: %v", most, len(writes), count, writes)
	}
	c.wantNoWrites(t, c.rest(t))
}
