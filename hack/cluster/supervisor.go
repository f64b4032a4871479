//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/test/controlplane"
)

const nodeName = "ostiary-node"

// supervisor runs a control plane and the programs of a node.
type supervisor struct {
	cluster
	address      string // of the node
	controlPlane *controlplane.ControlPlane
	programs     map[string]controlplane.Program
	running      map[string]*controlplane.Running
}

// supervise runs the cluster inside the namespaces, until it is killed.
func (c cluster) supervise(ctx context.Context, number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("subnet %q: %w", number, err)
	}
	if err := c.setUpNamespaces(ctx, subnet{n}); err != nil {
		return err
	}
	k := &supervisor{cluster: c, address: subnet{n}.node(), running: map[string]*controlplane.Running{}}
	if err := k.startControlPlane(ctx); err != nil {
		return err
	}
	if err := k.startNode(ctx); err != nil {
		return err
	}
	if err := errors.Join(k.restoreSettings(), k.publish()); err != nil {
		return err
	}
	return k.serve(ctx)
}

func (k *supervisor) startControlPlane(ctx context.Context) (err error) {
	if err := os.Mkdir(k.file("control-plane"), 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	k.controlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: k.file("control-plane"), AdvertiseAddress: k.address, Audit: true, Log: os.Stdout,
	})
	return err
}

func (k *supervisor) startNode(ctx context.Context) error {
	if err := k.describe(); err != nil {
		return err
	}
	for _, name := range []string{containerd, "kube-scheduler", kubelet, "kube-proxy"} { // kube-proxy last: it needs the Node
		if err := k.run(ctx, name); err != nil {
			return err
		}
	}
	return k.awaitNode(ctx)
}

// run starts a program.
func (k *supervisor) run(ctx context.Context, name string) (err error) {
	k.running[name], err = k.controlPlane.Run(ctx, k.programs[name])
	return err
}

func (k *supervisor) awaitNode(ctx context.Context) error {
	start := time.Now()
	client, err := kubernetes.NewForConfig(k.controlPlane.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = nodeReady(ctx, client)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the node: %w (last seen: %w)", err, last)
	}
	fmt.Printf("node ready after %s\n", time.Since(start).Round(100*time.Millisecond))
	return nil
}

func nodeReady(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node has the taint %s", node.Spec.Taints[0].ToString())
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not ready: %s", condition.Message)
		}
	}
	return nil
}

// publish writes the kubeconfig, and then the file that marks the cluster as ready.
func (k *supervisor) publish() error {
	if err := k.controlPlane.WriteKubeconfig(k.file(kubeconfigFile), "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	return errors.Join(
		os.Symlink(k.controlPlane.AuditLog(0), k.file(auditFile)),
		os.Symlink(filepath.Dir(k.controlPlane.LogFile(kubelet)), k.file("logs")),
		os.WriteFile(k.file(readyFile), nil, 0o600),
	)
}
