package policytest

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
)

// ReportCase is the result of a case.
type ReportCase struct {
	Test     string          `json:"test"`
	Case     string          `json:"case"`
	Position load.Position   `json:"position"`
	Problems []ReportProblem `json:"problems,omitempty"`
}

// ReportProblem is a problem with its position.
type ReportProblem struct {
	Problem
	Position load.Position `json:"position"`
}

func newReportCase(c *Case, problems []Problem) *ReportCase {
	out := &ReportCase{Test: c.suite.Name, Case: c.Name, Position: c.Position("")}
	for _, p := range problems {
		out.Problems = append(out.Problems, ReportProblem{Problem: p, Position: c.Position(p.Field)})
	}
	return out
}

func (c *command) print(r *Report) error {
	switch c.Format {
	case output.Table:
		return c.printText(r)
	case output.JUnit:
		return c.printJUnit(r)
	case output.GitHub:
		return c.printGitHub(r)
	}
	return c.Print(r)
}

func (c *command) printText(r *Report) error {
	style := output.Colored(c.Out)
	var out strings.Builder
	for _, k := range r.Cases {
		name := output.Printable(k.Test + "/" + k.Case)
		switch {
		case len(k.Problems) > 0:
			fmt.Fprintf(&out, "%s %s\n", output.Paint(style, output.Red, "FAIL"), name)
			for _, p := range k.Problems {
				fmt.Fprintf(&out, "  %s: %s: %s\n", p.Position, p.Field, strings.ReplaceAll(strings.TrimSpace(p.Text), "\n", "\n    "))
				for _, why := range p.Why {
					fmt.Fprintf(&out, "    because %s\n", output.Printable(why))
				}
			}
		case c.verbose:
			fmt.Fprintf(&out, "%s %s\n", output.Paint(style, output.Green, "PASS"), name)
		}
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&out, "%s not run\n", output.Count(r.Skipped, "case was", "cases were"))
	}
	if _, err := fmt.Fprint(c.Out, output.Wrap(c.Out, out.String())); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if r.Percent != nil {
		if err := c.printCoverage(r); err != nil {
			return err
		}
	}
	if r.Mutants > 0 {
		return c.printMutants(r)
	}
	if len(r.Cases) == r.Passed && !c.verbose && r.Percent == nil {
		_, err := fmt.Fprintf(c.Out, "%s %s\n", output.Paint(style, output.Green, "PASS"), output.Count(r.Passed, "case", "cases"))
		return err
	}
	return nil
}

func (c *command) printCoverage(r *Report) error {
	var rows [][]string
	for _, l := range r.Coverage {
		number := func(n int, shown bool) string {
			if !shown {
				return "-"
			}
			return fmt.Sprint(n)
		}
		field := l.Field
		if l.Validation != "" {
			field += " (" + l.Validation + ")"
		}
		rows = append(rows, []string{l.Policy, field, fmt.Sprint(l.True), number(l.False, l.both), fmt.Sprint(l.Failed), fmt.Sprint(l.Skipped), strings.Join(l.Missing, ", ")})
	}
	if err := output.WriteTable(c.Out, []string{"POLICY", "EXPRESSION", "TRUE", "FALSE", "FAILED", "SKIPPED", "MISSING"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.Out, "coverage: %.1f%%\n", *r.Percent)
	return err
}

func (c *command) printMutants(r *Report) error {
	var rows [][]string
	for _, m := range r.Survivors {
		rows = append(rows, []string{m.Position.String(), m.Policy, m.Field, m.Change})
	}
	if len(rows) > 0 {
		if err := output.WriteTable(c.Out, []string{"POSITION", "POLICY", "EXPRESSION", "UNDETECTED CHANGE"}, rows); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.Out, "%d of %d changes are detected\n", r.Mutants-len(r.Survivors), r.Mutants)
	return err
}

// The elements of JUnit's XML.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func (c *command) printJUnit(r *Report) error {
	var all junitSuites
	for _, k := range r.Cases {
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != k.Test {
			all.Suites = append(all.Suites, junitSuite{Name: k.Test})
		}
		s := &all.Suites[len(all.Suites)-1]
		out := junitCase{Name: k.Case, Class: k.Test, File: k.Position.File, Line: k.Position.Line}
		if len(k.Problems) > 0 {
			s.Failures++
			out.Failure = &junitFailure{Message: k.Problems[0].Field + ": " + k.Problems[0].Text, Text: textOfProblems(k.Problems)}
		}
		s.Tests++
		s.Cases = append(s.Cases, out)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	_, err = fmt.Fprintf(c.Out, "%s%s\n", xml.Header, text)
	return err
}

func textOfProblems(problems []ReportProblem) string {
	var out strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&out, "%s: %s: %s\n", p.Position, p.Field, p.Text)
		for _, why := range p.Why {
			fmt.Fprintf(&out, "because %s\n", why)
		}
	}
	return out.String()
}

// printGitHub writes workflow commands, which GitHub shows beside the lines.
func (c *command) printGitHub(r *Report) error {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var out strings.Builder
	note := func(level string, at load.Position, title, text string) {
		fmt.Fprintf(&out, "%s%s file=%s,line=%d,col=%d,title=%s::%s\n", output.WorkflowCommand(c.Out), level, property.Replace(at.File), at.Line, at.Column, property.Replace(title), data.Replace(text))
	}
	for _, k := range r.Cases {
		for _, p := range k.Problems {
			note("error", p.Position, k.Test+"/"+k.Case, p.Field+": "+p.Text)
		}
	}
	for _, l := range r.Coverage {
		if len(l.Missing) > 0 {
			note("warning", l.Position, l.Policy, l.Field+": no case has the result: "+strings.Join(l.Missing, ", "))
		}
	}
	for _, m := range r.Survivors {
		note("warning", m.Position, m.Policy, m.Field+": no case detects the change to "+m.Change)
	}
	fmt.Fprintf(&out, "%s passed, %d failed\n", output.Count(r.Passed, "case", "cases"), r.Failed)
	_, err := fmt.Fprint(c.Out, output.Wrap(c.Out, out.String()))
	return err
}
