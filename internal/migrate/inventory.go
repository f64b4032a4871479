package migrate

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Inventory counts objects by kind.
type Inventory struct {
	Kinds []InventoryKind `json:"kinds"`
}

// InventoryKind counts the objects of a kind by what becomes of them.
type InventoryKind struct {
	Kind    string `json:"kind"`
	Objects int    `json:"objects"`
	Convert int    `json:"convert"`
	// Partly are objects of which some rules are left out.
	Partly  int `json:"partly"`
	LeftOut int `json:"leftOut"`
	// Stops means that Kyverno 1.20 does not execute the kind.
	Stops bool `json:"stopsInKyverno120"`
}

// Inventory counts the objects of the conversion.
func (r *Result) Inventory() *Inventory {
	byKind := map[schema.GroupKind]*InventoryKind{}
	for i := range r.Conversions {
		c := &r.Conversions[i]
		kind := c.Source.GroupVersionKind().GroupKind()
		if byKind[kind] == nil {
			byKind[kind] = &InventoryKind{Kind: kind.String(), Stops: isNotExecuted(kind)}
		}
		k := byKind[kind]
		k.Objects++
		left := 0
		for _, row := range c.Rows {
			if row.Outcome == conversion.LeftOut {
				left++
			}
		}
		switch {
		case left == 0:
			k.Convert++
		case len(c.Outputs) > 0 && left < len(c.Rows):
			k.Partly++
		default:
			k.LeftOut++
		}
	}
	out := &Inventory{}
	for _, k := range byKind {
		out.Kinds = append(out.Kinds, *k)
	}
	slices.SortFunc(out.Kinds, func(a, b InventoryKind) int { return strings.Compare(a.Kind, b.Kind) })
	return out
}

// isNotExecuted reports whether a later release of the project does not execute a kind.
func isNotExecuted(kind schema.GroupKind) bool {
	return slices.ContainsFunc(Sources(), func(s conversion.Source) bool { return s.NotIn != "" && s.Owns(kind) })
}
