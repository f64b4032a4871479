package conversion

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/validation"
)

// Decode decodes the source, and reports whether that is possible. It leaves a source with fields of
// a wrong type out, and one with unknown fields, whose effect is not known.
func (c *Conversion) Decode(into any) bool {
	unknown, err := c.Source.DecodeKnown(into)
	if err == nil && len(unknown) == 0 && c.Source.Metadata.Name == "" {
		err = c.Source.Errorf("metadata.name", "the %s has no name: add it", c.Source.Kind)
	}
	if err != nil {
		c.LeaveOutInvalid(err)
		return false
	}
	for _, field := range unknown {
		c.LeaveOut(
			field,
			fmt.Sprintf(
				"this command does not know the field of %s, so the effect of the object is not known",
				c.Source.Kind,
			),
			"correct or remove it",
		)
	}
	return len(unknown) == 0
}

// LeaveOutInvalid adds a row for a source that has an error. The other objects of the input are
// converted.
func (c *Conversion) LeaveOutInvalid(err error) {
	row := Row{Outcome: LeftOut, Detail: err.Error()}
	var located *load.Error
	if errors.As(err, &located) {
		row.At, row.Detail = located.Position, located.Text
	}
	c.Add(row)
}

// Owner returns the policy of the input from which another project has written an object;
// empty if there is none.
func Owner(o *load.Object, in *Input) string {
	var owned struct {
		Metadata struct {
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := o.Read(&owned); err != nil { // it has been decoded before
		return ""
	}
	for _, ref := range owned.Metadata.OwnerReferences {
		kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		if !slices.ContainsFunc(in.Sources, func(s Source) bool { return s.WritesNative && s.Owns(kind.GroupKind()) }) {
			continue
		}
		for i := range in.All {
			if owner := &in.All[i]; owner.GroupVersionKind().GroupKind() == kind.GroupKind() &&
				owner.Metadata.Name == ref.Name {
				return owner.String()
			}
		}
	}
	return ""
}

// NamesCriticalResources reports whether a policy is accepted only with
// allowCriticalResources.
func NamesCriticalResources(p *v1alpha1.WebhookPolicy) bool {
	before := len(validation.Check(p))
	if before == 0 || p.Spec.AllowCriticalResources {
		return false
	}
	allowed := p.DeepCopy()
	allowed.Spec.AllowCriticalResources = true
	return len(validation.Check(allowed)) < before
}

// Rename renames an object. A policy notes its former name for the way back.
func Rename(o *Output, name string) {
	if p := o.Policy(); p != nil {
		notes, err := ReadNativeNotes(&p.ObjectMeta)
		if err == nil && notes.Name == "" {
			notes.Name = o.Object.GetName()
			_ = notes.Write(o) // strings are encoded without errors
		}
	}
	o.Object.SetName(name)
}
