package convert

import (
	"fmt"
	"io"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/migrate"
)

// inventory is what --inventory writes.
type inventory struct {
	*migrate.Inventory
	Unread
}

// printInventory writes the inventory.
func (c *convertCommand) printInventory(w io.Writer, r *result) error {
	in := &inventory{Inventory: r.Inventory(), Unread: r.unread()}
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
	header := []string{"KIND", "OBJECTS", "CONVERT", "PARTLY", "LEFT OUT", "KYVERNO 1.20"}
	if err := output.WriteTable(w, header, rows); err != nil {
		return err
	}
	if _, err := io.WriteString(w, output.Wrap(w, in.text())); err != nil {
		return fmt.Errorf("writing the inventory: %w", err)
	}
	return nil
}
