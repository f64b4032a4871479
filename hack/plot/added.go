package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// matching finds the rows of docs/performance/results.md about so many policies that
// match, with the engine, the version of the API server and the callers.
var matching = regexp.MustCompile(`^\| (\d+) matching \| ([^|]+) \| ([^|]+) \| 8 \|`)

// addedColumn is the column "added CPU µs/request" of these rows.
const addedColumn = 12

// drawAdded draws the CPU that each engine adds, over the number of policies.
func drawAdded(results, image string) error {
	text, err := os.ReadFile(results)
	if err != nil {
		return fmt.Errorf("reading the results: %w", err)
	}
	lines, order := map[string]plotter.XYs{}, []string{}
	for line := range strings.Lines(string(text)) {
		m := matching.FindStringSubmatch(line)
		if m == nil || m[2] == "no policy" {
			continue
		}
		policies, errPolicies := strconv.ParseFloat(m[1], 64)
		added, errAdded := strconv.ParseFloat(strings.TrimSpace(strings.Split(line, "|")[addedColumn]), 64)
		if err := errors.Join(errPolicies, errAdded); err != nil {
			return fmt.Errorf("reading %q: %w", line, err)
		}
		name := m[2]
		if name == "native" {
			name += ", Kubernetes " + m[3]
		}
		if name == "Ostiary" && strings.Contains(string(text), "native | 1.37") && !strings.HasPrefix(m[3], "1.37") {
			continue // the same manager behind an older API server
		}
		if lines[name] == nil {
			order = append(order, name)
		}
		lines[name] = append(lines[name], plotter.XY{X: policies, Y: max(added/1000, 0.01)})
	}
	if len(order) == 0 {
		return fmt.Errorf("%s has no rows about matching policies", results)
	}
	p := plot.New()
	p.Title.Text = "CPU that admission adds to the creation of a Pod"
	p.X.Label.Text, p.Y.Label.Text = "policies that match", "ms (API server and webhook servers)"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	var arguments []any
	for _, name := range order {
		arguments = append(arguments, name, lines[name])
	}
	if err := plotutil.AddLinePoints(p, arguments...); err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	return p.Save(6*vg.Inch, 4*vg.Inch, image)
}
