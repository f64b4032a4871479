// Package controlplane starts and stops a real Kubernetes control plane (etcd,
// kube-apiserver, kube-controller-manager) on free loopback ports in a temporary
// directory, for integration tests, benchmarks and the demo.
//
// The programs are those of `make kubernetes` or of KUBEBUILDER_ASSETS. The control plane is
// for development only: etcd does not wait for the disk, and the keys are in the temporary
// directory.
//
// # Like a cluster
//
// RBAC is on. The user of Config is in the group system:masters; set its Impersonate field to
// use another one. The controllers use their own service accounts, so admission gets the same
// users as in a cluster. Garbage collection and the deletion of namespaces work, and every
// namespace gets its default service account.
//
// # Differences from a cluster
//
// There are no nodes: a Pod stays Pending, and nothing routes to a Service. Register a webhook
// on the host with clientConfig.url, or with clientConfig.service and a Service of type
// ExternalName with the externalName localhost. The certificate must then have the DNS name of
// the Service.
//
// The garbage collector discovers new kinds every 30 seconds. It processes the deletion of an
// object of a newer CustomResourceDefinition after the next discovery.
// RestartControllerManager triggers the discovery.
//
// The controller manager uses API server 0 only, and does nothing while that is stopped.
//
// Without a controller manager no service accounts are created, so the admission plugin that
// requires them is off, and namespaces stay terminating.
//
// On Linux, every process is killed when its parent exits. On other systems only Stop ends
// them.
package controlplane
