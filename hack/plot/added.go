package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
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
	return os.WriteFile(image, []byte(addedPicture(order, lines)), 0o644)
}

// The picture has logarithmic axes: 1 to 100 policies, and 0.03 to 100 ms.
const (
	left, right, top, bottom = 64.0, 250.0, 72.0, 300.0
	lowest, highest          = 0.03, 100.0
)

func xOf(policies float64) float64 { return left + (right-left)*math.Log10(policies)/2 }

func yOf(ms float64) float64 {
	return bottom - (bottom-top)*math.Log10(ms/lowest)/math.Log10(highest/lowest)
}

// addedPicture draws lines with their names at the right end, in the colours of both themes, as the
// other drawings in docs/images.
func addedPicture(order []string, lines map[string]plotter.XYs) string {
	var b strings.Builder
	b.WriteString(addedStart)
	for _, policies := range []float64{1, 10, 100} {
		fmt.Fprintf(&b, `  <text class="soft mid" x="%.0f" y="%.0f">%g</text>`+"\n", xOf(policies), bottom+20, policies)
	}
	for _, ms := range []float64{0.1, 1, 10, 100} {
		fmt.Fprintf(&b, `  <path class="grid" d="M%.0f %.1f H%.0f"/><text class="soft end" x="%.0f" y="%.1f">%g ms</text>`+"\n",
			left, yOf(ms), right, left-6, yOf(ms)+5, ms)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(last(lines[b]).Y, last(lines[a]).Y) })
	label := 0.0
	for _, name := range order {
		var path strings.Builder
		for i, point := range lines[name] {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: " L"}[i == 0], xOf(point.X), yOf(point.Y))
		}
		class := map[bool]string{true: "own", false: "other"}[name == "Ostiary"]
		label = max(label+18, yOf(last(lines[name]).Y)+5)
		fmt.Fprintf(&b, `  <path class="%s" d="%s"/><text class="%s" x="%.0f" y="%.1f">%s</text>`+"\n",
			class, path.String(), class, right+8, label, name)
	}
	return b.String() + "</svg>\n"
}

func last(points plotter.XYs) plotter.XY { return points[len(points)-1] }

const addedStart = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 350" width="480" height="350"
    role="img" aria-labelledby="title">
  <title id="title">CPU that admission adds to the creation of a Pod</title>
  <style>
    svg { --back: #ffffff; --text: #1f2328; --soft: #57606a; --own: #0969da; --grid: #d8dee4 }
    @media (prefers-color-scheme: dark) { svg { --back: #1b1b1f; --text: #e6edf3; --soft: #a5adb6; --own: #58a6ff; --grid: #3a4048 } }
    text { font: 14px system-ui, sans-serif; fill: var(--text) }
    .soft { fill: var(--soft) } .mid { text-anchor: middle } .end { text-anchor: end } .name { font-weight: 600 }
    path { fill: none; stroke-width: 2 } path.grid { stroke: var(--grid); stroke-width: 1 }
    path.other { stroke: var(--soft); stroke-dasharray: 6 3 }
    path.own { stroke: var(--own); stroke-width: 3.5 } text.own { fill: var(--own); font-weight: 600 } .back { fill: var(--back) }
  </style>
  <rect class="back" width="480" height="350"/>
  <text class="name" x="8" y="22">CPU that admission adds to the creation of a Pod</text>
  <text class="soft" x="8" y="44">API server and webhook servers, 8 callers</text>
  <text class="soft mid" x="157" y="340">policies that match</text>
`
