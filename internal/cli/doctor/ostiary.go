package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LeaderLease is the name of the Lease of Ostiary's leader, in its namespace.
	LeaderLease   = "ostiary-leader"
	replicaPrefix = "ostiary-replica-"

	conditionReady = "Ready"
)

// Ostiary is the state of an installation.
type Ostiary struct {
	// Namespace is empty if no replica has ever led, and no Deployment runs without leader election.
	Namespace string
	// Leader is the Pod that holds the Lease; empty if it is not renewed.
	Leader string
	// WithoutElection reports that the Deployment runs without leader election: its only replica writes without the
	// Lease of a leader.
	WithoutElection bool
	// Pods are the replicas that renew their Leases, sorted.
	Pods []string
	// Deployment is the name of the Deployment, and Replicas the number that it wants.
	Deployment string
	Replicas   int
}

// Ostiary returns the state of Ostiary at a time.
func (d *Dump) Ostiary(now time.Time) Ostiary {
	leader := slices.IndexFunc(d.Leases, func(l coordinationv1.Lease) bool { return l.Name == LeaderLease })
	single := slices.IndexFunc(d.Deployments, func(w appsv1.Deployment) bool { return runsWithoutElection(&w) })
	out := Ostiary{WithoutElection: single >= 0}
	switch {
	case single >= 0:
		out.Namespace = d.Deployments[single].Namespace
	case leader < 0:
		return out
	default:
		out.Namespace = d.Leases[leader].Namespace
		if held(&d.Leases[leader], now) {
			out.Leader = podOf(*d.Leases[leader].Spec.HolderIdentity)
		}
	}
	for i := range d.Leases {
		if l := &d.Leases[i]; l.Namespace == out.Namespace && held(l, now) {
			if pod, ok := strings.CutPrefix(l.Name, replicaPrefix); ok {
				out.Pods = append(out.Pods, pod)
			}
		}
	}
	slices.Sort(out.Pods)
	for i := range d.Deployments {
		w := &d.Deployments[i]
		if w.Namespace == out.Namespace && w.Labels["app.kubernetes.io/name"] == "ostiary" && w.Spec.Replicas != nil {
			out.Deployment, out.Replicas = w.Name, int(*w.Spec.Replicas)
		}
	}
	return out
}

// podOf returns the Pod of a leader, whose identity is <Pod>_<UUID>.
func podOf(identity string) string {
	if i := strings.LastIndexByte(identity, '_'); i >= 0 {
		return identity[:i]
	}
	return identity
}

// held reports whether a Lease has a holder that renews it.
func held(l *coordinationv1.Lease, now time.Time) bool {
	s := &l.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

// ostiary checks Ostiary itself, if it is installed.
func (c *checker) ostiary() {
	for i := range c.Policies {
		c.policy(i)
	}
	o := c.Ostiary(c.now)
	switch {
	case o.WithoutElection:
	case o.Namespace == "" && c.Leases != nil && len(c.Policies) > 0:
		c.report(Error, "ostiary-no-leader", Object{Kind: "Lease", Name: LeaderLease}, "", "no replica of Ostiary has ever led: policies are not registered", "install Ostiary, or check the logs of its Pods")
	case o.Namespace != "" && o.Leader == "":
		c.report(Error, "ostiary-no-leader", Object{Kind: "Lease", Namespace: o.Namespace, Name: LeaderLease}, "spec.renewTime",
			"no replica of Ostiary leads: configurations, certificates and statuses are not updated", "check that its Pods run and reach the API server")
	}
	if len(o.Pods) < o.Replicas {
		c.report(Warning, "ostiary-replicas", Object{Kind: "Deployment", Namespace: o.Namespace, Name: o.Deployment}, "spec.replicas",
			fmt.Sprintf("%d of %d replicas of Ostiary renew their Lease", len(o.Pods), o.Replicas), "check the Pods that are not ready, and their logs")
	}
}

// runsWithoutElection reports whether a Deployment is one of Ostiary without leader election.
func runsWithoutElection(d *appsv1.Deployment) bool {
	return d.Labels["app.kubernetes.io/name"] == "ostiary" &&
		slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
			return slices.Contains(container.Args, "--leader-elect=false")
		})
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
		c.findings[len(c.findings)-1].Link = documents + "operations/troubleshooting.md#" + strings.ToLower(ready.Reason)
	}
}
