package convert

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/verify"
)

// Report says what became of each rule.
type Report struct {
	Converted int          `json:"converted"`
	Changed   int          `json:"changed"`
	LeftOut   int          `json:"leftOut"`
	Rules     []ReportRule `json:"rules"`
	// Verified is the result of the tests of the sources.
	Verified *verify.Result `json:"verified,omitempty"`
	// Compared is the result of the comparison about objects.
	Compared *verify.Result `json:"compared,omitempty"`
	Unread
}

// ReportRule is what became of one rule.
type ReportRule struct {
	Source      string             `json:"source"`
	Rule        string             `json:"rule,omitempty"`
	Result      conversion.Outcome `json:"result"`
	Policy      string             `json:"policy,omitempty"`
	Detail      string             `json:"detail,omitempty"`
	Alternative string             `json:"alternative,omitempty"`
	Position    load.Position      `json:"position"`
}

func (r *result) report() *Report {
	out := &Report{Rules: []ReportRule{}, Unread: r.unread()} // rules are not null
	out.Verified, out.Compared = r.verified, r.compared
	for i := range r.Conversions {
		c := &r.Conversions[i]
		for _, row := range c.Rows {
			field := row.Field
			if field == "" {
				field = row.Rule
			}
			rule := ReportRule{
				Source:      c.Source.String(),
				Rule:        row.Rule,
				Result:      row.Outcome,
				Detail:      row.Detail,
				Alternative: row.Alternative,
				Position:    cmp.Or(row.At, c.Source.At(field)),
			}
			if row.Output != nil {
				rule.Policy = row.Output.Object.GetName()
			}
			out.Rules = append(out.Rules, rule)
			switch row.Outcome {
			case conversion.Converted:
				out.Converted++
			case conversion.Changed:
				out.Changed++
			case conversion.LeftOut:
				out.LeftOut++
			}
		}
	}
	return out
}

// printReport writes the report.
func (c *convertCommand) printReport(w io.Writer, r *Report, audited int) error {
	if c.report != output.Table {
		o := *c.Options
		o.Out, o.Format = w, c.report
		return o.Print(r)
	}
	rows := make([][]string, len(r.Rules))
	for i, rule := range r.Rules {
		rows[i] = []string{rule.Source, rule.Rule, string(rule.Result), detailText(rule)}
	}
	if err := output.WriteTable(w, []string{"SOURCE", "RULE", "RESULT", "DETAIL"}, rows); err != nil {
		return err
	}
	text := fmt.Sprintf("%d converted, %d changed, %d left out\n", r.Converted, r.Changed, r.LeftOut) + r.text()
	if audited > 0 {
		text += output.Count(
			audited,
			"policy has",
			"policies have",
		) + " the action Audit: --actions keep keeps the actions of their sources\n"
	}
	text += verifiedText(r.Compared, "decisions") + verifiedText(r.Verified, "assertions")
	if _, err := io.WriteString(w, output.Wrap(w, text)); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func detailText(r ReportRule) string {
	parts := make([]string, 0, 2)
	for _, part := range []string{r.Detail, r.Alternative} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ": ")
	if r.Result == conversion.LeftOut {
		text = r.Position.String() + ": " + text
	}
	return text
}

// verifiedText describes the result of tests or of a comparison.
func verifiedText(v *verify.Result, what string) string {
	if v == nil {
		return ""
	}
	var out strings.Builder
	for _, d := range v.Different {
		fmt.Fprintf(&out, "%s: %s: %s\n", d.Position, output.Printable(d.Assertion), strings.TrimSpace(d.Text))
		for _, why := range d.Why {
			fmt.Fprintf(&out, "  because %s\n", output.Printable(why))
		}
	}
	for _, s := range v.Skipped {
		fmt.Fprintf(&out, "%s: %s: not evaluated: %s\n", s.Position, output.Printable(s.Assertion), s.Why)
	}
	fmt.Fprintf(&out, "%d of %d %s agree", v.Agree, v.Total, what)
	if v.Effects > 0 {
		fmt.Fprintf(&out, "; %d of them deny, warn, audit or change", v.Effects)
	}
	out.WriteString("\n")
	return out.String()
}
