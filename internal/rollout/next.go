package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Reasons of events.
const (
	// ReasonStarted is the beginning of the first step of a binding without a state.
	ReasonStarted = "RolloutStarted"
	// ReasonAdvanced is the beginning of a later step, or of the same step again, or a pause.
	ReasonAdvanced = "RolloutAdvanced"
	// ReasonCompleted is the beginning of the final action.
	ReasonCompleted = "RolloutCompleted"
	// ReasonHeld means that a step stays although its time has passed.
	ReasonHeld = "RolloutHeld"
	// ReasonRestarted means that a rollout has gone back to the first step.
	ReasonRestarted = "RolloutRestarted"
)

// maxAhead is how far the recorded beginning of a step can be ahead of the clock of this leader. Beyond, one of two clocks
// is wrong, and the step begins again.
const maxAhead = time.Minute

// Facts are what the next state of a binding depends on.
type Facts struct {
	Now    time.Time
	Policy *v1alpha1.WebhookPolicy
	// Binding has a rollout.
	Binding *v1alpha1.Binding
	// Before is the recorded state; without a name there is none.
	Before v1alpha1.BindingStatus
	// Lost is why a state without a record must have been lost; "" if the rollout is new. Known has the states that were lost;
	// nil means those of all bindings.
	Lost  string
	Known []v1alpha1.BindingStatus
	// AssumeComplete begins a rollout without a state with the final action.
	AssumeComplete bool
	Commands       []Command
	// Blocked is why no evidence can be collected; "" if it can.
	Blocked string
	// Objects and Requests are the evidence of the step in effect.
	Objects, Requests Evidence
	// Refresh permits to change what only has other numbers.
	Refresh bool
}

// Event is a change to record.
type Event struct {
	Binding, Reason, Message string
	IsWarning                bool
}

// Next returns the next state of a binding. requeue is when to ask again without a change of a fact, 0 for never.
// It is one step at most: the caller records the state before it asks again.
func Next(f Facts) (after v1alpha1.BindingStatus, events []Event, requeue time.Duration) {
	m := machine{Facts: f, state: *f.Before.DeepCopy(), rollout: f.Binding.Rollout}
	m.run()
	m.state.Name, m.state.Action = f.Binding.Name, m.action()
	return m.state, m.events, m.requeue
}

type machine struct {
	Facts
	rollout *v1alpha1.Rollout
	state   v1alpha1.BindingStatus
	events  []Event
	requeue time.Duration
}

func (m *machine) run() {
	if m.state.Name == "" {
		m.start()
		return
	}
	if m.obeyed() {
		return
	}
	if m.state.Final {
		m.stayFinal()
		return
	}
	i := indexOf(m.rollout, m.state.Step)
	switch {
	case i < 0:
		m.begin(0)
		m.record(true, ReasonRestarted, "the rollout begins with the first step, because the policy has no step %q any more", m.Before.Step)
	case m.state.Since == nil || m.state.Since.Sub(m.Now) > maxAhead:
		m.begin(i)
		m.record(false, ReasonAdvanced, "the step begins again, because its recorded beginning is later than the clock of the leader")
	case m.beganBeforePolicy():
		m.begin(i)
		m.record(false, ReasonAdvanced, "the step begins again, because its recorded beginning is earlier than the creation of the policy")
	case m.state.PolicyHash != m.hash(i):
		m.begin(i)
		m.record(false, ReasonAdvanced, "the step begins again, because a change of the policy can alter decisions")
	default:
		m.stay(&m.rollout.Steps[i], i)
	}
}

// beganBeforePolicy reports whether the recorded beginning of the step is that of another policy, as after a restore.
func (m *machine) beganBeforePolicy() bool {
	created := m.Policy.CreationTimestamp.Time
	return !created.IsZero() && m.Now.After(created) && created.Sub(m.state.Since.Time) > maxAhead
}

// start begins a rollout without a recorded state.
func (m *machine) start() {
	switch {
	case m.AssumeComplete:
		m.complete()
		m.record(false, ReasonCompleted, "the final action begins without a recorded state, because of --assume-rollouts-complete")
	case m.Lost != "" && (m.Known == nil || StateOf(m.Known, m.Binding.Name).Name != ""):
		m.begin(0)
		m.record(true, ReasonRestarted, "the rollout begins with the first step, because %s: to return to the final action, run "+
			"kubectl ostiary rollout complete %s -b %s", m.Lost, m.Policy.Name, m.Binding.Name)
	default:
		m.begin(0)
		m.record(false, ReasonStarted, "the rollout begins with the first step")
	}
}

// begin begins a step, or the final action after the last one.
func (m *machine) begin(i int) {
	if i >= len(m.rollout.Steps) {
		m.complete()
		return
	}
	step, since := &m.rollout.Steps[i], upToSecond(m.Now)
	m.state = v1alpha1.BindingStatus{
		Step: step.Name, Since: &metav1.Time{Time: since}, Next: &metav1.Time{Time: since.Add(minDuration(step))}, Paused: m.state.Paused,
		Token:      newToken(m.Policy.UID, m.Binding.Name, step.Name, m.state.Token, since),
		PolicyHash: m.hash(i),
	}
	m.requeue = minDuration(step)
}

func (m *machine) complete() {
	since := upToSecond(m.Now)
	m.state = v1alpha1.BindingStatus{
		Final: true, Since: &metav1.Time{Time: since}, Token: newToken(m.Policy.UID, m.Binding.Name, "", m.state.Token, since),
		PolicyHash: m.hash(len(m.rollout.Steps)),
	}
	m.requeue = 0
}

// hash returns the hash of what decides in a step, or in the final action.
func (m *machine) hash(i int) string {
	if i >= len(m.rollout.Steps) {
		return policyHash(&m.Policy.Spec, m.Binding, nil)
	}
	return policyHash(&m.Policy.Spec, m.Binding, &m.rollout.Steps[i])
}

// obeyed reports whether a command for this state has changed it.
func (m *machine) obeyed() bool {
	at := slices.IndexFunc(m.Commands, func(c Command) bool { return c.Binding == m.Binding.Name && c.Token == m.state.Token })
	if at < 0 || m.state.Token == "" {
		return false
	}
	i := indexOf(m.rollout, m.state.Step)
	switch c := m.Commands[at]; {
	case c.Action == Restart:
		m.state.Paused = false
		m.begin(0)
		m.record(true, ReasonRestarted, "the rollout begins with the first step, because of kubectl ostiary rollout restart")
	case m.state.Final:
		return false
	case c.Action == Complete:
		m.complete()
		m.record(false, ReasonCompleted, "the final action begins, because of kubectl ostiary rollout complete")
	case i < 0, m.state.Since == nil:
		return false // the step begins first
	case c.Action == Skip:
		m.state.Paused = false
		m.advance(i, "because of kubectl ostiary rollout skip")
	default:
		m.state.Paused = c.Action == Pause
		m.state.Token, m.state.HeldBy, m.state.Examples = afterCommand(m.state.Token), "", nil
		m.state.Next = &metav1.Time{Time: m.state.Since.Add(minDuration(&m.rollout.Steps[i]))}
		m.record(false, ReasonAdvanced, "kubectl ostiary rollout %s at the step %q", c.Action, m.state.Step)
		m.requeue = time.Second
	}
	return true
}

// advance begins the step after i.
func (m *machine) advance(i int, why string) {
	ended := m.rollout.Steps[i].Name
	if m.begin(i + 1); m.state.Final {
		m.record(false, ReasonCompleted, "the step %q has ended, %s: the final action begins", ended, why)
		return
	}
	m.record(false, ReasonAdvanced, "the step %q has ended, %s: the step %q begins", ended, why, m.state.Step)
}

// stayFinal keeps the final action, unless a change of the policy restarts the rollout.
func (m *machine) stayFinal() {
	m.state.Step, m.state.Next, m.state.Paused, m.state.HeldBy, m.state.Examples = "", nil, false, "", nil
	now := m.hash(len(m.rollout.Steps))
	if now == m.state.PolicyHash {
		return
	}
	if !restarts(m.rollout, &m.state, now) {
		m.state.PolicyHash = now
		return
	}
	m.begin(0)
	m.record(true, ReasonRestarted, "the rollout begins with the first step, because the policy has changed, and onChange is Restart")
}

// stay ends the step in effect if its time has passed and the evidence permits it.
func (m *machine) stay(step *v1alpha1.RolloutStep, i int) {
	end := m.state.Since.Add(minDuration(step))
	m.state.Next = &metav1.Time{Time: end}
	if left := end.Sub(m.Now); left > 0 {
		m.state.HeldBy, m.state.Examples, m.requeue = "", nil, left
		return
	}
	why, isPending, examples := m.heldBy(step, end)
	if why == "" {
		m.advance(i, "and the evidence permits the next one")
		return
	}
	m.requeue = pollInterval(step)
	if !isPending || m.Now.Sub(end) >= pendingGrace(step) {
		m.hold(why, examples)
	}
}

// hold says why the step stays. A text with other numbers alone is replaced only if the caller refreshes it.
func (m *machine) hold(why string, examples []string) {
	isNew, isRenewed := m.Before.HeldBy == "", withoutDigits(m.Before.HeldBy) != withoutDigits(why)
	if isNew || isRenewed || m.Refresh {
		m.state.HeldBy, m.state.Examples = why, examples
	}
	if isNew {
		m.record(!m.state.Paused, ReasonHeld, "the step %q stays although its time has passed: %s", m.state.Step, why)
	}
}

func (m *machine) record(isWarning bool, reason, format string, args ...any) {
	text := fmt.Sprintf("binding %q: ", m.Binding.Name) + fmt.Sprintf(format, args...)
	m.events = append(m.events, Event{Binding: m.Binding.Name, Reason: reason, Message: text, IsWarning: isWarning})
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

func minDuration(step *v1alpha1.RolloutStep) time.Duration {
	return time.Duration(step.MinDurationSeconds) * time.Second
}

// upToSecond rounds up, because API servers store seconds: what began before t did not begin in the step.
func upToSecond(t time.Time) time.Time {
	if down := t.Truncate(time.Second); !down.Equal(t) {
		return down.Add(time.Second)
	}
	return t
}

// pollInterval is how often to ask whether a step that is held can end.
func pollInterval(step *v1alpha1.RolloutStep) time.Duration {
	return min(max(minDuration(step)/10, time.Second), 30*time.Second)
}

// pendingGrace is how long evidence that is still being collected holds a step without a message.
func pendingGrace(step *v1alpha1.RolloutStep) time.Duration {
	return min(max(minDuration(step)/10, 30*time.Second), 10*time.Minute)
}
