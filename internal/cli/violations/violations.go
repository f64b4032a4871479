// Package violations is the command violations.
package violations

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/report"
)

// Source says where violations are from.
type Source string

// The sources.
const (
	SourceReports Source = "reports"
	SourceScan    Source = "scan"
)

// Violations are the stored objects that violate policies.
type Violations struct {
	Source Source `json:"source"`
	// Why says why the source is a scan.
	Why string `json:"why,omitempty"`
	// OldestReport and NewestReport are the times at which reports were written: the least and the
	// most recent one. Ostiary writes a report only when it changes.
	OldestReport *time.Time  `json:"oldestReport,omitempty"`
	NewestReport *time.Time  `json:"newestReport,omitempty"`
	Violations   []Violation `json:"violations"`
	// Missing is what is not included.
	Missing []Missing `json:"missing,omitempty"`
}

// Violation is an object that violates a policy.
type Violation struct {
	// Policy begins with ValidatingAdmissionPolicy/ for a native one.
	Policy string `json:"policy"`
	// Generation of the policy; absent after a scan.
	Generation string `json:"generation,omitempty"`
	// Namespace is that of the object. That of a Namespace is its own name.
	Namespace  string `json:"namespace,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// Owner is the controller of the object, such as ReplicaSet/web-7d9, otherwise the object.
	Owner string `json:"owner"`
	// Result is fail, warn or error. Operation is UPDATE for an object that fails as it is, and
	// CREATE for one that fails only if it is created again.
	Result     string `json:"result"`
	Operation  string `json:"operation"`
	Validation string `json:"validation,omitempty"`
	Message    string `json:"message,omitempty"`
}

// Missing is something that is not included, and the reason.
type Missing struct {
	Subject string `json:"subject"`
	Reason  string `json:"reason"`
	// Unread means that it could not be read, so that violations can be missing.
	Unread bool `json:"unread,omitempty"`
}

// noAccess is the reason for what the user may not read.
const noAccess = "no access"

func (v *Violations) add(f results.Finding) {
	v.Violations = append(v.Violations, Violation{
		Policy: f.Policy, Generation: f.Generation, Namespace: f.Namespace, APIVersion: f.APIVersion, Kind: f.Kind, Name: f.Name,
		Owner: cmp.Or(f.Controller, f.Kind+"/"+f.Name), Result: f.Result, Operation: f.Operation,
		Validation: f.Rule, Message: f.Message,
	})
}

func (v *Violations) miss(subject, reason string, unread bool) {
	v.Missing = append(v.Missing, Missing{Subject: subject, Reason: reason, Unread: unread})
}

// isUnread reports whether something of a subject could not be read.
func (v *Violations) isUnread(subject string) bool {
	return slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Subject == subject && m.Unread })
}

// sort sorts everything, so that two runs have the same result.
func (v *Violations) sort() {
	slices.SortFunc(v.Violations, func(a, b Violation) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Owner, b.Owner),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		)
	})
	slices.SortFunc(v.Missing, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Reason, b.Reason))
	})
	v.Missing = slices.Compact(v.Missing)
}

// err is the result of the command. Without violations, it is an error if something could not
// be read, because 0 would be taken for the permission to deny.
func (v *Violations) err() error {
	text := output.Count(len(v.Violations), "violation", "violations")
	if slices.ContainsFunc(v.Missing, func(m Missing) bool { return m.Unread }) {
		return errors.New(text + "; the result is without what could not be read")
	}
	if len(v.Violations) == 0 {
		return nil
	}
	return &output.FindingsError{Text: text}
}

// write writes the violations for people, as a table or a heat map.
func (v *Violations) write(w io.Writer, now time.Time, table func(io.Writer) error) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", output.Wrap(w, output.Printable(v.head(now)))); err != nil {
		return fmt.Errorf("writing the violations: %w", err)
	}
	if len(v.Violations) == 0 {
		_, _ = fmt.Fprintln(w, "No violations were found") // the next line returns the error
	} else if err := table(w); err != nil {
		return err
	}
	for i, m := range v.Missing {
		space := ""
		if i == 0 {
			space = "\n"
		}
		text := fmt.Sprintf("%snot included: %s: %s\n", space, output.Printable(m.Subject), output.Printable(m.Reason))
		if _, err := io.WriteString(w, output.Wrap(w, text)); err != nil {
			return fmt.Errorf("writing the violations: %w", err)
		}
	}
	return nil
}

func (v *Violations) writeTable(w io.Writer) error {
	return output.WriteTable(w, []string{"POLICY", "NAMESPACE", "OWNER", "OBJECTS", "ON-CREATE", "ERRORS", "MESSAGE"}, v.rows())
}

// report returns the violations for a heat map and HTML.
func (v *Violations) report(now time.Time) *report.Report {
	out := &report.Report{
		Title: "Stored objects that violate policies", Made: now,
		Summary: output.Count(len(v.Violations), "violation", "violations") + ". " + v.head(now),
	}
	for _, f := range v.Violations {
		message := f.text()
		if f.Operation == "CREATE" {
			message = "only if it is created again: " + message
		}
		out.Findings = append(out.Findings, report.Finding{
			Policy: f.Policy, Namespace: f.Namespace, Object: f.Kind + " " + f.Name, Decision: f.Result, Message: message,
		})
	}
	for _, m := range v.Missing {
		out.Notes = append(out.Notes, m.Subject+": "+m.Reason)
	}
	return out
}

// head says where the violations are from.
func (v *Violations) head(now time.Time) string {
	if v.Source == SourceScan {
		return "From a scan with your permissions, because " + v.Why
	}
	if v.OldestReport == nil {
		return "From the reports of Ostiary, of unknown age"
	}
	oldest, newest := age(*v.OldestReport, now), age(*v.NewestReport, now)
	if oldest == newest {
		return fmt.Sprintf("From the reports of Ostiary, last changed %s ago", newest)
	}
	return fmt.Sprintf("From the reports of Ostiary, last changed %s to %s ago", newest, oldest)
}

func age(t, now time.Time) string { return duration.HumanDuration(now.Sub(t)) }

// row is a row of the table: what a policy finds about the objects of an owner.
type row struct {
	policy, namespace, owner, message string
	objects, anew, errors             int
}

// rows returns a row for each policy, namespace and owner of sorted violations.
func (v *Violations) rows() [][]string {
	var rows []row
	for _, o := range v.Violations {
		last := len(rows) - 1
		if last < 0 || rows[last].policy != o.Policy || rows[last].namespace != o.Namespace || rows[last].owner != o.Owner {
			rows = append(rows, row{policy: o.Policy, namespace: o.Namespace, owner: o.Owner, message: o.text()})
			last++
		}
		switch {
		case o.Result == "error":
			rows[last].errors++
		case o.Operation == "CREATE":
			rows[last].anew++
		default:
			rows[last].objects++
		}
	}
	var out [][]string
	for _, r := range rows {
		out = append(out, []string{
			r.policy, cmp.Or(r.namespace, "-"), r.owner, strconv.Itoa(r.objects), strconv.Itoa(r.anew), strconv.Itoa(r.errors), r.message,
		})
	}
	return out
}

// text is the message with its validation.
func (o *Violation) text() string {
	if o.Validation == "" || o.Message == "" {
		return o.Validation + o.Message
	}
	return o.Validation + ": " + o.Message
}
