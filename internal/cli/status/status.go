// Package status is the command status.
package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/rollout"
	"github.com/ostiary/ostiary/internal/registration"
)

// Status is the state of Ostiary and its policies.
type Status struct {
	Namespace string `json:"namespace,omitempty"`
	Leader    string `json:"leader,omitempty"`
	// WithoutElection reports that the only replica writes without leader election.
	WithoutElection bool `json:"withoutElection,omitempty"`
	// Live are the replicas that renew their Leases, of those that the Deployment wants.
	Live     int `json:"live"`
	Replicas int `json:"replicas,omitempty"`
	// CAExpires is the time until which API servers trust a CA of Ostiary, and
	// CertificateExpires the expiry of the first serving certificate to expire.
	CAExpires          *time.Time `json:"caExpires,omitempty"`
	CertificateExpires *time.Time `json:"certificateExpires,omitempty"`
	Policies           []Policy   `json:"policies"`
	// Calls are the resources for which a request costs more than one call of a phase.
	Calls []registration.Calls `json:"calls,omitempty"`
	// Rollouts are those that have not reached their final action.
	Rollouts []rollout.Running `json:"rollouts,omitempty"`
	// DenialsUnknown says why the numbers of denied requests are not known; empty if they are.
	DenialsUnknown string `json:"denialsUnknown,omitempty"`

	unread bool // the Leases, which show where Ostiary runs
}

// Policy is the state of a policy.
type Policy struct {
	Name          string `json:"name"`
	Actions       string `json:"actions,omitempty"`
	Ready         string `json:"ready"`
	Reason        string `json:"reason,omitempty"`
	Message       string `json:"message,omitempty"`
	FailurePolicy string `json:"failurePolicy,omitempty"`
	// Violations are those of stored objects, or why they are not known.
	Violations string   `json:"violations,omitempty"`
	Webhooks   []string `json:"webhooks,omitempty"`
	// Denied is the number of denied requests since the replicas started, and DeniedPerMinute
	// that of the last minute; nil if it is not known.
	Denied          *int       `json:"denied,omitempty"`
	DeniedPerMinute *float64   `json:"deniedPerMinute,omitempty"`
	Created         *time.Time `json:"created,omitempty"`

	recent []int // denied requests between the last updates of --watch
}

// statusOf returns the state in a dump. Without metrics, the denials are not known.
func statusOf(d *doctor.Dump, m *metrics, why error, now time.Time) *Status {
	o := d.Ostiary(now)
	s := &Status{
		Namespace: o.Namespace, Leader: o.Leader, WithoutElection: o.WithoutElection,
		Live: len(o.Pods), Replicas: o.Replicas, Policies: []Policy{}, unread: d.Leases == nil,
	}
	if m == nil && why != nil {
		s.DenialsUnknown = why.Error()
	}
	if config := clientConfig(d); config != nil {
		if expires, ok := doctor.Expiry(config.CABundle); ok {
			s.CAExpires = &expires
		}
	}
	if m != nil && !m.expires.IsZero() {
		s.CertificateExpires = &m.expires
	}
	for i := range d.Policies {
		s.Policies = append(s.Policies, policyOf(&d.Policies[i], m))
		s.Rollouts = append(s.Rollouts, rollout.RunningOf(&d.Policies[i], now)...)
	}
	slices.SortStableFunc(s.Rollouts, func(a, b rollout.Running) int { return cmp.Compare(a.Policy, b.Policy) })
	slices.SortFunc(s.Policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	s.Calls = slices.DeleteFunc(registration.CallsOf(d.Configurations()), func(c registration.Calls) bool {
		return c.Mutating <= 1 && c.Validating <= 1
	})
	return s
}

// clientConfig returns how API servers call Ostiary, as its canary says; nil if there is
// none.
func clientConfig(d *doctor.Dump) *admissionregistrationv1.WebhookClientConfig {
	for i := range d.Validating {
		if c := &d.Validating[i]; c.Name == registration.PhaseValidate.CanaryConfiguration() && len(c.Webhooks) == 1 {
			return &c.Webhooks[0].ClientConfig
		}
	}
	return nil
}

func policyOf(p *v1alpha1.WebhookPolicy, m *metrics) Policy {
	out := Policy{Name: p.Name, Actions: p.Status.Actions, FailurePolicy: string(p.Status.FailurePolicy), Ready: "Unknown", Message: "Ostiary has not reported the policy yet"}
	if !p.CreationTimestamp.IsZero() {
		out.Created = &p.CreationTimestamp.Time
	}
	if ready := meta.FindStatusCondition(p.Status.Conditions, "Ready"); ready != nil && ready.ObservedGeneration >= p.Generation {
		out.Ready, out.Reason, out.Message = string(ready.Status), ready.Reason, ready.Message
	}
	if p.Status.Audit != nil {
		out.Violations = p.Status.Audit.Summary
	}
	for _, w := range p.Status.Webhooks {
		out.Webhooks = append(out.Webhooks, w.Configuration)
	}
	if m != nil {
		denied := m.denied[p.Name]
		out.Denied = &denied
	}
	return out
}

// notReady returns the number of policies that are not enforced.
func (s *Status) notReady() int {
	n := 0
	for _, p := range s.Policies {
		if p.Ready != "True" {
			n++
		}
	}
	return n
}

// write writes the state for people.
func (s *Status) write(w io.Writer, style output.Style, wide bool, now time.Time) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", output.Wrap(w, output.Printable(s.summary(now)))); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	if !s.writes() && len(s.Policies) > 0 {
		text := "No replica leads: the columns READY and REASON are what the last leader wrote, and can be wrong. See kubectl ostiary doctor"
		if _, err := fmt.Fprintf(w, "%s\n\n", output.Wrap(w, output.Paint(style, output.Red, text))); err != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
	}
	if len(s.Policies) == 0 {
		_, err := fmt.Fprintln(w, "There are no policies")
		return err
	}
	header, rows := s.table(wide, now)
	if output.IsTerminal(w) && s.hasTimeLines() {
		header, rows = s.addTimeLines(header, rows)
	}
	if err := output.WriteTable(w, header, rows); err != nil {
		return err
	}
	if s.DenialsUnknown != "" {
		if _, err := fmt.Fprint(w, output.Wrap(w, "\nDENIED is not known: "+output.Printable(s.DenialsUnknown)+"\n")); err != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
	}
	if err := s.writeRollouts(w); err != nil {
		return err
	}
	if err := s.writeCalls(w); err != nil {
		return err
	}
	return s.writeProblems(w, style)
}

// writeRollouts writes the rollouts that have not reached their final action.
func (s *Status) writeRollouts(w io.Writer) error {
	if len(s.Rollouts) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	var rows [][]string
	for _, r := range s.Rollouts {
		rows = append(rows, []string{r.Policy + "/" + r.Binding, cmp.Or(r.Action, unknown), r.Steps, r.State, cmp.Or(r.HeldBy, unknown)})
	}
	return output.WriteTable(w, []string{"ROLLOUT", "ACTION", "STEPS", "STATE", "HELD BY"}, rows)
}

// shownCalls is the number of resources whose calls are shown.
const shownCalls = 3

// writeCalls writes the resources for which a request can cost most calls.
func (s *Status) writeCalls(w io.Writer) error {
	if len(s.Calls) == 0 {
		return nil
	}
	var parts []string
	for _, c := range s.Calls[:min(len(s.Calls), shownCalls)] {
		parts = append(parts, fmt.Sprintf("%s (%d mutating, %d validating)", c.Resource, c.Mutating, c.Validating))
	}
	if more := len(s.Calls) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	text := output.Printable(strings.Join(parts, ", "))
	if _, err := fmt.Fprint(w, output.Wrap(w, "\nRequests that can cost several calls: "+text+"\n")); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// table returns the header and the rows of the policies.
func (s *Status) table(wide bool, now time.Time) (header []string, rows [][]string) {
	header = []string{"POLICY", "ACTIONS", "READY", "REASON", "FAILURE-POLICY", "DENIED", "DENIED/MIN", "AGE"}
	rows = make([][]string, len(s.Policies))
	for i, p := range s.Policies {
		rows[i] = []string{p.Name, p.Actions, p.Ready, p.Reason, p.FailurePolicy, s.number(p.Denied),
			s.rate(p.DeniedPerMinute), age(p.Created, now)}
	}
	if wide {
		header = append(header, "VIOLATIONS", "WEBHOOKS", "MESSAGE")
		for i, p := range s.Policies {
			webhooks := cmp.Or(strings.Join(p.Webhooks, ","), unknown)
			rows[i] = append(rows[i], cmp.Or(p.Violations, unknown), webhooks, p.Message)
		}
	}
	return header, rows
}

// hasTimeLines reports whether there are two updates.
func (s *Status) hasTimeLines() bool {
	return slices.ContainsFunc(s.Policies, func(p Policy) bool { return len(p.recent) > 0 })
}

// addTimeLines adds the column RECENT after DENIED/MIN.
func (s *Status) addTimeLines(header []string, rows [][]string) (withTimeLines []string, of [][]string) {
	at := slices.Index(header, "DENIED/MIN") + 1
	for i := range rows {
		rows[i] = slices.Insert(rows[i], at, timeLine(s.Policies[i].recent))
	}
	return slices.Insert(header, at, "RECENT"), rows
}

// writes reports whether a replica writes the status of policies.
func (s *Status) writes() bool { return s.Leader != "" || s.WithoutElection && s.Live > 0 }

func (s *Status) writeProblems(w io.Writer, style output.Style) error {
	for _, p := range s.Policies {
		if p.Ready == "True" {
			continue
		}
		text := fmt.Sprintf("\n%s: %s\n", output.Paint(style, output.Yellow, p.Name), output.Printable(p.Message))
		if _, err := io.WriteString(w, output.Wrap(w, text)); err != nil {
			return fmt.Errorf("writing the status: %w", err)
		}
	}
	return nil
}

func (s *Status) summary(now time.Time) string {
	switch {
	case s.Namespace == "" && s.unread:
		return "Whether Ostiary runs in this cluster is not known, because its Leases were not read"
	case s.Namespace == "":
		return "No replica of Ostiary has ever led in this cluster"
	}
	parts := []string{fmt.Sprintf("%d of %d replicas", s.Live, s.Replicas)}
	if s.Replicas == 0 {
		parts[0] = output.Count(s.Live, "replica", "replicas")
	}
	switch {
	case s.Leader != "":
		parts = append(parts, "leader "+s.Leader)
	case s.WithoutElection:
		parts = append(parts, "without leader election")
	default:
		parts = append(parts, "no leader")
	}
	if s.CertificateExpires != nil {
		parts = append(parts, "certificate "+expiry(*s.CertificateExpires, now))
	}
	if s.CAExpires != nil {
		parts = append(parts, "CA "+expiry(*s.CAExpires, now))
	}
	return "Ostiary in " + s.Namespace + ": " + strings.Join(parts, ", ")
}

func expiry(t, now time.Time) string {
	if !t.After(now) {
		return "expired " + duration.HumanDuration(now.Sub(t)) + " ago"
	}
	return "expires in " + duration.HumanDuration(t.Sub(now))
}

const unknown = "-"

// notAvailable is a number that is not known, for the reason below the table.
const notAvailable = "n/a"

func (s *Status) number(n *int) string {
	switch {
	case n != nil:
		return strconv.Itoa(*n)
	case s.DenialsUnknown != "":
		return notAvailable
	}
	return unknown
}

func (s *Status) rate(f *float64) string {
	switch {
	case f != nil:
		return strconv.FormatFloat(*f, 'f', 1, 64)
	case s.DenialsUnknown != "":
		return notAvailable
	}
	return unknown
}

func age(t *time.Time, now time.Time) string {
	if t == nil {
		return unknown
	}
	return duration.HumanDuration(now.Sub(*t))
}
