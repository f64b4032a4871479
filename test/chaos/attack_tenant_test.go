package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	hostilePlace, hostileUser     = "chaos-hostile", "mallory"
	neighbourPlace, neighbourUser = "chaos-neighbour", "alice"
	tenantPrefix                  = "tenant-"
	// slowdown is the most by which the attack may raise the p99 of the neighbour over
	// that under the same attack with a webhook that allows everything: the processors
	// are shared with attackers and API servers, so that only the ratio says something.
	slowdown = 2
	// objectsOfPhase are the large ConfigMaps of one phase, of 1 MB each. Those of the
	// four phases are more than twice the memory of a replica. etcd takes 2 GB at most.
	// The two phases of the short form have half as many, and replicas less memory.
	objectsOfPhase       = 320
	memoryWithHalfOfThem = 320 << 20
)

// attackTenant has a tenant who may edit objects in one namespace attack the replicas
// through the API servers, and measures what becomes of the requests of another: none
// may pass unevaluated, none may be denied wrongly, and their p99 may be at most twice
// that under the same attack with a webhook that allows everything in the place of
// Ostiary. Phases with either take turns.
func attackTenant(r *run) {
	r.limits.quiet = true
	must(r.T, r.kubectl(r.Context(), "apply", "-f", "testdata/attack/tenants.yaml"))
	defer r.endTenantAttack()
	r.limitReplicas()
	r.applyTenantPolicies()
	stand := r.standIn()
	defer func() {
		must(r.T, stand.unregister())
		stand.stop()
	}()
	over := time.Duration(r.size.of(20, 390)) * time.Second
	var with, without []time.Duration
	objects := r.size.of(objectsOfPhase/2, objectsOfPhase)
	// Each phase leaves its ConfigMaps to the next. The order is symmetric, so that both have the same number on average,
	// and Ostiary reads all of them in the last one. The short form has the last two phases.
	order := []bool{true, false, false, true}[r.size.of(2, 0):]
	for phase, enforced := range order {
		t := tenancy{From: phase * objects, To: (phase + 1) * objects, Enforced: enforced}
		r.removeTenantPolicies()
		if enforced {
			r.applyTenantPolicies()
			with = append(with, r.tenantPhase(t, over).took...)
			continue
		}
		must(r.T, stand.register())
		without = append(without, r.tenantPhase(t, over).took...)
		must(r.T, stand.unregister())
	}
	during, alone := percentile(with, 99), percentile(without, 99)
	r.note("p99 of the other tenant %s, and %s with a webhook that allows everything", during.Round(time.Millisecond),
		alone.Round(time.Millisecond))
	r.within("the p99 of the other tenant", during, slowdown*alone)
	r.weighReplicas(r.size.of(memoryWithHalfOfThem, memoryLimit))
}

// tenantPhase has the hostile tenant attack for some time, and returns what its
// neighbour got meanwhile.
func (r *run) tenantPhase(t tenancy, over time.Duration) *neighbour {
	for i := range apiServers {
		t.Kubeconfigs = append(t.Kubeconfigs, r.plane.Kubeconfig(i))
	}
	t.Small = r.size.of(1_500, 9_000)
	a := attack{Kind: "tenant", Count: r.size.of(3, 10), Lasts: over, Over: over + timeout, Tenancy: t}
	other, err := newNeighbour(t.Kubeconfigs, t.Enforced)
	must(r.T, err)
	wait := r.startAttack(a)
	other.sendFor(r.Context(), over)
	report, _ := wait()
	r.weighCounts(a, report)
	if made := report.Kinds["large"]; made < t.To-t.From {
		r.problem("the API servers took only %d of %d ConfigMaps of 1 MB", made, t.To-t.From)
	}
	r.weighNeighbour(other)
	return other
}

func (r *run) weighNeighbour(n *neighbour) {
	called := "a webhook that allows everything"
	if n.enforced {
		called = "Ostiary"
	}
	r.note("with %s: %d requests of the other tenant, %d denied, %d not answered", called, len(n.took), n.denied, n.unanswered)
	if len(n.passed) > 0 {
		r.problem("%d bad requests of the other tenant passed", len(n.passed))
		r.evidence = append(r.evidence, first(n.passed, 5)...)
	}
	if len(n.deniedWrongly) > 0 {
		r.problem("%d good requests of the other tenant were denied", len(n.deniedWrongly))
		r.evidence = append(r.evidence, first(n.deniedWrongly, 5)...)
	}
	// A phase without Ostiary measures API servers alone: requests that they do not answer count with the time that they took.
	if n.enforced && n.unanswered > len(n.took)/100 {
		r.problem("%d of %d requests of the other tenant were not answered", n.unanswered, len(n.took))
		r.evidence = append(r.evidence, first(n.errors, 5)...)
	}
}

// applyTenantPolicies applies the policies, and waits until both API servers deny what
// they deny. If a replica has ended that is not waited for.
func (r *run) applyTenantPolicies() {
	must(r.T, r.kubectl(r.Context(), "apply", "-f", "testdata/attack/tenant-policies.yaml"))
	var kubeconfigs []string
	for i := range apiServers {
		kubeconfigs = append(kubeconfigs, r.plane.Kubeconfig(i))
	}
	other, err := newNeighbour(kubeconfigs, true)
	must(r.T, err)
	await(r.T, "the policies that a tenant attacks", func() error {
		if r.anyEnded() {
			return nil
		}
		return errors.Join(r.closedForTenants(), other.allDenied(r.Context()))
	})
}

func (r *run) anyEnded() bool { return slices.ContainsFunc(r.all(), (*member).ended) }

// closedForTenants is an error while a policy with failurePolicy Fail has yet to fail
// closed.
func (r *run) closedForTenants() error {
	configs, err := r.tenantConfigurations()
	if err != nil {
		return err
	}
	closed := 0
	for _, c := range configs {
		for _, hook := range registration.Webhooks(c) {
			if *hook.FailurePolicy == admissionregistrationv1.Fail {
				closed++
			}
		}
	}
	if closed == 0 {
		return errors.New("no webhook of these policies fails closed")
	}
	return nil
}

// tenantConfigurations are what Ostiary has registered for the attacked policies.
func (r *run) tenantConfigurations() ([]registration.Configuration, error) {
	configs, err := r.configs(r.Context())
	return slices.DeleteFunc(configs, func(c registration.Configuration) bool {
		return !strings.Contains(c.GetAnnotations()[registration.AnnotationMembers], tenantPrefix)
	}), err
}

func (r *run) removeTenantPolicies() {
	r.deletePolicies(tenantPrefix)
	await(r.T, "the configurations of the policies to be deleted", func() error {
		configs, err := r.tenantConfigurations()
		if err == nil && len(configs) > 0 && !r.anyEnded() {
			err = fmt.Errorf("%d remain", len(configs))
		}
		return err
	})
}

func (r *run) deletePolicies(prefix string) {
	var list v1alpha1.WebhookPolicyList
	must(r.T, r.admin().List(r.Context(), &list))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix) {
			must(r.T, client.IgnoreNotFound(r.admin().Delete(r.Context(), &list.Items[i])))
		}
	}
}

// endTenantAttack removes the policies and the objects. The namespaces stay.
func (r *run) endTenantAttack() {
	r.deletePolicies(tenantPrefix)
	await(r.T, "the objects of the tenant to be deleted", func() error {
		for {
			left, err := r.deleteConfigMaps(hostilePlace)
			if err != nil || !left {
				return err
			}
		}
	})
}

// deleteConfigMaps deletes some ConfigMaps of a namespace, and reports whether it found any. One request that
// deletes all of them would read gigabytes, and API servers end a request after a minute.
func (r *run) deleteConfigMaps(namespace string) (found bool, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.admin().List(r.Context(), list, client.InNamespace(namespace), client.Limit(100)); err != nil {
		return false, err
	}
	for _, item := range list.Items {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: item.Name}}
		if err := client.IgnoreNotFound(r.admin().Delete(r.Context(), o)); err != nil {
			return true, err
		}
	}
	return len(list.Items) > 0, nil
}
