// Package e2e installs Ostiary on a cluster with a real node, as its users do,
// and works it hard: kustomize and Helm, samples, upgrades and lost replicas under
// load, and uninstalling in every order. Its tests have the build tag e2e.
//
// `make e2e` brings up a node on this machine and runs them on it. On another
// cluster (KUBECONFIG) they need the image there, and
//
//	make e2e-here IMAGE=registry.example.com/ostiary:dev
//
// The short form, E2EFLAGS=-short, leaves out the upgrades of the chart under load
// and the restarts of the kubelet and of containerd.
//
// Ostiary must not be installed there: the tests install it, and remove it.
// What they ask of the API server's audit log and of the machine (the restart of
// its kubelet) is left out where these are not at hand, and says so.
package e2e
