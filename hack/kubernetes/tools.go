//go:build tools

// Package kubernetes pins the commands that hack/kubernetes builds: importing
// them here keeps their modules in go.mod and go.sum.
package kubernetes

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
