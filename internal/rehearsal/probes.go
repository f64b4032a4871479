package rehearsal

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The objects of the kinds of Kubernetes, as API servers store them. test/rehearsal makes them
// from seeds.yaml with an API server. The others are the options of connections.
//
//go:embed objects/objects.json
var storedObjects []byte

//go:embed objects/connections.json
var connectionOptions []byte

// objects are probes by kind.
type objects struct {
	byKind map[schema.GroupVersionKind][]map[string]any
}

func readObjects() (*objects, error) {
	out := &objects{byKind: map[schema.GroupVersionKind][]map[string]any{}}
	for _, text := range [][]byte{storedObjects, connectionOptions} {
		var list []map[string]any
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, fmt.Errorf("reading the objects of a rehearsal: %w", err)
		}
		for _, o := range list {
			apiVersion, _ := o["apiVersion"].(string)
			kind, _ := o["kind"].(string)
			gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
			out.byKind[gvk] = append(out.byKind[gvk], o)
		}
	}
	return out, nil
}

// probe is an object of which an expression is evaluated.
type probe struct {
	object map[string]any
	// invented reports that its values come from a schema: no error about a value counts, only
	// one about a field that is absent.
	invented bool
}

// of returns the objects that requests for a target can have. They are copies.
func (o *objects) of(ctx context.Context, t *target, c Cluster) []probe {
	switch t.GroupVersionKind.Kind {
	case "Scale":
		return scales()
	case "Eviction", "Binding", "TokenRequest":
		return written(t.GroupVersionKind)
	}
	var out []probe
	for _, object := range o.byKind[t.GroupVersionKind] {
		out = append(out, probe{object: runtime.DeepCopyJSON(object)})
	}
	if len(out) == 0 && c.Documents != nil {
		out = inventedObjects(ctx, c.Documents(t.Kind), t.GroupVersionKind)
	}
	if t.subresource == "ephemeralcontainers" {
		for i := range out {
			spec, _ := out[i].object["spec"].(map[string]any)
			spec["ephemeralContainers"] = []any{map[string]any{"name": "probe-debug", "image": "probe",
				"imagePullPolicy": "Always", "resources": map[string]any{},
				"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}}
		}
	}
	if t.namespaced {
		for i := range out {
			metadataOf(out[i].object)["namespace"] = "default"
		}
	}
	return out
}

// scales are Scales. The field replicas of one with 0 replicas is absent.
func scales() []probe {
	scale := func(spec map[string]any) probe {
		return probe{object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": spec,
			"status": map[string]any{"replicas": int64(1), "selector": "probe=probe"},
			"metadata": map[string]any{"name": "probe", "namespace": "default", "uid": uid, "creationTimestamp": created,
				"resourceVersion": "1"}}}
	}
	return []probe{scale(map[string]any{"replicas": int64(1)}), scale(map[string]any{})}
}

const (
	uid     = "00000000-0000-0000-0000-000000000000"
	created = "2001-09-09T01:46:40Z"
)

// written are objects that are written to a subresource and not stored.
func written(kind schema.GroupVersionKind) []probe {
	o := map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind,
		"metadata": map[string]any{"name": "probe", "namespace": "default"}}
	switch kind.Kind {
	case "Binding":
		o["target"] = map[string]any{"kind": "Node", "name": "probe"}
	case "TokenRequest":
		o["spec"] = map[string]any{"audiences": []any{"https://kubernetes.default.svc"},
			"expirationSeconds": int64(3600), "boundObjectRef": nil}
		o["status"] = map[string]any{"token": "", "expirationTimestamp": nil}
	}
	return []probe{{object: o}}
}

func metadataOf(object map[string]any) map[string]any {
	m, ok := object["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		object["metadata"] = m
	}
	return m
}

// setStrings adds labels or annotations.
func setStrings(object map[string]any, field string, set map[string]string) {
	if len(set) == 0 {
		return
	}
	m := metadataOf(object)
	values, ok := m[field].(map[string]any)
	if !ok {
		values = map[string]any{}
		m[field] = values
	}
	for key, value := range set {
		values[key] = value
	}
}

// literalName matches the names in an expression that may be keys of labels and annotations.
var literalName = regexp.MustCompile(`["']([^"'\s]{1,300})["']|\.\??([A-Za-z_][A-Za-z0-9_]*)`)

const maxKeys = 32

// keysIn returns the names of labels and annotations that expressions may read.
func keysIn(texts []string) map[string]string {
	out := map[string]string{}
	for _, text := range texts {
		if !strings.Contains(text, "labels") && !strings.Contains(text, "annotations") {
			continue
		}
		for _, found := range literalName.FindAllStringSubmatch(text, -1) {
			key := found[1] + found[2]
			if len(out) < maxKeys && len(validation.IsQualifiedName(key)) == 0 {
				out[key] = "probe"
			}
		}
	}
	return out
}

// variants adds objects with other metadata: with labels and annotations that no expression reads,
// and with those that expressions name. Both are in every cluster.
func variants(in []probe, keys map[string]string) []probe {
	if len(in) == 0 {
		return nil
	}
	unrelated := map[string]string{"probe.example.com/unrelated": "probe"}
	labelled := probe{object: runtime.DeepCopyJSON(in[0].object), invented: in[0].invented}
	setStrings(labelled.object, "labels", unrelated)
	setStrings(labelled.object, "annotations", unrelated)
	out := append(slices.Clone(in), labelled)
	if len(keys) > 0 {
		known := probe{object: runtime.DeepCopyJSON(labelled.object), invented: labelled.invented}
		setStrings(known.object, "labels", keys)
		setStrings(known.object, "annotations", keys)
		out = append(out, known)
	}
	return out
}
