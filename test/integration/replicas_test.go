package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/versionskew"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

func (c *cluster) replicaLease(ctx context.Context, m *process) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, c.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: replicas.LeaseName(m.replica)}, lease)
}

// awaitLoaded waits until a replica says that it has loaded a policy as it is.
func (c *cluster) awaitLoaded(t *testing.T, m *process, policy string) {
	t.Helper()
	p, err := c.policy(t.Context(), policy)
	must(t, err)
	await(t).Eventually(func() error {
		lease, err := c.replicaLease(t.Context(), m)
		if err != nil {
			return err
		}
		if got := lease.Annotations["admission.ostiary.dev/loaded-policies"]; !versionskew.Reached(got, p.ResourceVersion) {
			return fmt.Errorf("%s has loaded up to %q, want %s", m.replica, got, p.ResourceVersion)
		}
		return nil
	}).Should(Succeed())
}

// Each replica says in a Lease what it has loaded, and takes it away at the end.
func TestReplicasReportWhatTheyHaveLoaded(t *testing.T) {
	c := install(t)
	first := c.reviewing(t, false) // the broken one shall be stored
	second := c.another(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("reported", namespace), newPolicy("reported-broken", namespace, saying("nonsense")))
	for _, m := range []*process{first, second} {
		c.awaitLoaded(t, m, "reported")
		c.awaitLoaded(t, m, "reported-broken")
	}
	// What changes nothing that is loaded is reported with a renewal.
	c.awaitReady(t, "reported")
	c.awaitLoaded(t, second, "reported")

	before, err := c.replicaLease(t.Context(), second)
	must(t, err)
	if got := *before.Spec.HolderIdentity; got != second.replica || before.Spec.RenewTime == nil || *before.Spec.LeaseDurationSeconds != 45 {
		t.Errorf("the Lease's spec is %+v", before.Spec)
	}
	await(t).Eventually(func() (string, error) {
		lease, err := c.replicaLease(t.Context(), second)
		return lease.ResourceVersion, err
	}).ShouldNot(Equal(before.ResourceVersion), "a Lease is renewed")

	second.terminate(t)
	c.awaitNoLease(t, second)
	if _, err := c.replicaLease(t.Context(), first); err != nil {
		t.Errorf("the other's: %v", err)
	}
}

// A Lease belongs to the Pod of its replica, and goes with it if the replica
// does not take it away.
func TestLeaseGoesWithThePod(t *testing.T) {
	c := install(t)
	c.manager(t)
	pod := newPod(systemNamespace)
	must(t, c.Create(t.Context(), pod))
	t.Setenv("POD_UID", string(pod.UID))
	t.Setenv("POD_NAMESPACE", systemNamespace)
	m := c.startAs(t, pod.Name, cptest.FreeAddress())
	c.explain(t, m)
	t.Cleanup(m.kill)
	m.awaitReady(t)
	lease, err := c.replicaLease(t.Context(), m)
	must(t, err)
	if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != pod.UID {
		t.Fatalf("owners %+v, want the Pod", lease.OwnerReferences)
	}
	m.kill()
	must(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	c.awaitNoLease(t, m)
}

// A replica that cannot renew its Lease is not called any more when the others
// stop waiting for it.
func TestReplicaWithoutLeaseIsNotReady(t *testing.T) {
	c := install(t)
	c.manager(t)
	g := c.gate(t)
	m := c.another(t, "--kubeconfig="+g.kubeconfig)
	open := g.keep(t, "/leases/"+replicas.LeaseName(m.replica), silent)
	unready := func() error {
		code, body, err := m.get(t.Context(), m.health, "/readyz?verbose")
		if err == nil && (code != http.StatusInternalServerError || !strings.Contains(body, "[-]lease failed")) {
			err = fmt.Errorf("%d: %s", code, body)
		}
		return err
	}
	await(t).Eventually(unready).Should(Succeed())
	live, err := c.replicaLease(t.Context(), m)
	must(t, err)
	if live.Spec.RenewTime.Add(replicaDuration(live)).Before(metav1.Now().Time) {
		t.Error("the Lease has run out before the replica became unready")
	}
	open()
	m.awaitReady(t)
}

func replicaDuration(lease *coordinationv1.Lease) time.Duration {
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

func (c *cluster) awaitNoLease(t *testing.T, m *process) {
	t.Helper()
	await(t).Eventually(func() bool {
		_, err := c.replicaLease(t.Context(), m)
		return apierrors.IsNotFound(err)
	}).Should(BeTrue(), "the Lease goes")
}

// newPod is one that every namespace takes.
func newPod(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "ostiary-"},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "manager", Image: "ostiary",
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
