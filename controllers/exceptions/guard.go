package exceptions

import (
	"bytes"
	"fmt"
	"reflect"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/config/rbac"
)

// GuardName is the name of the ValidatingAdmissionPolicy, and of its binding, that checks who may
// write exceptions.
const GuardName = "ostiary-policy-exceptions"

// guard observes one of the two objects that guard exceptions. It implements objects.Target.
type guard struct {
	clock
	spec    map[string]any // that is installed
	changed func()

	found  bool // in the current list
	exists atomic.Bool
	synced atomic.Bool
}

func (g *guard) BeginList() { g.found = false }

func (g *guard) EndList(string) {
	g.set(g.found)
	g.synced.Store(true)
	g.changed()
}

func (g *guard) Put(raw []byte, _ bool) error {
	var stored object
	err := json.Unmarshal(raw, &stored)
	g.found = err == nil && reflect.DeepEqual(stored.Spec, g.spec)
	g.set(g.found)
	return err
}

func (g *guard) Remove([]byte) error {
	g.set(false)
	return nil
}

func (g *guard) IsIncomplete() bool { return false }

func (g *guard) set(exists bool) {
	if g.exists.Swap(exists) != exists {
		g.changed()
	}
}

// guards reports whether the API server checks who may write exceptions, as far as this replica
// knows.
func (g *guard) guards() bool { return g.exists.Load() && g.isCurrent() }

// newGuards returns the observers of the policy and its binding.
func newGuards(changed func()) ([]*guard, error) {
	var out []*guard
	for _, document := range bytes.Split(rbac.ExceptionPolicy, []byte("\n---\n")) {
		var shipped object
		if err := yaml.Unmarshal(document, &shipped); err != nil {
			return nil, fmt.Errorf("reading the policy that guards exceptions: %w", err)
		}
		out = append(out, &guard{spec: withDefaults(shipped.Spec), changed: changed})
	}
	return out, nil
}

// object is one of the two objects, with every field of its spec: one that this version does not
// know could limit what is checked.
type object struct {
	Spec map[string]any `json:"spec"`
}

// withDefaults returns a spec as API servers store it.
func withDefaults(spec map[string]any) map[string]any {
	constraints, ok := spec["matchConstraints"].(map[string]any)
	if !ok {
		return spec
	}
	constraints["namespaceSelector"], constraints["objectSelector"] = map[string]any{}, map[string]any{}
	rules, _ := constraints["resourceRules"].([]any)
	for _, rule := range rules {
		if rule, ok := rule.(map[string]any); ok {
			rule["scope"] = "*"
		}
	}
	return spec
}
