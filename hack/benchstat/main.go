// Command benchstat says by what factor the CPU per request of a revision of the manager
// differs from that of another, from the lines that hack/bench -base prints. It fails if
// it can be more than 5 % higher, or more than the factor of the line "limit:" before
// measurements says: if the upper end of the confidence interval is, for any set of policies.
//
//	go run . FILE
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

const (
	confidence = 0.95
	// defaultMost is the highest factor that passes, unless the measurements have another one.
	defaultMost = 1.05
)

var errSlower = errors.New("the CPU per request can be more than 5 % higher than that of the base, or more than the limit of the measurements")

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "benchstat: give the file that hack/bench -base has written")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchstat: "+err.Error())
		os.Exit(1)
	}
}

func run(name string, out io.Writer) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("reading the measurements: %w", err)
	}
	defer file.Close()
	all, err := read(file)
	if err != nil {
		return fmt.Errorf("reading the measurements: %w", err)
	}
	return compare(all, out)
}

// rounds are the measurements of one benchmark, in their order.
type rounds struct {
	base, head []float64
	most       float64 // the highest factor that passes
}

// read returns the rounds by the names of benchmarks.
func read(in io.Reader) (map[string]*rounds, error) {
	all := map[string]*rounds{}
	reader := benchfmt.NewReader(in, "measurements")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			name := record.Name.String()
			if all[name] == nil {
				all[name] = &rounds{most: defaultMost}
			}
			if err := all[name].add(record); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return all, reader.Err()
}

func (r *rounds) add(result *benchfmt.Result) error {
	value, ok := result.Value("sec/op")
	if !ok || value <= 0 {
		return errors.New("a line has no ns/op above 0")
	}
	if limit := result.GetConfig("limit"); limit != "" {
		var err error
		if r.most, err = strconv.ParseFloat(limit, 64); err != nil {
			return fmt.Errorf("limit %q: want a factor, such as 1.1", limit)
		}
	}
	switch revision := result.GetConfig("revision"); revision {
	case "base":
		r.base = append(r.base, value)
	case "head":
		r.head = append(r.head, value)
	default:
		return fmt.Errorf("revision %q: want base or head", revision)
	}
	return nil
}

// compare prints the factor for each benchmark.
func compare(all map[string]*rounds, out io.Writer) error {
	if len(all) == 0 {
		return errors.New("there are no measurements")
	}
	var failed error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		s, err := r.factor()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		verdict := "held"
		if s.Hi > r.most {
			verdict, failed = "NOT HELD", errSlower
		}
		fmt.Fprintf(out, "%s: head/base %.3f, %.1f %% confidence interval %.3f to %.3f, at most %.2f: %s\n",
			name, s.Center, s.Confidence*100, s.Lo, s.Hi, r.most, verdict)
	}
	return failed
}

// factor is the median of head/base over the rounds, with its confidence interval.
//
// The two measurements of a round follow each other, so that what the rest of the
// machine does changes both, and cancels out in their ratio: ratios differ less from
// each other than measurements do. The interval is that of the median by order
// statistics, as benchstat's are. It assumes nothing about the distribution, which has
// outliers on a busy machine: of ten ratios, the interval is from the second to the
// ninth, and contains the true median with a probability of 97.9 %.
func (r *rounds) factor() (benchmath.Summary, error) {
	if len(r.base) != len(r.head) {
		return benchmath.Summary{}, fmt.Errorf("%d rounds of base and %d of head: give equally many", len(r.base), len(r.head))
	}
	ratios := make([]float64, len(r.base))
	for i := range ratios {
		ratios[i] = r.head[i] / r.base[i]
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(ratios, &benchmath.DefaultThresholds), confidence)
	return s, errors.Join(s.Warnings...) // too few for an interval
}
