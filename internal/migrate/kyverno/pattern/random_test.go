package pattern

import (
	"math/rand/v2"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// generator makes random patterns, and objects that have a chance to match them.
type generator struct{ *rand.Rand }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// fields are fields of the kinds of the test, and others.
func fields(path string) []string {
	name := path[strings.LastIndex(path, ".")+1:]
	switch {
	case path == "":
		return []string{"metadata", "spec", "spec", "spec"}
	case strings.HasSuffix(path, "metadata"):
		return []string{"name", "namespace", "labels", "annotations", "generateName"}
	case name == "labels" || name == "annotations" || name == "limits" || name == "requests":
		return []string{"app", "cpu", "memory", "app.kubernetes.io/name", "team-a"}
	case strings.HasSuffix(path, "spec.template"):
		return []string{"metadata", "spec"}
	case name == "containers[]" || name == "initContainers[]":
		return []string{"name", "image", "imagePullPolicy", "command", "ports", "resources", "securityContext", "env", "readinessProbe", "tty"}
	case name == "resources":
		return []string{"limits", "requests"}
	case strings.HasSuffix(name, "[]"):
		return []string{"name", "value", "containerPort", "hostPort", "hostPath", "emptyDir", "key"}
	case name == "securityContext":
		return []string{"runAsUser", "privileged", "runAsNonRoot", "capabilities", "runAsGroup"}
	case name == "capabilities":
		return []string{"add", "drop"}
	case name == "readinessProbe" || name == "httpGet":
		return []string{"periodSeconds", "httpGet", "port", "path"}
	}
	return []string{
		"containers", "initContainers", "volumes", "hostNetwork", "replicas", "template", "securityContext",
		"serviceAccountName", "nodeSelector", "terminationGracePeriodSeconds", "tolerations",
	}
}

// fieldOf returns the shape of a field. The metadata of all objects are known.
func fieldOf(s ce.Shape, path, name string) ce.Shape {
	if path == "" && name == "metadata" {
		return ce.ShapeOfType[metav1.ObjectMeta]()
	}
	return s.Field(name)
}

// pattern returns a pattern for values of a shape.
func (g *generator) pattern(s ce.Shape, path string, depth int) any {
	kind := s.Kind()
	if kind == ce.KindAny {
		kind = g.guess(path, depth)
	}
	switch {
	case depth > 6 || g.IntN(25) == 0 && depth > 1:
		return g.scalarPattern()
	case kind == ce.KindMap:
		return g.mapPattern(s, path, depth)
	case kind == ce.KindList:
		return g.listPattern(s, path, depth)
	}
	return g.scalarPattern()
}

// guess returns the kind of a field of an unknown type, most often the one of its name.
func (g *generator) guess(path string, depth int) ce.Kind {
	name := path[strings.LastIndex(path, ".")+1:]
	switch {
	case depth == 0 || strings.HasSuffix(name, "[]"):
		return ce.KindMap
	case g.IntN(8) == 0:
		return pick(g, ce.KindMap, ce.KindList, ce.KindString)
	}
	switch name {
	case "metadata", "spec", "template", "labels", "annotations", "securityContext", "resources", "limits", "requests", "capabilities", "nodeSelector", "readinessProbe", "httpGet", "emptyDir", "hostPath":
		return ce.KindMap
	case "containers", "initContainers", "volumes", "ports", "env", "command", "add", "drop", "tolerations":
		return ce.KindList
	}
	return ce.KindString
}

func (g *generator) mapPattern(s ce.Shape, path string, depth int) any {
	p := map[string]any{}
	for range 1 + g.IntN(3) {
		name := pick(g, fields(path)...)
		value := g.pattern(fieldOf(s, path, name), path+"."+name, depth+1)
		if (strings.HasSuffix(path, ".metadata.labels") || strings.HasSuffix(path, ".metadata.annotations")) && g.IntN(3) == 0 {
			name = pick(g, "app*", "*/name", "team-?", "x*")
		}
		key := name
		if depth > 0 || g.IntN(4) == 0 {
			key = strings.Replace(pick(g, "%", "%", "%", "%", "(%)", "=(%)", "=(%)", "X(%)", "^(%)", "<(%)"), "%", name, 1)
		}
		if strings.HasPrefix(key, "^") {
			if _, isList := value.([]any); !isList && g.IntN(8) > 0 {
				key = name
			}
		}
		p[key] = value
	}
	return p
}

func (g *generator) listPattern(s ce.Shape, path string, depth int) any {
	if g.IntN(40) == 0 {
		return []any{}
	}
	element := g.pattern(s.Element(), path+"[]", depth+1)
	if s.Element().Kind() == ce.KindAny && g.IntN(6) == 0 {
		element = g.scalarPattern()
	}
	if s.Kind() == ce.KindAny && g.IntN(20) == 0 {
		return []any{[]any{element}, []any{g.scalarPattern()}}
	}
	if g.IntN(8) == 0 {
		return []any{element, g.pattern(s.Element(), path+"[]", depth+1)}
	}
	return []any{element}
}

func (g *generator) scalarPattern() any {
	text := []string{
		"nginx", "nginx*", "*nginx", "*gin*", "n?inx*", "?*", "*", "Always", "!Always", "!*latest", "!nginx & !redis",
		"nginx | redis", "a* | *b & !ab",
		"5", ">5", ">=5", "<5", "<=5", "!5", "0", ">0", "<0", "5-10", "5!-10", "1-3 | 8-9", "1Gi", "<1Gi", ">=500m",
		"<=100Mi", "!1Gi", "100Mi-2Gi", "100Mi!-2Gi",
		"1h", ">1h", "<=30s", "!1h", "1m-1h", "10m", ">10m", "<500m & >0", "true", "!true", "fal*", "", "1.5", ">1.5",
		"!?*", "-5", ">-5", "x | >5 & <10", "!", ">", "*a*b*",
	}
	switch g.IntN(12) {
	case 0:
		return pick[any](g, true, false)
	case 1:
		return pick[any](g, int64(0), int64(5), int64(-3), int64(80))
	case 2:
		return pick[any](g, nil, 1.5, 2.5)
	}
	return text[g.IntN(len(text))]
}

// objectFor returns an object with the fields that a pattern reads, and some others.
func (g *generator) objectFor(s ce.Shape, pattern any) map[string]any {
	object, _ := g.value(s, pattern, "", 0).(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	if m, ok := object["metadata"].(map[string]any); !ok || len(m) == 0 {
		object["metadata"] = map[string]any{"name": "a"}
	}
	if _, ok := object["spec"]; !ok && s.Field("spec").IsStruct() { // as API servers send it
		object["spec"] = map[string]any{}
	}
	return object
}

func (g *generator) value(s ce.Shape, pattern any, path string, depth int) any {
	kind := s.Kind()
	if kind == ce.KindAny {
		if depth > 0 && g.IntN(15) == 0 {
			return g.anyScalar()
		}
		switch pattern.(type) {
		case map[string]any:
			kind = ce.KindMap
		case []any:
			kind = ce.KindList
		default:
			return pick[any](g, g.anyScalar(), g.anyScalar(), g.anyScalar(), []any{g.anyScalar(), g.anyScalar()}, map[string]any{})
		}
	}
	switch kind {
	case ce.KindMap:
		return g.mapValue(s, pattern, path, depth)
	case ce.KindList:
		return g.listValue(s, pattern, path, depth)
	}
	return g.scalar(kind)
}

func (g *generator) mapValue(s ce.Shape, pattern any, path string, depth int) any {
	m := map[string]any{}
	p, _ := pattern.(map[string]any)
	for key, value := range p {
		_, name := splitKey(key)
		name = strings.NewReplacer("*", "x", "?", "y").Replace(name)
		if strings.HasSuffix(name, "x/name") {
			name = "app.kubernetes.io/name"
		}
		if g.IntN(6) > 0 {
			m[name] = g.value(fieldOf(s, path, name), value, path+"."+name, depth+1)
		}
	}
	if depth < 5 && g.IntN(4) == 0 {
		name := pick(g, fields(path)...)
		if _, exists := m[name]; !exists {
			m[name] = g.value(fieldOf(s, path, name), nil, path+"."+name, depth+1)
		}
	}
	return m
}

func (g *generator) listValue(s ce.Shape, pattern any, path string, depth int) any {
	l := []any{}
	p, _ := pattern.([]any)
	for range g.IntN(4) {
		var element any
		if len(p) > 0 {
			element = p[g.IntN(len(p))]
		}
		l = append(l, g.value(s.Element(), element, path+"[]", depth+1))
	}
	return l
}

func (g *generator) scalar(kind ce.Kind) any {
	switch kind {
	case ce.KindBool:
		return g.IntN(2) == 0
	case ce.KindInt:
		return pick(g, int64(0), int64(1), int64(5), int64(7), int64(10), int64(80), int64(-3))
	case ce.KindIntOrString:
		return pick[any](g, int64(5), int64(0), "5", "http", "25%")
	case ce.KindQuantity:
		return pick[any](g, "1Gi", "500m", "100Mi", "2", "0", "10m", int64(1), int64(0), "512Mi")
	}
	return pick[any](g, "nginx", "nginx:1", "my-nginx", "redis", "Always", "a:latest", "IfNotPresent", "5", "7", "0",
		"1Gi", "200Mi", "10m", "1h", "90s", "true", "", "ab", "x", "1.5", "05", "-3", "aXbX", "1h30m", "line\nnginx")
}

func (g *generator) anyScalar() any {
	return pick[any](g, nil, g.scalar(ce.KindString), g.scalar(ce.KindString), g.scalar(ce.KindInt), g.scalar(ce.KindBool), 1.5, 0.25, 3.0)
}
