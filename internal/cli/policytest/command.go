// Package policytest is the command test, which runs PolicyTests.
package policytest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/ostiary/ostiary/internal/cli/inputs"
	"github.com/ostiary/ostiary/internal/cli/output"
)

type command struct {
	*output.Options

	run         string
	failFast    bool
	update      bool
	verbose     bool
	coverage    bool
	coverageMin float64
	mutate      bool
	again       bool
	root        string
	at          inputs.Time
	allowRemote bool
}

// NewCommand returns the command.
func NewCommand(o *output.Options) *cobra.Command {
	run := &command{Options: o}
	c := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run PolicyTests",
		Long: "Run the PolicyTests of files and directories; the default is the current directory.\n\n" +
			"A case passes if the policies decide as it expects. An evaluation that fails with an error never passes, even if a denial " +
			"is expected. Exit status 1 means that a case failed, that the coverage is too low, or that no case detects a change of --mutate.",
		Example: "  kubectl ostiary test\n" +
			"  kubectl ostiary test tests --run require-team --coverage\n" +
			"  kubectl ostiary test tests --mutate -o json",
		RunE: func(c *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{"."}
			}
			if run.again {
				return run.watch(c.Context(), paths)
			}
			return run.execute(c.Context(), paths)
		},
	}
	f := c.Flags()
	f.StringVar(&run.run, "run", "", "run only the cases whose name, \"TEST/CASE\", matches this regular expression")
	f.BoolVar(&run.failFast, "fail-fast", false, "stop after the first case that fails")
	f.BoolVar(&run.update, "update", false, "write the objects after mutations to the objectFiles of the cases")
	f.BoolVarP(&run.verbose, "verbose", "v", false, "also show the cases that pass")
	f.BoolVar(&run.coverage, "coverage", false, "show how often each expression was true, false, failed or skipped")
	f.Float64Var(&run.coverageMin, "coverage-min", 0, "fail if the cases have less than this percentage of the possible results of expressions (implies --coverage)")
	f.BoolVar(&run.mutate, "mutate", false, "change each expression in turn, and show the changes that no case detects")
	f.BoolVar(&run.again, "watch", false, "run again after each change of a file, until Ctrl-C")
	f.StringVar(&run.root, "root", "", "folder in which tests can name files; default is the working directory or the folder of PATH, and for an objectFile the folder of its test")
	inputs.AddAllowRemote(f, &run.allowRemote)
	run.at.AddTime(f)
	o.AddFormat(c, output.JUnit, output.GitHub)
	return c
}

func (c *command) loadOptions() LoadOptions {
	return LoadOptions{Stdin: c.In, Root: c.root, At: c.at.Time, AllowRemote: c.allowRemote}
}

// Report is the result of a run.
type Report struct {
	Passed   int          `json:"passed"`
	Failed   int          `json:"failed"`
	Skipped  int          `json:"skipped"` // after the first failure, with --fail-fast
	Cases    []ReportCase `json:"cases"`
	Coverage []*Line      `json:"coverage,omitempty"`
	// Percent is the part of the wanted results of expressions that cases have.
	Percent *float64 `json:"coveragePercent,omitempty"`
	// Survivors are the changes that no case detects, of Mutants.
	Survivors []Mutant `json:"survivors,omitempty"`
	Mutants   int      `json:"mutants,omitempty"`
}

func (c *command) execute(ctx context.Context, paths []string) error {
	only, err := regexp.Compile(c.run)
	if err != nil {
		return fmt.Errorf("invalid argument %q for --run: %w", c.run, err)
	}
	if c.coverageMin < 0 || c.coverageMin > 100 {
		return fmt.Errorf("invalid argument %v for --coverage-min: want 0 to 100", c.coverageMin)
	}
	progress := c.StartProgress("reading tests")
	defer progress.Stop()
	skipped := output.NewSkipped(progress)
	options := c.loadOptions()
	options.Skip = skipped.Add
	suites, err := Load(ctx, paths, options)
	if err != nil {
		return err
	}
	cases := selected(suites, only)
	if len(cases) == 0 {
		if len(suites) == 0 {
			return skipped.Instead(errors.New("no test can be run"))
		}
		return fmt.Errorf("no case matches --run %q", c.run)
	}
	skipped.Write()
	progress.Begin("running cases", int64(len(cases)))
	report, err := c.runAll(ctx, suites, cases, progress)
	if err != nil {
		return err
	}
	if c.mutate && report.Failed == 0 {
		if report.Survivors, report.Mutants, err = survivors(ctx, suites, cases, progress); err != nil {
			return err
		}
	}
	progress.Stop()
	if err := c.print(report); err != nil {
		return err
	}
	return skipped.Result(c.verdict(report))
}

// verdict returns an error for findings.
func (c *command) verdict(r *Report) error {
	switch {
	case r.Failed > 0:
		return &output.FindingsError{Text: fmt.Sprintf("%s passed, %d failed", output.Count(r.Passed, "case", "cases"), r.Failed)}
	case r.Percent != nil && *r.Percent < c.coverageMin:
		return &output.FindingsError{Text: fmt.Sprintf("the coverage is %.1f%%, and --coverage-min is %.1f%%", *r.Percent, c.coverageMin)}
	case len(r.Survivors) > 0:
		return &output.FindingsError{Text: fmt.Sprintf("no case detects %d of %d changes", len(r.Survivors), r.Mutants)}
	}
	_, err := fmt.Fprintf(c.ErrOut, "%s passed\n", output.Count(r.Passed, "case", "cases"))
	return err
}

func selected(suites []*Suite, only *regexp.Regexp) (out []*Case) {
	for _, s := range suites {
		for _, c := range s.Cases {
			if only.MatchString(c.String()) {
				out = append(out, c)
			}
		}
	}
	return out
}

// runAll runs cases concurrently.
func (c *command) runAll(ctx context.Context, suites []*Suite, cases []*Case, progress *output.Progress) (*Report, error) {
	coverage := newCoverage(suites)
	results := make([]*ReportCase, len(cases))
	failed := make([]error, len(cases))
	var next atomic.Int64
	var stop atomic.Bool
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(cases) && ctx.Err() == nil && !stop.Load(); i = int(next.Add(1)) - 1 {
				results[i], failed[i] = c.runCase(ctx, cases[i], coverage)
				progress.Add(1)
				if failed[i] != nil || c.failFast && len(results[i].Problems) > 0 {
					stop.Store(true)
				}
			}
		})
	}
	running.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	report := newReport(results)
	if c.coverage || c.coverageMin > 0 {
		percent := coverage.Percent()
		report.Coverage, report.Percent = coverage.Lines(), &percent
	}
	return report, nil
}

// newReport counts results; nil is a case that was not run.
func newReport(results []*ReportCase) *Report {
	report := &Report{}
	for _, r := range results {
		switch {
		case r == nil:
			report.Skipped++
			continue
		case len(r.Problems) > 0:
			report.Failed++
		default:
			report.Passed++
		}
		report.Cases = append(report.Cases, *r)
	}
	return report
}

func (c *command) runCase(ctx context.Context, k *Case, coverage *Coverage) (*ReportCase, error) {
	trace, finish := coverage.trace(k.suite.policies)
	problems, result, err := k.check(ctx, nil, trace, c.update)
	if err != nil {
		return nil, err
	}
	finish(result)
	return newReportCase(k, problems), nil
}
