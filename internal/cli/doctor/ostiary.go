package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LeaderLease is the name of the Lease of Ostiary's leader, in its namespace.
	LeaderLease   = "ostiary-leader"
	replicaPrefix = "ostiary-replica-"

	conditionReady = "Ready"
)

// ostiary checks Ostiary itself, if it is installed.
func (c *checker) ostiary() {
	for i := range c.Policies {
		c.policy(i)
	}
	leader := slices.IndexFunc(c.Leases, func(l coordinationv1.Lease) bool { return l.Name == LeaderLease })
	if leader < 0 {
		if c.Leases != nil && len(c.Policies) > 0 {
			c.report(Error, "ostiary-no-leader", Object{Kind: "Lease", Name: LeaderLease}, "", "no replica of Ostiary has ever led: policies are not registered", "install Ostiary, or check the logs of its Pods")
		}
		return
	}
	lease := &c.Leases[leader]
	if !c.held(lease) {
		c.report(Error, "ostiary-no-leader", Object{Kind: "Lease", Namespace: lease.Namespace, Name: lease.Name}, "spec.renewTime",
			"no replica of Ostiary leads: configurations, certificates and statuses are not updated", "check that its Pods run and reach the API server")
	}
	c.replicasOfOstiary(lease.Namespace)
}

// policy reports a policy that API servers do not enforce.
func (c *checker) policy(i int) {
	p := &c.Policies[i]
	o := Object{Kind: "WebhookPolicy", Name: p.Name}
	ready := meta.FindStatusCondition(p.Status.Conditions, conditionReady)
	switch {
	case ready == nil:
		c.report(Warning, "policy-not-effective", o, "status.conditions", "the policy is not enforced: no replica of Ostiary has reported its state", "check that a replica of Ostiary leads")
	case ready.ObservedGeneration < p.Generation:
		c.report(Warning, "policy-not-effective", o, "status.conditions", fmt.Sprintf("generation %d of the policy is not enforced: Ostiary has seen generation %d", p.Generation, ready.ObservedGeneration), "wait some seconds; then check that a replica of Ostiary leads")
	case ready.Status != metav1.ConditionTrue:
		c.report(Warning, "policy-not-effective", o, "status.conditions", fmt.Sprintf("the policy is not enforced on every API server: %s: %s", ready.Reason, ready.Message), "follow the message")
		c.findings[len(c.findings)-1].Link = documents + "troubleshooting.md#" + strings.ToLower(ready.Reason)
	}
}

// held reports whether a Lease has a holder that renews it.
func (c *checker) held(l *coordinationv1.Lease) bool {
	s := &l.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		c.now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

// replicasOfOstiary compares the replicas that renew their Leases with the wanted ones.
func (c *checker) replicasOfOstiary(namespace string) {
	live := 0
	for i := range c.Leases {
		l := &c.Leases[i]
		if l.Namespace == namespace && strings.HasPrefix(l.Name, replicaPrefix) && c.held(l) {
			live++
		}
	}
	for i := range c.Deployments {
		d := &c.Deployments[i]
		if d.Namespace != namespace || d.Labels["app.kubernetes.io/name"] != "ostiary" || d.Spec.Replicas == nil {
			continue
		}
		if want := int(*d.Spec.Replicas); live < want {
			c.report(Warning, "ostiary-replicas", Object{Kind: "Deployment", Namespace: namespace, Name: d.Name}, "spec.replicas",
				fmt.Sprintf("%d of %d replicas of Ostiary renew their Lease", live, want), "check the Pods that are not ready, and their logs")
		}
	}
}
