package uncounted

import (
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
)

// Extents of requests for which costs are bounded in advance.
var (
	elementClasses = [...]float64{16, 64, 256, 1024}      //nolint:gochecknoglobals // a constant
	textClasses    = [...]float64{128, 1024, 8192, 65536} //nolint:gochecknoglobals // a constant
)

const classes = len(elementClasses) * len(textClasses)

// Class is the index of an extent of requests.
type Class int

// smallestClass returns the smallest class of an extent, and whether there is one.
func smallestClass(e extent) (Class, bool) {
	i := slices.IndexFunc(elementClasses[:], func(limit float64) bool { return e.elements <= limit })
	j := slices.IndexFunc(textClasses[:], func(limit float64) bool { return e.text <= limit })
	return Class(i*len(textClasses) + j), i >= 0 && j >= 0
}

func (c Class) extent() extent {
	elements := elementClasses[int(c)/len(textClasses)]
	return extent{elements: elements, nested: elements, text: textClasses[int(c)%len(textClasses)]}
}

// ClassOf returns the class of the values of a request that expressions can read, and whether there is one.
func ClassOf(raw *admissionv1.AdmissionRequest, objects *admission.VersionedAttributes) (Class, bool) {
	user := &raw.UserInfo
	size := extent{elements: float64(max(len(user.Groups), len(user.Extra)))}
	size.addTexts(raw.Name, raw.Namespace, user.Username, user.UID)
	size.addTexts(user.Groups...)
	for key, values := range user.Extra {
		size.elements = max(size.elements, float64(len(values)))
		size.addTexts(key)
		size.addTexts(values...)
	}
	for _, object := range []*admission.LazyObject{&objects.VersionedObject, &objects.VersionedOldObject} {
		size = size.union(extentOf(tree(object)))
	}
	return smallestClass(size)
}

func (e *extent) addTexts(texts ...string) {
	for _, text := range texts {
		e.text = max(e.text, float64(len(text)))
	}
}

// extentOf returns the extent of a JSON value.
func extentOf(value any) extent {
	var size extent
	switch value := value.(type) {
	case string:
		size.text = float64(len(value))
	case []any:
		size.elements = float64(len(value))
		for _, v := range value {
			size = size.union(extentOf(v))
		}
	case map[string]any:
		size.elements = float64(len(value))
		for key, v := range value {
			size = size.union(extentOf(v))
			size.text = max(size.text, float64(len(key)))
		}
	}
	return size
}
