// Package cluster reads the state of a cluster, from the cluster or from files.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/doctor"
)

// fetcher reads the state of a cluster: of namespaced objects only those in the namespaces
// of webhooks.
type fetcher struct {
	client dynamic.Interface
	dump   *doctor.Dump
	read   map[string]bool // namespaces whose workloads have been read
	// skipped is called for what the user may not read. The checks that need it find
	// nothing.
	skipped func(err error)
}

// Fetch returns the state of a cluster. It calls skipped for what the user may not read.
func Fetch(ctx context.Context, config *rest.Config, skipped func(error)) (*doctor.Dump, error) {
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return fetch(ctx, config, skipped, func(f *fetcher) []step {
		return []step{
			func(ctx context.Context) error { return f.server(ctx, server) },
			f.configurations, f.namespaces, f.policies, f.ostiary, f.targets,
		}
	})
}

// FetchOstiary returns the part of Fetch that is about Ostiary and its policies.
func FetchOstiary(ctx context.Context, config *rest.Config, skipped func(error)) (*doctor.Dump, error) {
	return fetch(ctx, config, skipped, func(f *fetcher) []step {
		return []step{f.configurations, f.policies, f.ostiary}
	})
}

// FetchInstallation returns the part of Fetch that is about the replicas of Ostiary.
func FetchInstallation(ctx context.Context, config *rest.Config, skipped func(error)) (*doctor.Dump, error) {
	return fetch(ctx, config, skipped, func(f *fetcher) []step { return []step{f.ostiary} })
}

type step func(context.Context) error

func fetch(ctx context.Context, config *rest.Config, skipped func(error), steps func(*fetcher) []step) (*doctor.Dump, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	f := &fetcher{client: client, dump: &doctor.Dump{}, read: map[string]bool{}, skipped: skipped}
	for _, step := range steps(f) {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return f.dump, nil
}

// server reads the version and the resources of the API server.
func (f *fetcher) server(ctx context.Context, client *discovery.DiscoveryClient) error {
	info, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return fmt.Errorf("reading the version of the API server: %w", err)
	}
	if f.dump.Version, err = version.ParseGeneric(info.GitVersion); err != nil {
		return fmt.Errorf("reading the version of the API server: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	var failed *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &failed) {
		return fmt.Errorf("reading the resources of the API server: %w", err)
	}
	f.dump.Resources = map[schema.GroupVersion][]metav1.APIResource{}
	for _, list := range lists {
		if gv, err := schema.ParseGroupVersion(list.GroupVersion); err == nil {
			f.dump.Resources[gv] = list.APIResources
		}
	}
	if failed != nil {
		for gv := range failed.Groups {
			f.dump.Resources[gv] = nil
		}
	}
	return nil
}

// configurations reads what all checks are about: without it, the doctor fails.
func (f *fetcher) configurations(ctx context.Context) error {
	for resource, kind := range map[string]string{
		"validatingwebhookconfigurations": "ValidatingWebhookConfiguration", "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
	} {
		if err := f.list(ctx, admissionregistrationv1.SchemeGroupVersion, resource, kind, "", metav1.ListOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fetcher) namespaces(ctx context.Context) error {
	return f.optional(f.list(ctx, corev1.SchemeGroupVersion, "namespaces", "Namespace", "", metav1.ListOptions{}))
}

// policies reads Ostiary's policies; there are none if it is not installed.
func (f *fetcher) policies(ctx context.Context) error {
	err := f.list(ctx, v1alpha1.GroupVersion, "webhookpolicies", "WebhookPolicy", "", metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return f.optional(err)
}

// ostiary reads the Leases of all replicas, and what runs in the namespace of Ostiary.
func (f *fetcher) ostiary(ctx context.Context) error {
	namespace, err := f.namespace(ctx)
	if err != nil || namespace == "" {
		return err
	}
	f.dump.Leases = nil
	if err := f.optional(f.list(ctx, coordinationv1.SchemeGroupVersion, "leases", "Lease", namespace, metav1.ListOptions{})); err != nil {
		return err
	}
	return f.workloads(ctx, namespace)
}

// namespace returns the namespace of Ostiary: that of the Lease of its leader, or without leader election, that of its
// Deployment; "" if there is none.
func (f *fetcher) namespace(ctx context.Context) (string, error) {
	leader := metav1.ListOptions{FieldSelector: "metadata.name=" + doctor.LeaderLease}
	err := f.optional(f.list(ctx, coordinationv1.SchemeGroupVersion, "leases", "Lease", "", leader))
	if err != nil || f.dump.Leases == nil || len(f.dump.Leases) > 0 {
		return f.dump.Ostiary(time.Now()).Namespace, err
	}
	before := f.dump.Deployments
	labeled := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=ostiary"}
	err = f.optional(f.list(ctx, appsv1.SchemeGroupVersion, "deployments", "Deployment", "", labeled))
	namespace := f.dump.Ostiary(time.Now()).Namespace
	f.dump.Deployments = before // the others of a namespace are read with it
	return namespace, err
}

// targets reads the Services of webhooks, and what runs behind them.
func (f *fetcher) targets(ctx context.Context) error {
	for _, t := range f.dump.Targets() {
		if err := errors.Join(f.optional(f.service(ctx, t)), f.workloads(ctx, t.Namespace)); err != nil {
			return err
		}
	}
	return nil
}

// workloads reads what runs Pods in a namespace, once.
func (f *fetcher) workloads(ctx context.Context, namespace string) error {
	if f.read[namespace] {
		return nil
	}
	f.read[namespace] = true
	for resource, kind := range map[string]string{"deployments": "Deployment", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet"} {
		if err := f.optional(f.list(ctx, appsv1.SchemeGroupVersion, resource, kind, namespace, metav1.ListOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// service reads a Service and its endpoints. Several targets can be ports of one Service.
func (f *fetcher) service(ctx context.Context, t doctor.Target) error {
	kind := corev1.SchemeGroupVersion.WithKind("Service")
	for i := range f.dump.Services {
		if s := &f.dump.Services[i]; s.Namespace == t.Namespace && s.Name == t.Name {
			return nil
		}
	}
	s, err := f.client.Resource(corev1.SchemeGroupVersion.WithResource("services")).Namespace(t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.dump.Know(kind)
		return nil
	case err != nil:
		return fmt.Errorf("reading Service %s/%s: %w", t.Namespace, t.Name, err)
	}
	if err := f.add(kind, s); err != nil {
		return err
	}
	return f.list(ctx, discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice", t.Namespace, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + t.Name})
}

// list adds all objects of a kind.
func (f *fetcher) list(ctx context.Context, gv schema.GroupVersion, resource, kind, namespace string, o metav1.ListOptions) error {
	client := f.client.Resource(gv.WithResource(resource)).Namespace(namespace)
	all := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err := all.EachListItem(ctx, o, func(o runtime.Object) error {
		item, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("unexpected %T", o)
		}
		return f.add(gv.WithKind(kind), item)
	})
	if err != nil {
		return fmt.Errorf("listing %s: %w", resource, err)
	}
	f.dump.Know(gv.WithKind(kind))
	return nil
}

func (f *fetcher) add(kind schema.GroupVersionKind, o *unstructured.Unstructured) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("reading %s %q: %w", kind.Kind, o.GetName(), err)
	}
	return f.dump.Add(kind, raw)
}

// optional reports what the user may not read, and returns other errors.
func (f *fetcher) optional(err error) error {
	if apierrors.IsForbidden(err) {
		f.skipped(err)
		return nil
	}
	return err
}
