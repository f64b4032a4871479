// Command plot draws the main panels of the dashboard from what a Prometheus
// has shown in test/install, and the added CPU from the results of a benchmark:
//
//	go test ./test/install -run TestInstallation -args -record=/tmp/panels.json
//	cd hack/plot && go run . /tmp/panels.json ../../docs/images/dashboard.png
//	cd hack/plot && go run . ../../docs/performance/results.md ../../docs/images/added-cpu.svg
//
// It is a module of its own: nothing else needs a library that draws.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

const (
	columns       = 2
	width, height = 5.2 * vg.Inch, 2.6 * vg.Inch
)

// panel is one of the picture: the title of one of the dashboard, and the unit.
type panel struct {
	title, unit string
	scale       float64
}

func picture() []panel {
	return []panel{
		{"Decisions", "per second", 1},
		{"Response time of Ostiary", "ms", 1000},
		{"Calls by status", "per second", 1},
		{"Wait of API servers, p99", "ms", 1000},
		{"Failed calls, as API servers count them", "per second", 1},
		{"Memory", "MiB", 1.0 / (1 << 20)},
		{"Violations of stored objects", "objects", 1},
	}
}

// answer is what Prometheus says to a query over a range of time.
type answer struct {
	Data struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) != 2 {
		return errors.New("name the file that was recorded and the picture to write")
	}
	if strings.HasSuffix(files[1], ".svg") {
		return drawAdded(files[0], files[1])
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var answers map[string]answer
	if err := json.Unmarshal(raw, &answers); err != nil {
		return fmt.Errorf("reading %s: %w", files[0], err)
	}
	canvas := vgimg.NewWith(vgimg.UseWH(columns*width, vg.Length((len(picture())+columns-1)/columns)*height), vgimg.UseDPI(96))
	tiles := draw.Tiles{Rows: (len(picture()) + columns - 1) / columns, Cols: columns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4}
	for i, p := range picture() {
		drawn, err := p.draw(answers)
		if err != nil {
			return fmt.Errorf("drawing %q: %w", p.title, err)
		}
		drawn.Draw(tiles.At(draw.New(canvas), i%columns, i/columns))
	}
	out, err := os.Create(files[1])
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(out)
	return errors.Join(err, out.Close())
}

func (p panel) draw(answers map[string]answer) (*plot.Plot, error) {
	out := plot.New()
	out.Title.Text, out.Y.Label.Text, out.X.Label.Text = p.title, p.unit, "seconds"
	out.Legend.Top, out.Legend.Left = true, true
	out.Legend.TextStyle.Font.Size = vg.Points(7)
	out.Add(plotter.NewGrid())
	out.Y.Min = 0
	n, top := 0, 0.0
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		title, legend, _ := strings.Cut(key, "|")
		if title != p.title {
			continue
		}
		for _, series := range answers[key].Data.Result {
			points := p.points(series.Values)
			if len(points) == 0 {
				continue
			}
			line, err := plotter.NewLine(points)
			if err != nil {
				return nil, err
			}
			line.Width, line.Color = vg.Points(1.3), seriesColor(n)
			out.Add(line)
			out.Legend.Add(named(legend, series.Metric), line)
			for _, point := range points {
				top = max(top, point.Y)
			}
			n++
		}
	}
	if n == 0 {
		return nil, errors.New("there is no data")
	}
	out.Y.Max = top * 1.6 // room for the legend
	return out, nil
}

func seriesColor(n int) color.Color { return plotutil.DarkColors[n%len(plotutil.DarkColors)] }

func (p panel) points(values [][2]any) (out plotter.XYs) {
	for _, value := range values {
		at, _ := value[0].(float64)
		text, _ := value[1].(string)
		y, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(y) {
			continue
		}
		out = append(out, plotter.XY{X: at, Y: y * p.scale})
	}
	if len(out) > 0 {
		start := out[0].X
		for i := range out {
			out[i].X -= start
		}
	}
	return out
}

// named fills in a legend as Grafana does.
func named(legend string, labels map[string]string) string {
	for label, value := range labels {
		legend = strings.ReplaceAll(legend, "{{"+label+"}}", value)
	}
	return legend
}
