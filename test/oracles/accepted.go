package oracles

import (
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// isAccepted reports whether API servers accept an object. They reject the others before they
// call validating webhooks: those without containers, paths, verbs or a selector, whose types write null then,
// and those with labels, annotations or types of profiles that are none.
func isAccepted(raw []byte) bool {
	var value any
	return json.Unmarshal(raw, &value) == nil && isAcceptedValue(value) && hasTemplate(asObject(value))
}

// hasTemplate reports whether an object has the template that its kind needs, and whose type is a pointer.
func hasTemplate(o object) bool {
	return o["kind"] != "ReplicationController" || valueAt(o, path{"spec", "template"}) != nil
}

func isAcceptedValue(value any) bool {
	switch v := value.(type) {
	case object:
		for key, child := range v {
			if !isAcceptedMember(key, child) || !isAcceptedValue(child) {
				return false
			}
		}
	case list:
		return !slices.ContainsFunc(v, func(item any) bool { return !isAcceptedValue(item) })
	}
	return true
}

func isAcceptedMember(key string, value any) bool {
	switch key {
	case "":
		return false // as a name of a label in a selector, or of data
	case "containers", "paths", "verbs":
		l, ok := value.(list)
		return ok && len(l) > 0
	case "selector":
		return value != nil
	case "seccompProfile":
		return value == nil || asObject(value)["type"] != ""
	case "annotations", "labels", "matchLabels", "nodeSelector":
		entries, _ := value.(object)
		for name, entry := range entries {
			text, _ := entry.(string)
			if len(validation.IsQualifiedName(name)) > 0 ||
				key != "annotations" && len(validation.IsValidLabelValue(text)) > 0 {
				return false
			}
		}
	}
	return true
}

// withDefaults returns an object with the number of replicas that API servers add.
func withDefaults(raw []byte) ([]byte, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	at := path{"spec", "replicas"}
	kinds := []any{"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"}
	if !slices.Contains(kinds, o["kind"]) || valueAt(o, at) != nil {
		return raw, nil
	}
	out, err := json.Marshal(with(o, at, 1.0))
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return out, nil
}
