package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// Window is the time before now within which requests count.
	Window = 24 * time.Hour
	// maxExamples is the number of examples of each kind of evidence, in one binding.
	maxExamples, maxExampleText = 5, 512
	maxHeldBy                   = 1024
)

// Evidence is a number of violations in the namespaces of the step in effect.
type Evidence struct {
	// Missing is why there is none, "" if there is. It starts with the kind of the evidence.
	Missing string
	// IsPending means that objects have not been evaluated in the step yet: no scan that began in it has ended.
	IsPending bool
	// From and Until are the times that requests are counted for.
	From, Until time.Time
	Count       int64
	// IsEstimate means that Count is not exact.
	IsEstimate bool
	Examples   []string
}

// heldBy returns why the step in effect cannot end although its time has passed; "" if it can. isPending means that
// the evidence is still being collected.
func (m *machine) heldBy(step *v1alpha1.RolloutStep, end time.Time) (why string, isPending bool, examples []string) {
	switch {
	case m.state.Paused:
		return "paused by kubectl ostiary rollout pause", false, nil
	case m.Blocked != "":
		return bounded(m.Blocked), true, nil
	case step.MaxViolations == nil, !m.Policy.Spec.Refuses():
		return "", false, nil
	}
	objects, requests := m.objectsHold(step), m.requestsHold(step, end)
	if m.rollout.Evidence == v1alpha1.RolloutEvidenceObjects {
		requests = hold{}
	}
	if m.rollout.Evidence == v1alpha1.RolloutEvidenceRequests {
		objects = hold{}
	}
	var texts []string
	isPending = true
	for _, h := range []hold{objects, requests} {
		if h.why == "" {
			continue
		}
		texts, examples = append(texts, h.why), append(examples, h.examples...)
		isPending = isPending && h.isPending
	}
	return bounded(strings.Join(texts, "; ")), isPending, examples
}

// hold is why a kind of evidence holds a step.
type hold struct {
	why       string
	isPending bool
	examples  []string
}

func (m *machine) objectsHold(step *v1alpha1.RolloutStep) hold {
	e := &m.Objects
	switch {
	case e.Missing != "":
		return hold{why: "objects: " + e.Missing}
	case e.IsPending:
		return hold{why: "objects: no scan that began in the step has ended yet", isPending: true}
	}
	return e.exceeding(step, "stored objects violate the policy")
}

// requestsHold requires that requests were counted during the time of the step, within Window, and that all replicas have
// reported after its end.
func (m *machine) requestsHold(step *v1alpha1.RolloutStep, end time.Time) hold {
	e := &m.Requests
	needed := m.Now.Add(-min(minDuration(step), Window))
	switch {
	case e.Missing != "":
		return hold{why: "requests: " + e.Missing}
	case e.From.After(m.state.Since.Time) && e.From.After(needed):
		return hold{why: fmt.Sprintf("requests: they are counted since %s only, because earlier counts were lost when replicas ended, "+
			"and are needed for %s", e.From.UTC().Format(time.RFC3339), min(minDuration(step), Window)), isPending: true}
	case e.Until.Before(end):
		return hold{why: "requests: not all replicas have reported since the time of the step has passed", isPending: true}
	}
	return e.exceeding(step, "owners or objects have had requests that violate the policy")
}

func (e *Evidence) exceeding(step *v1alpha1.RolloutStep, what string) hold {
	if e.Count <= *step.MaxViolations {
		return hold{}
	}
	about := ""
	if e.IsEstimate {
		about = "about "
	}
	h := hold{why: fmt.Sprintf("%s%d %s, and maxViolations is %d", about, e.Count, what, *step.MaxViolations)}
	for _, text := range e.Examples[:min(len(e.Examples), maxExamples)] {
		h.examples = append(h.examples, truncate.String(text, maxExampleText))
	}
	slices.Sort(h.examples)
	return h
}

func bounded(s string) string { return truncate.String(s, maxHeldBy) }
