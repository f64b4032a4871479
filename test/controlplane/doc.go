// Package controlplane starts and stops a real Kubernetes control plane (etcd,
// kube-apiserver, kube-controller-manager) on free loopback ports in a temporary
// directory: for integration tests, benchmarks and the demo alike.
//
// The programs are those that `make kubernetes` builds, or those of
// KUBEBUILDER_ASSETS. It is for development only: etcd does not wait
// for the disk, and the keys are in the temporary directory.
//
// # What is real
//
// RBAC is on; Config is a member of system:masters, use its Impersonate field to
// be somebody else. The controllers run under their own service accounts, so
// admission sees the users that it sees in a cluster. Garbage is collected,
// namespaces end, and every namespace gets its default service account.
//
// # What to know
//
// There are no nodes: a pod stays Pending, and nothing routes to a Service. A
// webhook on the host is reached by clientConfig.url, or by clientConfig.service
// with a Service of type ExternalName whose externalName is localhost (the
// certificate must then hold the service's DNS name).
//
// The garbage collector looks for new kinds every 30 seconds. It notices the
// deletion of an object of a CustomResourceDefinition that was created later than
// that look only after the next one; RestartControllerManager makes it look at once.
//
// The controller manager uses API server 0 only, and rests while that is stopped.
//
// Without a controller manager nobody makes service accounts, so the admission
// plugin that asks for them is off, and namespaces never finish terminating.
//
// Every process dies with the one that started it, however that ends, on Linux;
// elsewhere only Stop ends them.
package controlplane
