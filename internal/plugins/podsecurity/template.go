package podsecurity

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxTemplates is the maximum of checked templates in one object.
const maxTemplates = 100

// templatePath is the path of templates in an object. "*" means all entries.
type templatePath []string

var pathSyntax = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\[\*\])*(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])*)*$`)

func parsePath(text string) (templatePath, bool) {
	if len(text) > maxPath || !pathSyntax.MatchString(text) {
		return nil, false
	}
	return strings.Split(strings.ReplaceAll(text, "[*]", ".*"), "."), true
}

// found is a value with its path.
type found struct {
	where string
	value any
}

// find returns the values at a path, in a stable order, at most maxTemplates + 1. A
// missing field has none.
func (p templatePath) find(value any, where string) []found {
	if value == nil {
		return nil
	}
	if len(p) == 0 {
		return []found{{where: strings.TrimPrefix(where, "."), value: value}}
	}
	rest := p[1:]
	fields, isObject := value.(map[string]any)
	if p[0] != "*" {
		return rest.find(fields[p[0]], where+"."+p[0])
	}
	var out []found
	if isObject {
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			out = append(out, rest.find(fields[key], fmt.Sprintf("%s[%s]", where, key))...)
			if len(out) > maxTemplates {
				break
			}
		}
		return out
	}
	list, _ := value.([]any)
	for i, entry := range list {
		out = append(out, rest.find(entry, fmt.Sprintf("%s[%d]", where, i))...)
		if len(out) > maxTemplates {
			break
		}
	}
	return out
}

// template converts a value to a PodTemplate.
func template(value any) (*corev1.PodTemplate, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is not an object")
	}
	out := &corev1.PodTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &out.Template); err != nil {
		return nil, err
	}
	return out, nil
}
