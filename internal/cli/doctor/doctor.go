// Package doctor finds faults of the webhook configurations of a cluster, those of other
// operators included. It takes the state of the cluster as values, and needs no client.
package doctor

import (
	"crypto/x509"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Dump is the state of a cluster. A nil list is unknown, and an empty one has no objects:
// a check that needs an unknown list finds nothing.
type Dump struct {
	// Version is the version of the API servers; nil means unknown.
	Version *version.Version
	// Resources are the resources that the API servers serve, with subresources. Nil
	// means unknown, also for one group version.
	Resources map[schema.GroupVersion][]metav1.APIResource

	Validating                []admissionregistrationv1.ValidatingWebhookConfiguration
	Mutating                  []admissionregistrationv1.MutatingWebhookConfiguration
	Services                  []corev1.Service
	EndpointSlices            []discoveryv1.EndpointSlice
	Namespaces                []corev1.Namespace
	Deployments               []appsv1.Deployment
	StatefulSets              []appsv1.StatefulSet
	DaemonSets                []appsv1.DaemonSet
	Leases                    []coordinationv1.Lease
	CustomResourceDefinitions []apiextensionsv1.CustomResourceDefinition
	Policies                  []v1alpha1.WebhookPolicy

	// Handshakes are the results of TLS handshakes with the services of webhooks.
	// Nothing is known about a missing one.
	Handshakes map[Target]Handshake
}

// Target is a port of a Service that webhooks call.
type Target struct {
	Namespace, Name string
	Port            int32
}

// Handshake is the result of a TLS handshake with a Pod behind a Target.
type Handshake struct {
	// Pod is the Pod that answered, or should have.
	Pod string
	// Chain are the certificates that it sent; the first is its own.
	Chain []*x509.Certificate
	// Err says why there is no chain.
	Err error
}

// Check returns the faults of a cluster at a time, the most severe first. It does not
// change the dump.
func Check(d *Dump, now time.Time) []Finding {
	c := newChecker(d, now)
	for _, w := range c.webhooks {
		for _, check := range c.perWebhook() {
			check(w)
		}
	}
	c.loopbacks()
	c.bundles()
	c.order()
	c.timeouts()
	c.cycles()
	c.managers()
	c.ostiary()
	c.severalCalls()
	slices.SortStableFunc(c.findings, compareFindings)
	return c.findings
}

func (c *checker) perWebhook() []func(*webhook) {
	return []func(*webhook){
		c.bundle, c.service, c.handshake, c.replicas, c.blocks,
		c.timeout, c.sideEffects, c.versions, c.virtual, c.excluded, c.unserved,
	}
}

// checker has what the checks share.
type checker struct {
	*Dump
	now      time.Time
	webhooks []*webhook // in the order in which API servers call mutating ones
	match    *matcher
	findings []Finding
}

func newChecker(d *Dump, now time.Time) *checker {
	return &checker{Dump: d, now: now, webhooks: webhooksOf(d), match: newMatcher(d.Namespaces)}
}

// atLeast reports whether the API servers are known to have a minor version or a later one.
func (c *checker) atLeast(minor uint) bool {
	return c.Version != nil && c.Version.AtLeast(version.MajorMinor(1, minor))
}
