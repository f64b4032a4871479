package policy

import (
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxObject is the maximum of bytes of the name of an object in a warning: those of a namespace and of a name.
const maxObject = 63 + 1 + 253

// NameObject returns the warnings of a response with the object of its request. kubectl prints the warnings about all
// objects of a folder one after the other, and each text once. Only the kind, the namespace and the name are added,
// and no other value of the object, so that a response grows by at most 65 times maxObject and the kind.
func NameObject(warnings []string, r *admissionv1.AdmissionRequest) []string {
	if len(warnings) == 0 {
		return warnings
	}
	suffix := " (" + objectOf(r) + ")"
	out := make([]string, len(warnings))
	for i, text := range warnings {
		out[i] = text + suffix
	}
	return out
}

// objectOf names the object of a request: "Pod shop/web", "pods/exec shop/web", or "a Pod in shop" before it has a name.
func objectOf(r *admissionv1.AdmissionRequest) string {
	kind := truncate.Line(r.Kind.Kind, maxObject)
	if r.SubResource != "" {
		kind = truncate.Line(r.Resource.Resource+"/"+r.SubResource, maxObject)
	}
	namespace := r.Namespace
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		namespace = "" // which a request for a Namespace has twice
	}
	switch {
	case r.Name == "" && namespace == "":
		return "a " + kind
	case r.Name == "":
		return "a " + kind + " in " + truncate.Line(namespace, maxObject)
	case namespace != "":
		return kind + " " + truncate.Line(namespace+"/"+r.Name, maxObject)
	}
	return kind + " " + truncate.Line(r.Name, maxObject)
}
