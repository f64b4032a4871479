package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// maxKeptBuffer is the largest object, in bytes, whose buffer a watch keeps for the next.
const maxKeptBuffer = 64 << 10

// Collection is what a list or a watch reads: a resource, in one namespace or, if Namespace
// is empty, in all.
type Collection struct {
	Client    rest.Interface
	Resource  schema.GroupVersionResource
	Namespace string
	// MetadataOnly makes the API server send nothing of an object but its metadata.
	MetadataOnly bool
}

// accept returns the accepted content of a list or, if watches is true, of the objects of a watch. See
// https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources.
func (c Collection) accept(watches bool) string {
	switch {
	case !c.MetadataOnly:
		return "application/json"
	case watches:
		return "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	}
	return "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
}

func (c Collection) open(ctx context.Context, o metav1.ListOptions) (io.ReadCloser, error) {
	path := pathOf(schema.GroupVersionResource{Group: c.Resource.Group, Version: c.Resource.Version})
	if c.Namespace != "" {
		path += "namespaces/" + c.Namespace + "/"
	}
	return c.Client.Get().AbsPath(path+c.Resource.Resource).
		SpecificallyVersionedParams(&o, scheme.ParameterCodec, metav1.Unversioned).
		SetHeader("Accept", c.accept(o.Watch)).Stream(ctx)
}

// List calls visit for each object of a page, with JSON that is valid until visit returns. It
// never holds two objects. The page is everything that o selects, if o has no limit or the API
// server ignores it. List calls begin when the API server has answered, and reads the objects
// after begin has returned.
func (c Collection) List(ctx context.Context, o metav1.ListOptions, begin func() error, visit func(raw []byte) error) (metav1.ListMeta, error) {
	body, err := c.open(ctx, o)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	if err := begin(); err != nil {
		return metav1.ListMeta{}, err
	}
	list, err := decodeList(body, visit)
	if err != nil {
		return list, fmt.Errorf("reading a list: %w", err)
	}
	return list, nil
}

// Watch opens a watch. The caller closes it.
func (c Collection) Watch(ctx context.Context, o metav1.ListOptions) (*Events, error) {
	o.Watch = true
	body, err := c.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return newEvents(body), nil
}

// Events are those of a watch. It holds one event at a time, of at most 8 MiB.
type Events struct {
	body    io.ReadCloser
	limited *objectReader
	from    io.Reader // limited, after what an earlier decoder has read of it
	decoder *json.Decoder
}

func newEvents(body io.ReadCloser) *Events {
	limited := &objectReader{Reader: body}
	return &Events{body: body, limited: limited, from: limited, decoder: json.NewDecoder(limited)}
}

// Next returns the type of the next event and the JSON of its object.
func (e *Events) Next() (watch.EventType, []byte, error) {
	e.limited.left = maxObject
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := e.decoder.Decode(&event); err != nil {
		return "", nil, err
	}
	if len(event.Object) > maxKeptBuffer { // a decoder keeps its largest buffer
		e.from = io.MultiReader(e.decoder.Buffered(), e.from)
		e.decoder = json.NewDecoder(e.from)
	}
	return event.Type, event.Object, nil
}

// Close ends the watch.
func (e *Events) Close() error { return e.body.Close() }
