package main

import (
	"encoding/json"
	"fmt"
	"slices"

	templatesv1 "github.com/open-policy-agent/frameworks/constraint/pkg/apis/templates/v1"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	mutations "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/mutators"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// input are the objects of a question.
type input struct {
	// templates are in the form of the question, as the key of a cache.
	templates   map[string]*templates.ConstraintTemplate
	constraints []*unstructured.Unstructured
	mutators    []types.Mutator
	namespaces  []*corev1.Namespace
	// stored are the objects of Gatekeeper's inventory.
	stored []*unstructured.Unstructured
	// deletes reports that a template asks for DELETE. Only then the webhook is called for it, because
	// the chart of Gatekeeper registers it for CREATE and UPDATE by default.
	deletes bool
}

func readInput(objects []json.RawMessage) (*input, error) {
	in := &input{templates: map[string]*templates.ConstraintTemplate{}}
	for _, raw := range objects {
		var m metav1.TypeMeta
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, fmt.Errorf("reading an object: %w", err)
		}
		if err := in.add(m, raw); err != nil {
			return nil, fmt.Errorf("reading a %s: %w", m.Kind, err)
		}
	}
	return in, nil
}

func (in *input) add(m metav1.TypeMeta, raw []byte) error {
	switch group := m.GroupVersionKind().Group; {
	case group == "templates.gatekeeper.sh":
		return in.addTemplate(raw)
	case group == "constraints.gatekeeper.sh":
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		in.constraints = append(in.constraints, u)
	case group == "mutations.gatekeeper.sh":
		mutator, err := newMutator(m.Kind, raw)
		if err != nil {
			return err
		}
		in.mutators = append(in.mutators, mutator)
	case group == "" && m.Kind == "Namespace":
		n := &corev1.Namespace{}
		if err := json.Unmarshal(raw, n); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		in.namespaces = append(in.namespaces, n)
	default:
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			return fmt.Errorf("decoding it: %w", err)
		}
		in.stored = append(in.stored, u)
	}
	return nil
}

func (in *input) addTemplate(raw []byte) error {
	t := &templatesv1.ConstraintTemplate{}
	if err := json.Unmarshal(raw, t); err != nil {
		return fmt.Errorf("decoding it: %w", err)
	}
	versionless, err := t.ToVersionless()
	if err != nil {
		return fmt.Errorf("converting it: %w", err)
	}
	in.templates[string(raw)] = versionless
	for _, target := range versionless.Spec.Targets {
		in.deletes = in.deletes || slices.Contains(target.Operations, admissionregistrationv1.Delete) ||
			slices.Contains(target.Operations, admissionregistrationv1.OperationAll)
	}
	return nil
}

// newMutator returns a mutator of the kinds that Gatekeeper has.
func newMutator(kind string, raw []byte) (types.Mutator, error) {
	switch kind {
	case "Assign":
		return readMutator(raw, func(a *mutations.Assign) (types.Mutator, error) { return mutators.MutatorForAssign(a) })
	case "AssignMetadata":
		return readMutator(
			raw,
			func(a *mutations.AssignMetadata) (types.Mutator, error) { return mutators.MutatorForAssignMetadata(a) },
		)
	case "AssignImage":
		return readMutator(
			raw,
			func(a *mutations.AssignImage) (types.Mutator, error) { return mutators.MutatorForAssignImage(a) },
		)
	case "ModifySet":
		return readMutator(
			raw,
			func(a *mutations.ModifySet) (types.Mutator, error) { return mutators.MutatorForModifySet(a) },
		)
	}
	return nil, fmt.Errorf("the kind %s is not known", kind)
}

func readMutator[T any](raw []byte, mutator func(*T) (types.Mutator, error)) (types.Mutator, error) {
	var object T
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("decoding it: %w", err)
	}
	return mutator(&object)
}

// namespace returns a Namespace. One that is not in the question has only the label with its
// name; as in Ostiary's evaluation of files, every namespace exists.
func (in *input) namespace(name string) *corev1.Namespace {
	out := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, n := range in.namespaces {
		if n.Name == name {
			out = n.DeepCopy()
		}
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[corev1.LabelMetadataName] = name
	return out
}
