package uncounted

import (
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Extents of requests for which costs are bounded in advance.
var (
	elementClasses = [...]float64{16, 32, 64, 256, 1024}  //nolint:gochecknoglobals // a constant
	textClasses    = [...]float64{128, 1024, 8192, 65536} //nolint:gochecknoglobals // a constant
)

const classes = len(elementClasses) * len(textClasses)

// Class is the index of an extent of requests.
type Class int

// noClass is the class of an extent beyond all classes.
const noClass Class = -1

// smallestClass returns the smallest class of an extent, and whether there is one.
func smallestClass(e extent) (Class, bool) {
	for c := range Class(classes) {
		if e.fits(c.extent()) {
			return c, true
		}
	}
	return noClass, false
}

// extent returns the extent of a class. The weight is that of objects that are not deep: one of 64 elements and
// 1,024 bytes in a text can have 12,288 values, or 120 KiB in its texts.
func (c Class) extent() extent {
	elements, text := elementClasses[int(c)/len(textClasses)], textClasses[int(c)%len(textClasses)]
	weight := max(8192, 64*elements+elements*text/8)
	return extent{elements: elements, nested: elements, text: text, weight: weight}
}

// Size bounds the values of a request that expressions can read.
type Size struct{ extent }

// SizeOf returns the size of the objects and the request that expressions can read.
func SizeOf(raw *admissionv1.AdmissionRequest, objects *admission.VersionedAttributes) Size {
	size := requestExtent(raw, objects)
	for _, object := range []*admission.LazyObject{&objects.VersionedObject, &objects.VersionedOldObject} {
		size = size.union(extentOf(tree(object)))
	}
	return Size{size}
}

// requestFields is the number of values in the CEL variable request without groups and extra values of the user.
const requestFields = 128

func requestExtent(raw *admissionv1.AdmissionRequest, attributes *admission.VersionedAttributes) extent {
	user, kind, resource := &raw.UserInfo, attributes.GetKind(), attributes.GetResource()
	size := extent{elements: float64(len(user.Extra)), weight: requestFields}
	for _, text := range []string{
		raw.Name, raw.Namespace, raw.SubResource, user.Username, user.UID,
		kind.Group, kind.Version, kind.Kind, resource.Group, resource.Version, resource.Resource,
		raw.Resource.Group, raw.Resource.Version, raw.Resource.Resource,
		attributes.VersionedKind.Group, attributes.VersionedKind.Version, attributes.VersionedKind.Kind,
	} {
		size = size.including(textOf(float64(len(text))))
	}
	size = size.including(extentOfTexts(user.Groups))
	for key, values := range user.Extra {
		size = size.including(textOf(float64(len(key)))).including(extentOfTexts(values))
	}
	return size
}

func extentOfTexts(texts []string) extent {
	size := extent{elements: float64(len(texts)), weight: 1}
	for _, text := range texts {
		size = size.including(textOf(float64(len(text))))
	}
	return size
}

// including bounds a list or a map whose elements are counted, with a value in it.
func (e extent) including(part extent) extent {
	e.nested = max(e.nested, part.elements, part.nested)
	e.text = max(e.text, part.text)
	e.weight += part.weight
	return e
}

// extentOf returns the extent of a JSON value.
func extentOf(value any) extent {
	size := extent{weight: 1}
	switch value := value.(type) {
	case string:
		return textOf(float64(len(value)))
	case float64:
		size.weight = doubleWeight
	case []any:
		size.elements = float64(len(value))
		for _, v := range value {
			size = size.including(extentOf(v))
		}
	case map[string]any:
		size.elements = float64(len(value))
		for key, v := range value {
			size = size.including(extentOf(v)).including(textOf(float64(len(key))))
		}
	}
	return size
}
