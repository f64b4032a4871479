// Package e2e installs Ostiary on a cluster with a real node, with the commands of the
// documents: kustomize and Helm, samples, upgrades and lost replicas under load, and
// uninstalling in every order. Its tests have the build tag e2e.
//
// `make e2e` starts a node on this machine and runs the tests on it. On another cluster
// (KUBECONFIG) the image must exist there:
//
//	make e2e-here IMAGE=registry.example.com/ostiary:dev
//
// The short form, E2EFLAGS=-short, leaves out the upgrades of the chart under load
// and the restarts of the kubelet and of containerd.
//
// Ostiary must not be installed: the tests install and remove it. They skip the steps that
// need the audit log of the API server or a restart of the kubelet if these are not available,
// and report it.
package e2e
