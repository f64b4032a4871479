package conversion

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NativeNotes are what a native policy and its bindings have, and a WebhookPolicy has not.
type NativeNotes struct {
	// Name of the policy, if it is another one.
	Name string `json:"name,omitempty"`
	// Bindings are notes about bindings by their names in the WebhookPolicy.
	Bindings map[string]NativeBinding `json:"bindings,omitempty"`
}

// NativeBinding is what a native binding has besides.
type NativeBinding struct {
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IsEmpty reports whether there is nothing to note.
func (b *NativeBinding) IsEmpty() bool {
	return b.Name == "" && len(b.Labels) == 0 && len(b.Annotations) == 0
}

// Write writes the notes to an annotation of the policy, if there are any.
func (n *NativeNotes) Write(o *Output) error {
	if n.Name == "" && len(n.Bindings) == 0 {
		return nil
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encoding the annotation %s: %w", AnnotationNative, err)
	}
	p := o.Policy()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, AnnotationNative, string(text))
	return nil
}

// ReadNativeNotes returns the notes of a policy. A policy without the annotation has empty
// ones.
func ReadNativeNotes(m *metav1.ObjectMeta) (*NativeNotes, error) {
	n := &NativeNotes{}
	text, ok := m.Annotations[AnnotationNative]
	if !ok {
		return n, nil
	}
	if err := json.Unmarshal([]byte(text), n); err != nil {
		return nil, fmt.Errorf("decoding the annotation %s: %w", AnnotationNative, err)
	}
	return n, nil
}
