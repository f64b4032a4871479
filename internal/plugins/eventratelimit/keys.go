package eventratelimit

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// keys returns the functions that select the bucket of an event, by the type of the
// limit.
func keys() map[LimitType]func(*pluginapi.Call) string {
	return map[LimitType]func(*pluginapi.Call) string{
		Server:          func(*pluginapi.Call) string { return "" },
		Namespace:       func(call *pluginapi.Call) string { return call.GetNamespace() },
		User:            func(call *pluginapi.Call) string { return call.GetUserInfo().GetName() },
		SourceAndObject: func(call *pluginapi.Call) string { return sourceAndObject(call.Object()) },
	}
}

// sourceAndObject returns the key of the native plugin, without separators, which the
// message contains. It is equal for both API groups.
func sourceAndObject(event *unstructured.Unstructured) string {
	if event == nil {
		return ""
	}
	source, about := "source", "involvedObject"
	if event.GroupVersionKind().Group != "" {
		source, about = "deprecatedSource", "regarding"
	}
	var key strings.Builder
	for _, path := range [][2]string{
		{source, "component"}, {source, "host"},
		{about, "kind"}, {about, "namespace"}, {about, "name"}, {about, "uid"}, {about, "apiVersion"},
	} {
		part, _, _ := unstructured.NestedString(event.Object, path[0], path[1]) // the API server has checked its type
		key.WriteString(part)
	}
	return key.String()
}
