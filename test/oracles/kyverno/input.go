package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// input are the objects of a question.
type input struct {
	classic       []kyvernov1.PolicyInterface
	exceptions    []*kyvernov2.PolicyException
	validating    []policiesv1beta1.ValidatingPolicyLike
	mutating      []policiesv1beta1.MutatingPolicyLike
	celExceptions []*policiesv1beta1.PolicyException
	configMaps    []*corev1.ConfigMap
	namespaces    []*corev1.Namespace
	global        []*kyvernov2.GlobalContextEntry
	api           apiServer
}

func readInput(objects []json.RawMessage) (*input, error) {
	in := &input{}
	in.api.namespace = in.namespace
	for _, raw := range objects {
		var m metav1.TypeMeta
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("reading an object: %w", err)
		}
		if err := errors.Join(in.add(m.GroupVersionKind(), raw), in.addStored(raw)); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", m.Kind, err)
		}
	}
	return in, nil
}

func (in *input) add(kind schema.GroupVersionKind, raw []byte) error {
	switch kind.Group + "/" + kind.Kind {
	case "kyverno.io/ClusterPolicy":
		return read(raw, func(p *kyvernov1.ClusterPolicy) { in.classic = append(in.classic, p) })
	case "kyverno.io/Policy":
		return read(raw, func(p *kyvernov1.Policy) { in.classic = append(in.classic, p) })
	case "kyverno.io/PolicyException":
		return read(raw, func(p *kyvernov2.PolicyException) { in.exceptions = append(in.exceptions, p) })
	case "kyverno.io/GlobalContextEntry":
		return read(raw, func(e *kyvernov2.GlobalContextEntry) { in.global = append(in.global, e) })
	case "policies.kyverno.io/ValidatingPolicy":
		return read(raw, func(p *policiesv1beta1.ValidatingPolicy) { in.validating = append(in.validating, p) })
	case "policies.kyverno.io/NamespacedValidatingPolicy":
		return read(
			raw,
			func(p *policiesv1beta1.NamespacedValidatingPolicy) { in.validating = append(in.validating, p) },
		)
	case "policies.kyverno.io/MutatingPolicy":
		return read(raw, func(p *policiesv1beta1.MutatingPolicy) { in.mutating = append(in.mutating, p) })
	case "policies.kyverno.io/NamespacedMutatingPolicy":
		return read(raw, func(p *policiesv1beta1.NamespacedMutatingPolicy) { in.mutating = append(in.mutating, p) })
	case "policies.kyverno.io/PolicyException":
		return read(raw, func(p *policiesv1beta1.PolicyException) { in.celExceptions = append(in.celExceptions, p) })
	case "/ConfigMap":
		return read(raw, func(c *corev1.ConfigMap) { in.configMaps = append(in.configMaps, c) })
	case "/Namespace":
		return read(raw, func(n *corev1.Namespace) { in.namespaces = append(in.namespaces, n) })
	}
	return nil
}

// addStored makes an object one of those that the API server returns. Policies are none of them.
func (in *input) addStored(raw []byte) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, o); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	if !strings.HasSuffix(o.GroupVersionKind().Group, "kyverno.io") {
		in.api.objects = append(in.api.objects, o)
	}
	return nil
}

// read decodes an object, and passes it on.
func read[T any](raw []byte, add func(*T)) error {
	var object T
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	add(&object)
	return nil
}

// namespace returns a Namespace. One that is not in the question has only the label with its
// name; as in Ostiary's evaluation of files, every namespace exists.
func (in *input) namespace(name string) *corev1.Namespace {
	for _, n := range in.namespaces {
		if n.Name == name {
			n = n.DeepCopy()
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			n.Labels[corev1.LabelMetadataName] = name
			return n
		}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelMetadataName: name},
	}}
}

// Get implements the resolver of ConfigMaps.
func (in *input) Get(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	i := slices.IndexFunc(
		in.configMaps,
		func(c *corev1.ConfigMap) bool { return c.Namespace == namespace && c.Name == name },
	)
	if i < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return in.configMaps[i].DeepCopy(), nil
}

// List implements exceptions.Lister.
func (in *input) List(labels.Selector) ([]*kyvernov2.PolicyException, error) {
	return in.exceptions, nil
}
