package convert

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// kyvernoClassic is the group of the policies that Kyverno 1.20 does not execute.
const kyvernoClassic = "kyverno.io"

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

func (r *result) inventory() *Inventory {
	byKind := map[schema.GroupKind]*InventoryKind{}
	for i := range r.conversions {
		c := &r.conversions[i]
		kind := c.Source.GroupVersionKind().GroupKind()
		if byKind[kind] == nil {
			byKind[kind] = &InventoryKind{Kind: kind.String(), Stops: kind.Group == kyvernoClassic}
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

// printInventory writes the inventory.
func (c *command) printInventory(w io.Writer, in *Inventory) error {
	if c.report != output.Table {
		o := *c.Options
		o.Out, o.Format = w, c.report
		return o.Print(in)
	}
	rows := make([][]string, len(in.Kinds))
	for i, k := range in.Kinds {
		stops := ""
		if k.Stops {
			stops = "not executed"
		}
		rows[i] = []string{k.Kind, fmt.Sprint(k.Objects), fmt.Sprint(k.Convert), fmt.Sprint(k.Partly), fmt.Sprint(k.LeftOut), stops}
	}
	return output.WriteTable(w, []string{"KIND", "OBJECTS", "CONVERT", "PARTLY", "LEFT OUT", "KYVERNO 1.20"}, rows)
}
