package pattern

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// FuzzCompile compiles patterns: the result is an error, or CEL that compiles.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{"containers":[{"(image)":"*:latest","imagePullPolicy":"!Always"}]}}`,
		`{"metadata":{"labels":{"app.kubernetes.io/*":"?*"}},"spec":{"=(volumes)":[{"X(hostPath)":"null"}]}}`,
		`{"spec":{"^(containers)":[{"resources":{"limits":{"memory":"<=4Gi & >1Mi | 5!-6"}}}],"<(replicas)":">1"}}`,
		`[[1,null],[true]]`, `"\"\\\n{{ x }}"`, `{"spec":{"a b":"` + "`" + `","":"''"}}`, `{"(((":"1h-2h","()":{},"=()":[]}`,
	} {
		f.Add([]byte(seed))
	}
	env := newEnv(f)
	shapes := []ce.Shape{{}, ce.ShapeOfKinds(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})}
	f.Fuzz(func(t *testing.T, text []byte) {
		var pattern any
		if json.Unmarshal(text, &pattern) != nil {
			return
		}
		for _, s := range shapes {
			e, err := Compile(pattern, ce.ObjectPlace("object", s))
			if err != nil {
				continue
			}
			if len(e.String()) > maxExpression {
				t.Fatalf("the expression has %d bytes", len(e.String()))
			}
			if len(e.String()) < maxSource {
				newProgram(t, env, e.Bool().String())
			}
		}
	})
}
