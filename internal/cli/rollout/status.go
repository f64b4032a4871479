package rollout

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/rollout"
)

const (
	noValue   = "-"
	finalStep = "(final)"
)

// write writes the steps of rollouts, and below what holds those in effect.
func write(w io.Writer, p *v1alpha1.WebhookPolicy, bindings []*v1alpha1.Binding, now time.Time) error {
	header := []string{"BINDING", "STEP", "ACTIONS", "NAMESPACES", "AT LEAST", "VIOLATIONS", "STATE"}
	var rows [][]string
	for _, b := range bindings {
		rows = append(rows, rowsOf(p, b, now)...)
	}
	if err := output.WriteTable(w, header, rows); err != nil {
		return err
	}
	for _, b := range bindings {
		if err := writeHold(w, p, b); err != nil {
			return fmt.Errorf("writing the steps: %w", err)
		}
	}
	return nil
}

// rowsOf returns the steps of a binding in order, and its final action.
func rowsOf(p *v1alpha1.WebhookPolicy, b *v1alpha1.Binding, now time.Time) (rows [][]string) {
	state := rollout.StateOf(p.Status.Bindings, b.Name)
	at := indexOf(b.Rollout, &state)
	for i := range b.Rollout.Steps {
		s := &b.Rollout.Steps[i]
		actions, mutation := s.Effective()
		violations := "any"
		if s.MaxViolations != nil {
			violations = "at most " + strconv.FormatInt(*s.MaxViolations, 10)
		}
		where := "all"
		if i > 0 && s.NamespaceSelector != nil {
			where = metav1.FormatLabelSelector(s.NamespaceSelector)
		}
		lasts := duration.HumanDuration(time.Duration(s.MinDurationSeconds) * time.Second)
		rows = append(rows, []string{b.Name, s.Name, describe(&p.Spec, actions, mutation), where, lasts, violations, stateOf(&state, i, at, now)})
	}
	last := len(b.Rollout.Steps)
	final := rollout.Effective(&v1alpha1.Binding{
		ValidationActions: b.Rollout.Final.ValidationActions, MutationAction: b.Rollout.Final.MutationAction,
	}, nil)[0]
	actions := describe(&p.Spec, final.ValidationActions, final.MutationAction)
	return append(rows, []string{b.Name, finalStep, actions, "all", noValue, noValue, stateOf(&state, last, at, now)})
}

// indexOf returns the index of the step in effect, the number of steps for the final action, and -1 if
// no step is recorded.
func indexOf(r *v1alpha1.Rollout, state *v1alpha1.BindingStatus) int {
	if state.Final {
		return len(r.Steps)
	}
	for i := range r.Steps {
		if state.Name != "" && r.Steps[i].Name == state.Step {
			return i
		}
	}
	return -1
}

// describe names the actions that have an effect in a policy.
func describe[A ~string](spec *v1alpha1.WebhookPolicySpec, validation []A, mutation v1alpha1.MutationAction) string {
	var out []string
	if spec.Mutates() {
		out = append(out, string(mutation))
	}
	for _, a := range validation {
		if spec.Refuses() || mutation == v1alpha1.MutationActionPreview && a == "Warn" {
			out = append(out, string(a))
		}
	}
	return strings.Join(out, ",")
}

// stateOf describes a step by its position and that of the step in effect.
func stateOf(s *v1alpha1.BindingStatus, i, at int, now time.Time) string {
	switch {
	case at < 0 && i == 0:
		return "in effect, not recorded yet"
	case i < at:
		return "done"
	case i != at:
		return noValue
	}
	out := "in effect"
	if s.Since != nil {
		out += " for " + duration.HumanDuration(now.Sub(s.Since.Time))
	}
	switch {
	case s.Paused:
		return out + ", paused"
	case s.HeldBy != "":
		return out + ", held"
	case s.Next != nil && s.Next.After(now):
		return out + ", for " + duration.HumanDuration(s.Next.Sub(now)) + " more"
	}
	return out
}

func writeHold(w io.Writer, p *v1alpha1.WebhookPolicy, b *v1alpha1.Binding) error {
	state := rollout.StateOf(p.Status.Bindings, b.Name)
	if state.HeldBy == "" {
		return nil
	}
	text := fmt.Sprintf("\n%s is held: %s\n", output.Printable(b.Name), output.Printable(state.HeldBy))
	for _, e := range state.Examples {
		text += "  " + output.Printable(cmp.Or(e, noValue)) + "\n"
	}
	_, err := io.WriteString(w, output.Wrap(w, text))
	return err //nolint:wrapcheck // the caller says what is written
}
