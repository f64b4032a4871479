package convert

import (
	"fmt"
	"io"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/migrate"
)

// printInventory writes the inventory.
func (c *convertCommand) printInventory(w io.Writer, in *migrate.Inventory) error {
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
		rows[i] = []string{
			k.Kind,
			fmt.Sprint(k.Objects),
			fmt.Sprint(k.Convert),
			fmt.Sprint(k.Partly),
			fmt.Sprint(k.LeftOut),
			stops,
		}
	}
	return output.WriteTable(w, []string{"KIND", "OBJECTS", "CONVERT", "PARTLY", "LEFT OUT", "KYVERNO 1.20"}, rows)
}
