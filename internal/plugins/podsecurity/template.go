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

// maxTemplates are looked at in one object.
const maxTemplates = 100

// templatePath leads to templates in an object. The step "*" is for all entries.
type templatePath []string

var pathSyntax = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\[\*\])*(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])*)*$`)

func parsePath(text string) (templatePath, bool) {
	if len(text) > maxPath || !pathSyntax.MatchString(text) {
		return nil, false
	}
	return strings.Split(strings.ReplaceAll(text, "[*]", ".*"), "."), true
}

// found is what stands at a path, with the way there.
type found struct {
	where string
	value any
}

// find gives what stands at a path in a value, in a stable order, up to one more
// than are looked at. Where there is nothing, it gives nothing.
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

// template is a value as the built-in kind that is a template and nothing else.
func template(value any) (*corev1.PodTemplate, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it is no object")
	}
	out := &corev1.PodTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &out.Template); err != nil {
		return nil, err
	}
	return out, nil
}
