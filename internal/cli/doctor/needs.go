package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/cli/output"
)

const (
	nodeUser  = "system:node:node"
	nodeGroup = "system:nodes"
	// excludesReviews is the first minor version of Kubernetes whose API servers call no
	// webhook for reviews.
	excludesReviews = 37
)

// need is a set of requests without which a webhook that is down cannot start again, or
// the cluster fails.
type need struct {
	check    string
	severity Severity
	requests []request
	// effect is the effect of refusing the requests.
	effect, fix string
}

// blocks finds webhooks that fail closed and match what they or the cluster need.
func (c *checker) blocks(w *webhook) {
	if !w.failsClosed() {
		return
	}
	var needs []need
	if t, ok := w.target(); ok {
		needs = append(needs, c.ownNeeds(t)...)
	}
	for _, n := range append(needs, c.clusterNeeds()...) {
		if blocked := c.blocked(w, n.requests); len(blocked) > 0 {
			c.about(w, n.severity, n.check, "rules", fmt.Sprintf("while the webhook is down, API servers refuse %s: %s", output.Some(blocked), n.effect), n.fix)
		}
	}
}

// blocked returns the requests for which the webhook is called, without duplicates.
func (c *checker) blocked(w *webhook, requests []request) []string {
	var out []string
	for _, r := range requests {
		if text := r.String(); !slices.Contains(out, text) && c.match.calls(w, r) {
			out = append(out, text)
		}
	}
	return out
}

// ownNeeds are what the Pods of a webhook need to start and to work.
func (c *checker) ownNeeds(t Target) []need {
	exclude := fmt.Sprintf("exclude the namespace %q with namespaceSelector: %s NotIn [%s]", t.Namespace, corev1.LabelMetadataName, t.Namespace)
	return []need{{
		check: "blocks-own-pods", severity: Error, requests: c.podRequests(t),
		effect: "its own Pods cannot start again", fix: exclude,
	}, {
		check: "blocks-own-endpoints", severity: Error, requests: endpointRequests(t.Namespace, t.Name),
		effect: "its own Pods are not added to its Service", fix: exclude,
	}, {
		check: "blocks-own-namespace", severity: Warning, requests: objectRequests(t.Namespace),
		effect: "its operator cannot renew certificates, elect a leader or be corrected", fix: exclude,
	}}
}

func (c *checker) podRequests(t Target) []request {
	starter := func(controller string, labels map[string]string) request {
		return request{
			version: "v1", resource: "pods", kind: "Pod", namespace: t.Namespace, name: t.Name + "-x", operation: admission.Create,
			user: serviceAccount(controller), groups: serviceAccounts(metav1.NamespaceSystem), labels: labels,
		}
	}
	var out []request
	for _, w := range c.workloads(t) {
		out = append(out, starter(controllerOf(w.object.Kind), w.labels))
	}
	if len(out) == 0 {
		out = append(out, starter("replicaset-controller", nil))
	}
	pod := out[0]
	binding, status := pod, pod
	binding.subresource, binding.kind, binding.user, binding.groups = "binding", "Binding", "system:kube-scheduler", nil
	status.subresource, status.operation, status.user, status.groups = "status", admission.Update, nodeUser, []string{nodeGroup}
	return append(out, binding, status)
}

func controllerOf(kind string) string {
	switch kind {
	case "StatefulSet":
		return "statefulset-controller"
	case "DaemonSet":
		return "daemon-set-controller"
	}
	return "replicaset-controller"
}

func serviceAccount(name string) string { return "system:serviceaccount:kube-system:" + name }

func serviceAccounts(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, authenticated}
}

// authenticated is the group of all users that are not anonymous.
const authenticated = "system:authenticated"

func endpointRequests(namespace, service string) []request {
	update := request{
		group: "discovery.k8s.io", version: "v1", resource: "endpointslices", kind: "EndpointSlice", namespace: namespace, name: service + "-x",
		operation: admission.Update, user: serviceAccount("endpointslice-controller"), groups: serviceAccounts(metav1.NamespaceSystem),
		labels: map[string]string{"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
	}
	create := update
	create.operation = admission.Create
	return []request{create, update}
}

// objectRequests are requests of an operator in its own namespace, and of those who repair it.
func objectRequests(namespace string) []request {
	var out []request
	for _, r := range []request{
		{version: "v1", resource: "secrets", kind: "Secret"},
		{version: "v1", resource: "configmaps", kind: "ConfigMap"},
		{group: "coordination.k8s.io", version: "v1", resource: "leases", kind: "Lease"},
		{group: "apps", version: "v1", resource: "deployments", kind: "Deployment"},
		{group: "apps", version: "v1", resource: "replicasets", kind: "ReplicaSet"},
	} {
		r.namespace, r.name, r.operation = namespace, "x", admission.Update
		r.user, r.groups = "system:serviceaccount:"+namespace+":default", serviceAccounts(namespace)
		out = append(out, r)
	}
	return out
}

// clusterNeeds are what nodes and the control plane need.
func (c *checker) clusterNeeds() []need {
	needs := []need{{
		check: "blocks-leases", severity: Error, requests: leaseRequests(),
		effect: "nodes are marked as lost, and the scheduler and controllers stop", fix: "remove leases of coordination.k8s.io from the rules, or add the match condition request.resource.resource != 'leases'",
	}, {
		check: "blocks-nodes", severity: Error, requests: nodeRequests(),
		effect: "nodes cannot join or report that they are ready", fix: "remove nodes and certificatesigningrequests from the rules, or exclude the group system:nodes with a match condition",
	}, {
		check: "blocks-networking", severity: Error, requests: append(endpointRequests(metav1.NamespaceSystem, "kube-dns"), endpointRequests(metav1.NamespaceDefault, "kubernetes")...),
		effect: "Services keep addresses of Pods that are gone", fix: "remove endpointslices and endpoints from the rules",
	}, {
		check: "blocks-kube-system", severity: Error, requests: systemPods(),
		effect: "network plugins, kube-proxy and DNS cannot start on a node", fix: "exclude the namespace kube-system with namespaceSelector: " + corev1.LabelMetadataName + " NotIn [kube-system]",
	}}
	if c.atLeast(excludesReviews) {
		return needs
	}
	return append(needs, need{
		check: "blocks-authorization", severity: Error, requests: reviewRequests(),
		effect: "kubelets and other API servers turn callers away", fix: "name resources in the rules instead of \"*\", or exclude the groups authentication.k8s.io and authorization.k8s.io with a match condition",
	})
}

func leaseRequests() []request {
	lease := request{
		group: "coordination.k8s.io", version: "v1", resource: "leases", kind: "Lease", namespace: corev1.NamespaceNodeLease, name: "node",
		operation: admission.Update, user: nodeUser, groups: []string{nodeGroup, authenticated},
	}
	leader := lease
	leader.namespace, leader.name, leader.user, leader.groups = metav1.NamespaceSystem, "kube-controller-manager", "system:kube-controller-manager", []string{authenticated}
	return []request{lease, leader}
}

func nodeRequests() []request {
	node := request{version: "v1", resource: "nodes", kind: "Node", name: "node", operation: admission.Create, user: nodeUser, groups: []string{nodeGroup, authenticated}}
	status := node
	status.subresource, status.operation = "status", admission.Update
	signing := node
	signing.group, signing.resource, signing.kind = "certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest"
	return []request{node, status, signing}
}

func systemPods() []request {
	return []request{{
		version: "v1", resource: "pods", kind: "Pod", namespace: metav1.NamespaceSystem, name: "kube-proxy-x", operation: admission.Create,
		user: serviceAccount("daemon-set-controller"), groups: serviceAccounts(metav1.NamespaceSystem), labels: map[string]string{"k8s-app": "kube-proxy"},
	}}
}

func reviewRequests() []request {
	token := request{group: "authentication.k8s.io", version: "v1", resource: "tokenreviews", kind: "TokenReview", operation: admission.Create, user: nodeUser, groups: []string{nodeGroup, authenticated}}
	access := token
	access.group, access.resource, access.kind = "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"
	return []request{token, access}
}
