package main

import (
	"context"
	"encoding/json"
	"fmt"

	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/globalcontext/store"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// globalContext has the GlobalContextEntries of a question, which it reads when a policy asks for them.
type globalContext struct {
	input    *input
	jmespath jmespath.Interface
}

// Get implements the store of entries.
func (g *globalContext) Get(name string) (store.Entry, bool) {
	for _, e := range g.input.global {
		if e.Name == name {
			return &globalEntry{g, e}, true
		}
	}
	return nil, false
}

type globalEntry struct {
	*globalContext
	entry *kyvernov2.GlobalContextEntry
}

// Stop implements store.Entry.
func (e *globalEntry) Stop() {}

// Get implements store.Entry.
func (e *globalEntry) Get(projection string) (any, error) {
	data, err := e.read()
	if err != nil || projection == "" {
		return data, err
	}
	for _, p := range e.entry.Spec.Projections {
		if p.Name == projection {
			return e.jmespath.Search(p.JMESPath, data)
		}
	}
	return nil, fmt.Errorf("projection %q not found", projection)
}

func (e *globalEntry) read() (any, error) {
	api := &e.input.api
	if k := e.entry.Spec.KubernetesResource; k != nil {
		found := api.find(path{
			GroupVersionResource: schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource},
			namespace:            k.Namespace,
		})
		list := make([]any, len(found))
		for i, o := range found {
			list[i] = o.Object
		}
		return list, nil
	}
	raw, err := api.RawAbsPath(context.Background(), e.entry.Spec.APICall.URLPath, "GET", nil)
	if err != nil {
		return nil, err
	}
	var data any
	err = json.Unmarshal(raw, &data)
	return data, err
}
