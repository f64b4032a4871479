package audit

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// renew returns a function that turns a stored object into one that is created again: with
// the status and the metadata that API servers set before they call admission webhooks. Fields
// that subresources set are absent. Parts of the object can be missing.
func (o *Object) renew(now time.Time) func(tree map[string]any) {
	return func(tree map[string]any) {
		renewMetadata(tree, now)
		if !o.KeepsStatus && o.Kind != nodeKind() {
			renewStatus(tree, o.Kind)
		}
		if spec, ok := tree["spec"].(map[string]any); ok && o.Kind == podKind() {
			delete(spec, "nodeName")
			delete(spec, "ephemeralContainers")
		}
	}
}

func podKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Pod"} }

// nodeKind is the only built-in kind whose status a client can set in a CREATE.
func nodeKind() schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: "Node"} }

func renewMetadata(tree map[string]any, now time.Time) {
	metadata, ok := tree["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, name := range []string{"resourceVersion", "selfLink", "managedFields"} {
		delete(metadata, name)
	}
	if _, ok := metadata["creationTimestamp"]; ok {
		metadata["creationTimestamp"] = now.UTC().Format(time.RFC3339)
	}
	if _, ok := metadata["generation"]; ok {
		metadata["generation"] = int64(1)
	}
}

// renewStatus sets the status of a new object: what the type of a built-in kind has by itself,
// and the phase that its API sets.
func renewStatus(tree map[string]any, kind schema.GroupVersionKind) {
	old, _ := tree["status"].(map[string]any) // nil if there is none
	delete(tree, "status")
	status, ok := emptyStatus(kind)
	if !ok {
		return
	}
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		status["phase"] = "Pending"
		if class, ok := old["qosClass"]; ok {
			status["qosClass"] = class
		}
	case schema.GroupKind{Kind: "PersistentVolume"}, schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		status["phase"] = "Pending"
	case schema.GroupKind{Kind: "Namespace"}:
		status["phase"] = "Active"
	}
	tree["status"] = status
}

// emptyStatus returns the status of a built-in kind without any values, and whether it has one.
func emptyStatus(kind schema.GroupVersionKind) (map[string]any, bool) {
	typed, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, false // a custom kind
	}
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, false
	}
	var tree struct {
		Status map[string]any `json:"status"`
	}
	if err := json.Unmarshal(data, &tree); err != nil || tree.Status == nil {
		return nil, false
	}
	return tree.Status, true
}
