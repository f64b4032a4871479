package policies

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// InformerFunc makes the informers of a cache.
type InformerFunc func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// NewInformerFunc returns a function for a cache whose policies contain the names of the fields
// that this version does not know. Other decoders drop such fields without a trace.
func NewInformerFunc(config *rest.Config, client *http.Client, scheme *runtime.Scheme, known versionskew.Fields) (InformerFunc, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = policyCodecs{serializer.NewCodecFactory(scheme).WithoutConversion(), known}
	reader, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making a client for policies: %w", err)
	}
	policies := toolscache.NewListWatchFromClient(reader, "webhookpolicies", "", fields.Everything())
	return func(objects toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := example.(*v1alpha1.WebhookPolicy); ok {
			objects = policies
		}
		return toolscache.NewSharedIndexInformer(objects, example, resync, indexers)
	}, nil
}

// policyCodecs decodes policies with policyDecoder.
type policyCodecs struct {
	runtime.NegotiatedSerializer
	known versionskew.Fields
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c policyCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	var out []runtime.SerializerInfo
	for _, info := range c.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = policyDecoder{info.Serializer, c.known}
			out = append(out, info)
		}
	}
	return out
}

// policyDecoder sets UnknownFields of the policies that it decodes.
type policyDecoder struct {
	runtime.Serializer
	known versionskew.Fields
}

// Decode implements runtime.Decoder.
func (d policyDecoder) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	decoded, kind, err := d.Serializer.Decode(data, defaults, into)
	if err != nil {
		return decoded, kind, err
	}
	switch o := decoded.(type) {
	case *v1alpha1.WebhookPolicy:
		o.UnknownFields, err = d.known.UnknownInJSON(data)
	case *v1alpha1.WebhookPolicyList:
		err = d.addToItems(data, o.Items)
	}
	return decoded, kind, err
}

func (d policyDecoder) addToItems(data []byte, items []v1alpha1.WebhookPolicy) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("decoding a list of policies: %w", err)
	}
	var err error
	for i := range items {
		if items[i].UnknownFields, err = d.known.UnknownInJSON(list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
