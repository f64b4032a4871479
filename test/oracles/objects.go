package oracles

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/internal/load"
)

//go:embed testdata/objects.yaml
var objectsText []byte

// workloads returns the kinds with a pod template, and their versions.
func workloads() map[string]string {
	return map[string]string{
		"Deployment":            "apps/v1",
		"StatefulSet":           "apps/v1",
		"DaemonSet":             "apps/v1",
		"ReplicaSet":            "apps/v1",
		"Job":                   "batch/v1",
		"CronJob":               "batch/v1",
		"ReplicationController": "v1",
	}
}

// Objects returns objects of all kinds, by kind.
func Objects(ctx context.Context) (map[string][]map[string]any, error) {
	read, err := load.Text(ctx, "objects.yaml", objectsText)
	if err != nil {
		return nil, fmt.Errorf("reading the objects: %w", err)
	}
	out := map[string][]object{}
	for i := range read {
		var o object
		if err := json.Unmarshal(read[i].Raw, &o); err != nil {
			return nil, fmt.Errorf("decoding the objects: %w", err)
		}
		out[read[i].Kind] = append(out[read[i].Kind], o)
	}
	for _, kind := range sortedKeys(workloads()) {
		for _, pod := range out["Pod"] {
			out[kind] = append(out[kind], workloadOf(kind, pod))
		}
	}
	return out, nil
}

// workloadOf returns a workload whose template has the labels and the spec of a Pod.
func workloadOf(kind string, pod object) object {
	metadata, _ := pod["metadata"].(object)
	template := object{"metadata": object{"labels": metadata["labels"], "annotations": metadata["annotations"]}}
	template["spec"] = without(pod["spec"], path{"ephemeralContainers"})
	at := path{"spec", "template"}
	switch kind {
	case "CronJob":
		at = path{"spec", "jobTemplate", "spec", "template"}
		fallthrough
	case "Job":
		template = asObject(with(template, path{"spec", "restartPolicy"}, "Never"))
	}
	made := object{"apiVersion": workloads()[kind], "kind": kind, "metadata": metadata}
	out := with(made, at, template)
	switch kind {
	case "CronJob":
		out = with(out, path{"spec", "schedule"}, "0 * * * *")
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		out = with(out, path{"spec", "selector", "matchLabels", "app"}, "web")
	}
	return asObject(out)
}

// asServed returns an object as an API server sends it to webhooks, which is the form of its
// type. The result is nil if no API server accepts the object.
func asServed(o object) *load.Object {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	raw, err = servedForm(raw)
	if err != nil {
		return nil
	}
	if raw, err = withDefaults(raw); err != nil {
		return nil
	}
	out, err := load.FromJSON("request", raw)
	if err != nil || !isAccepted(raw) {
		return nil
	}
	return out
}

// servedForm returns an object in the form of its type.
func servedForm(raw []byte) ([]byte, error) {
	decoded, kind, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	if n, ok := decoded.(*corev1.Namespace); ok && n.Name != "" { // API servers set this label
		metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelMetadataName, n.Name)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	fields["apiVersion"], fields["kind"] = kind.GroupVersion().String(), kind.Kind
	out, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encoding the object: %w", err)
	}
	return out, nil
}

// fixed reports whether a path is what identifies an object or an element of a list.
func fixed(p path) bool {
	switch last := p[len(p)-1]; {
	case len(p) == 1:
		return last == "apiVersion" || last == "kind" || last == "metadata"
	case len(p) == 2 && p[0] == "metadata":
		return last == "name" || last == "namespace"
	default:
		_, inList := p[len(p)-2].(int)
		return inList && slices.Contains([]any{"name", "containerPort", "mountPath", "port"}, last)
	}
}

// Edit returns an object with some changes. An API server accepts the result.
func (a *Author) Edit(o map[string]any, changes int) map[string]any {
	for range changes {
		for range 5 { // until one is accepted
			if edited := a.editOnce(o); edited != nil && asServed(edited) != nil {
				o = edited
				break
			}
		}
	}
	return o
}

// editOnce returns an object with one change, or nil.
func (a *Author) editOnce(o object) object {
	paths := pathsOf(o, nil)
	p := paths[a.IntN(len(paths))]
	if fixed(p) {
		return nil
	}
	switch value := valueAt(o, p).(type) {
	case object:
		if a.chance(2) {
			return asObject(without(o, p))
		}
		return asObject(with(o, append(slices.Clone(p), a.word()), a.word()))
	case list:
		if a.chance(2) {
			return asObject(with(o, p, list{}))
		}
		return asObject(without(o, p))
	case string:
		if a.chance(3) {
			return asObject(without(o, p))
		}
		return asObject(with(o, p, a.word()))
	case bool:
		if a.chance(2) {
			return asObject(with(o, p, !value))
		}
	case float64:
		if a.chance(2) {
			return asObject(with(o, p, float64(a.IntN(3000))))
		}
	}
	return asObject(without(o, p))
}

func asObject(value any) object {
	o, _ := value.(object)
	return o
}

// word returns a text that the policy compares, or another one.
func (a *Author) word() string {
	if len(a.Words) > 0 && !a.chance(3) {
		return pick(a, a.Words...)
	}
	return pick(a, "web", "", "red", "production", "registry.example.com/web:1", "nginx:latest", "100m", "1Gi", "true", "10", "ALL")
}

// AbsentInTurn returns an object without each of its fields in turn.
func AbsentInTurn(o map[string]any) (out []map[string]any) {
	for _, p := range pathsOf(o, nil) {
		if !fixed(p) {
			out = append(out, asObject(without(o, p)))
		}
	}
	return out
}

// WordsOf returns the texts of a policy that objects can have, without wildcards and operators.
func WordsOf(value any) (out []string) {
	switch v := value.(type) {
	case object:
		for _, key := range sortedKeys(v) {
			if key != "message" && key != "name" {
				out = append(out, WordsOf(v[key])...)
			}
		}
	case list:
		for _, item := range v {
			out = append(out, WordsOf(item)...)
		}
	case string:
		if len(v) > 60 || strings.Contains(v, "{{") {
			return quotedIn(v)
		}
		for _, part := range strings.FieldsFunc(v, func(r rune) bool { return r == '|' || r == '&' }) {
			part = strings.TrimLeft(strings.TrimSpace(part), "!<>=")
			out = append(out, strings.NewReplacer("?", "x", "*", "abc").Replace(part))
		}
	case float64:
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// quotedIn returns the texts in single quotes of an expression.
func quotedIn(expression string) (out []string) {
	for i, part := range strings.Split(expression, "'") {
		if i%2 == 1 && len(part) < 60 {
			out = append(out, part)
		}
	}
	return out
}
