package offline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/internal/load"
)

// partial returns the metadata of an object that selectors need; nil without an object.
func partial(raw []byte) (runtime.Object, error) {
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // a request without an object is no error
	}
	value, err := metadataOf(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	var m *load.Metadata
	if err := json.Unmarshal(value, &m); err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	if m == nil { // the API server does not select such objects by labels
		return nil, nil //nolint:nilnil // as above
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels}}, nil
}

// metadataOf returns the metadata of an object, null if it has none. It does not read what
// follows, which is most of an object.
func metadataOf(raw []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, cmp.Or(err, errNoObject)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		found := name.String() == "metadata"
		value, err := d.ReadValue()
		if err != nil || found {
			return value, err
		}
	}
	return []byte("null"), nil
}

var errNoObject = errors.New("it is not a JSON object")

// whole returns an object; nil without one.
func whole(raw []byte) runtime.Object {
	u := &unstructured.Unstructured{}
	if len(raw) == 0 || u.UnmarshalJSON(raw) != nil {
		return nil
	}
	return u
}
