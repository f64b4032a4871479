// Package objects lists the stored objects of a resource, and decodes one at a time.
package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// maxObject limits the JSON of one object. API servers store at most 1.5 MiB and accept
// 3 MiB; others could send anything.
const maxObject = 8 << 20

// ErrTooLarge means that an object exceeds the limit.
var ErrTooLarge = errors.New("an object has more than 8 MiB of JSON")

// Object is an object of a list.
type Object struct {
	audit.Object

	UID, ResourceVersion string
	// Controller is the kind and name of the object's controller, as "ReplicaSet/web-7d9"; "" if
	// it has none.
	Controller string
}

// Reader lists objects in pages. It holds one object at a time.
type Reader struct {
	Client rest.Interface
	// Wait blocks until another request may be sent.
	Wait func(context.Context) error
}

// List calls visit for each object of a resource, with JSON that is valid until visit
// returns, and begun with the resource version of the first page after that page. The pages
// are those of one snapshot while API servers keep it, for five minutes. Later ones are newer,
// as https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
// describes: objects that are deleted meanwhile can be missing, and those that are created.
// An error of the API server is an *apierrors.StatusError. An error of visit ends the list.
func (r Reader) List(ctx context.Context, gvr schema.GroupVersionResource, pageSize int64, begun func(version string), visit func(raw []byte) error) error {
	for next := ""; ; {
		if err := r.Wait(ctx); err != nil {
			return err
		}
		request := r.Client.Get().AbsPath(pathOf(gvr)).Param("limit", strconv.FormatInt(pageSize, 10)).SetHeader("Accept", "application/json")
		if next != "" {
			request = request.Param("continue", next)
		}
		body, err := request.Stream(ctx)
		if token := NewerPages(err); token != "" && token != next {
			next = token
			continue
		}
		if err != nil {
			return err
		}
		list, err := decodeList(body, visit)
		_ = body.Close()
		if err != nil {
			return fmt.Errorf("reading a list: %w", err)
		}
		if next == "" {
			begun(list.ResourceVersion)
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// NewerPages returns the continue token, after the error that one has expired, for the pages
// of a newer snapshot; "" after any other error.
func NewerPages(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

func pathOf(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + gvr.Resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}

// objectReader fails after maxObject bytes of one object.
type objectReader struct {
	io.Reader
	left int
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := r.Reader.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// decodeList decodes a list and calls visit for each item, while it is being received.
func decodeList(body io.Reader, visit func(raw []byte) error) (list metav1.ListMeta, err error) {
	limited := &objectReader{Reader: body, left: maxObject}
	d := json.NewDecoder(limited)
	if err := expect(d, '{'); err != nil {
		return list, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return list, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&list)
		case "items":
			err = decodeItems(d, limited, visit)
		default:
			var ignored json.RawMessage
			err = d.Decode(&ignored)
		}
		if err != nil {
			return list, err
		}
	}
	return list, expect(d, '}')
}

func decodeItems(d *json.Decoder, limited *objectReader, visit func(raw []byte) error) error {
	token, err := d.Token()
	if err != nil || token == nil { // null is an empty list
		return err
	}
	if token != json.Delim('[') {
		return fmt.Errorf("items is a %T instead of a list", token)
	}
	var raw json.RawMessage
	for d.More() {
		limited.left = maxObject
		raw = raw[:0]
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if err := visit(raw); err != nil {
			return err
		}
	}
	return expect(d, ']')
}

func expect(d *json.Decoder, want json.Delim) error {
	token, err := d.Token()
	if err == nil && token != want {
		err = fmt.Errorf("got a %T instead of %q", token, want)
	}
	return err
}

// New returns an object of a list. Lists of built-in kinds contain objects without
// apiVersion and kind, which are added. Its JSON can share memory with raw, its other
// strings do not: a caller that keeps one does not keep the whole object.
func New(raw []byte, gvr schema.GroupVersionResource, kind schema.GroupVersionKind) (*Object, error) {
	path := unstructuredjson.Path
	parts := path("kind")
	for _, name := range []string{"name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "ownerReferences"} {
		parts = parts.Union(path("metadata", name))
	}
	tree, err := unstructuredjson.DecodeParts(raw, parts)
	if err != nil {
		return nil, err
	}
	metadata, _ := tree["metadata"].(map[string]any) // nil if there is none
	text := func(name string) string {
		s, _ := metadata[name].(string)
		return strings.Clone(s)
	}
	o := &Object{UID: text("uid"), ResourceVersion: text("resourceVersion")}
	o.Resource, o.Kind, o.Name, o.Namespace, o.JSON = gvr, kind, text("name"), text("namespace"), raw
	o.IsDeleted = metadata["deletionTimestamp"] != nil
	o.Controller = audit.ControllerOf(&unstructured.Unstructured{Object: tree})
	if o.UID == "" || o.Name == "" {
		return nil, errors.New("an object has no name or uid")
	}
	if gvr.GroupResource() == (schema.GroupResource{Resource: "namespaces"}) {
		o.Namespace = o.Name
	}
	if tree["kind"] == nil {
		o.JSON = withKind(raw, kind)
	}
	return o, nil
}

// withKind adds apiVersion and kind to the JSON of an object that has members.
func withKind(raw []byte, kind schema.GroupVersionKind) []byte {
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, kind.GroupVersion().String(), kind.Kind)
	return append([]byte(head), raw[1:]...)
}
