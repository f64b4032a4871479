package rollout

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	h = time.Hour
	m = time.Minute

	learn, warnDev, warnAll, final = "Audit 1/3", "Warn 2/3", "Warn 3/3", "Deny"

	started, advanced, completed, held, restarted = ReasonStarted, ReasonAdvanced, ReasonCompleted, ReasonHeld, ReasonRestarted
)

// begun, inDev, inWarn and done lead to a step, and to the final action.
func begun() []moment  { return []moment{{want: learn, event: started}} }
func inDev() []moment  { return append(begun(), moment{after: h, want: warnDev, event: advanced}) }
func inWarn() []moment { return append(inDev(), moment{after: 2 * h, want: warnAll, event: advanced}) }
func done() []moment   { return append(inWarn(), moment{after: h, want: final, event: completed}) }

func then(before []moment, more ...moment) []moment { return append(before, more...) }

const (
	paused       = " paused"
	pausedHeld   = " paused held: paused by kubectl ostiary rollout pause"
	noScan       = " held: objects: no scan that began in the step has ended yet"
	notReported  = " held: requests: not all replicas have reported since the time of the step has passed"
	lostRequests = " held: requests: they are counted since 2026-11-01T09:30:00Z only, because earlier counts were lost " +
		"when replicas ended, and are needed for 2h0m0s"
)

func timelinesOfTime() []timeline {
	return []timeline{
		{"all steps without violations", done()},
		{"a step lasts at least its time", then(begun(), moment{after: h - time.Second, want: learn})},
		{"the last second of each step", then(inDev(),
			moment{after: 2*h - time.Second, want: warnDev}, moment{after: time.Second, want: warnAll, event: advanced})},
		{"no decision for a year: one step at a time", then(begun(), moment{after: 8760 * h, want: warnDev, event: advanced})},
		{"a shorter step ends at once", then(begun(),
			moment{after: 10 * m, do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[0].MinDurationSeconds = 60 }),
				want: warnDev, event: advanced})},
		{"a longer step continues", then(begun(),
			moment{after: h, do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[0].MinDurationSeconds = hours(3) }), want: learn},
			moment{after: 2 * h, want: warnDev, event: advanced})},
	}
}

func timelinesOfViolations() []timeline {
	return []timeline{
		{"violations do not matter without maxViolations", then(begun(),
			moment{do: objects(900), want: learn}, moment{after: h, want: warnDev, event: advanced})},
		{"objects hold a step", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{after: h, do: objects(0), want: warnAll, event: advanced})},
		{"requests hold a step", then(inDev(),
			moment{after: 2 * h, do: requests(1), want: warnDev + requestsHeld(1, 0), event: held},
			moment{after: 24 * h, do: requests(0), want: warnAll, event: advanced})},
		{"objects and requests hold a step", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.objects.Count, w.requests.Count = 2, 4 },
				want: warnDev + objectsHeld(2, 0) + "; " + requestsHeld(4, 0)[len(" held: "):], event: held})},
		{"as many violations as are permitted", then(inWarn(), moment{after: h, do: objects(5), want: final, event: completed})},
		{"one violation too many", then(inWarn(), moment{after: h, do: objects(6), want: warnAll + objectsHeld(6, 5), event: held})},
		{"the limits of objects and requests are separate", then(inWarn(),
			moment{after: h, do: func(w *world) { w.objects.Count, w.requests.Count = 5, 5 }, want: final, event: completed})},
		{"violations that disappear before the end", then(inDev(),
			moment{after: h, do: objects(7), want: warnDev}, moment{after: h, do: objects(0), want: warnAll, event: advanced})},
		{"violations that appear at the end", then(inDev(),
			moment{after: 2*h - m, want: warnDev}, moment{after: m, do: requests(1), want: warnDev + requestsHeld(1, 0), event: held})},
		{"violations that come back while the step is held", then(inDev(),
			moment{after: 2 * h, do: requests(1), want: warnDev + requestsHeld(1, 0), event: held},
			moment{after: h, do: func(w *world) { w.requests.Count, w.objects.Count = 0, 1 }, want: warnDev + objectsHeld(1, 0)})},
		{"violations that come back in the next step", then(inWarn(),
			moment{after: m, do: objects(9), want: warnAll}, moment{after: h, want: warnAll + objectsHeld(9, 5), event: held})},
		{"violations after the final action change nothing", then(done(), moment{after: h, do: objects(99), want: final})},
		{"other numbers alone are not written", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{after: m, do: objects(12), want: warnDev + objectsHeld(3, 0)})},
		{"other numbers are written after a while", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{after: m, do: func(w *world) { w.objects.Count, w.facts.Refresh = 12, true }, want: warnDev + objectsHeld(12, 0)})},
		{"an estimate says so", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.requests = Evidence{Count: 130, IsEstimate: true} }, event: held,
				want: warnDev + " held: about 130 owners or objects have had requests that violate the policy, and maxViolations is 0"})},
		{"a higher limit ends a held step", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[1].MaxViolations = new(int64(3)) }), want: warnAll, event: advanced})},
		{"a lower limit holds a step", then(inWarn(),
			moment{after: h - m, do: objects(4), want: warnAll},
			moment{after: m, do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[2].MaxViolations = new(int64(3)) }),
				want: warnAll + objectsHeld(4, 3), event: held})},
	}
}

func timelinesOfEvidence() []timeline {
	return []timeline{
		{"only objects count", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.rollout().Evidence = v1alpha1.RolloutEvidenceObjects; w.requests.Count = 9 },
				want: warnAll, event: advanced})},
		{"only requests count", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.rollout().Evidence = v1alpha1.RolloutEvidenceRequests; w.objects.Count = 9 },
				want: warnAll, event: advanced})},
		{"the audit is disabled", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.objects.Missing = "the audit is disabled" },
				want: warnDev + " held: objects: the audit is disabled", event: held})},
		{"the audit is disabled, and only requests count", then(inDev(),
			moment{after: 2 * h, do: func(w *world) {
				w.objects.Missing = "the audit is disabled"
				w.rollout().Evidence = v1alpha1.RolloutEvidenceRequests
			}, want: warnAll, event: advanced})},
		{"the audit is enabled again", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.objects.Missing = "the audit is disabled" },
				want: warnDev + " held: objects: the audit is disabled", event: held},
			moment{after: h, do: func(w *world) { w.objects.Missing = "" }, want: warnAll, event: advanced})},
		{"missing evidence does not matter without maxViolations", then(begun(),
			moment{after: h, do: func(w *world) { w.objects.Missing, w.requests.Missing = "none", "none" }, want: warnDev, event: advanced})},
		{"no counts of requests", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.requests.Missing = "no replica has reported" },
				want: warnDev + " held: requests: no replica has reported", event: held})},
		{"the last scan began before the step", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.objects.IsPending = true }, want: warnDev},
			moment{after: 12 * m, want: warnDev + noScan, event: held},
			moment{after: m, do: func(w *world) { w.objects.IsPending = false }, want: warnAll, event: advanced})},
		{"a scan ends soon after the time of the step", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.objects.IsPending = true }, want: warnDev},
			moment{after: m, do: func(w *world) { w.objects.IsPending = false }, want: warnAll, event: advanced})},
		{"a replica has not reported since the end", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.reportedUntil = start().Add(3*h - time.Second) }, want: warnDev},
			moment{after: 12 * m, want: warnDev + notReported, event: held},
			moment{after: m, do: func(w *world) { w.reportedUntil = start().Add(3 * h) }, want: warnAll, event: advanced})},
		{"a violation that is reported late", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.reportedUntil = start().Add(3*h - time.Second) }, want: warnDev},
			moment{after: time.Second, do: func(w *world) { w.reportedUntil = time.Time{}; w.requests.Count = 1 },
				want: warnDev + requestsHeld(1, 0), event: held})},
		{"counts are lost in the step", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.requests.From = start().Add(h + 30*m) }, want: warnDev},
			moment{after: 12 * m, want: warnDev + lostRequests, event: held},
			moment{after: 18 * m, want: warnAll, event: advanced})},
		{"counts are lost before the step", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.requests.From = start().Add(h) }, want: warnAll, event: advanced})},
		{"requests are needed for at most a day", then(inDev(),
			moment{do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[1].MinDurationSeconds = hours(240) }), want: warnDev},
			moment{after: 240 * h, do: func(w *world) { w.requests.From = w.now.Add(-24 * h) }, want: warnAll, event: advanced})},
		{"a policy without validations has no violations", []moment{
			{do: func(w *world) { w.policy.Spec.Validations = nil; w.objects.Missing = "no validations" }, want: " 1/3", event: started},
			{after: h, want: " 2/3", event: advanced}, {after: 2 * h, want: " 3/3", event: advanced}}},
		{"the policy is not decided in this generation", then(inDev(),
			moment{after: 2 * h, do: func(w *world) { w.facts.Blocked = "it is not accepted" }, want: warnDev},
			moment{after: h, want: warnDev + " held: it is not accepted", event: held},
			moment{after: m, do: func(w *world) { w.facts.Blocked = "" }, want: warnAll, event: advanced})},
	}
}

func timelinesOfCommands() []timeline {
	return []timeline{
		{"pause", then(begun(),
			moment{do: command(Pause), want: learn + paused, event: advanced},
			moment{after: 9 * h, want: learn + pausedHeld, event: held})},
		{"pause and resume", then(begun(),
			moment{do: command(Pause), want: learn + paused, event: advanced},
			moment{after: 30 * m, do: command(Resume), want: learn, event: advanced},
			moment{after: 30 * m, want: warnDev, event: advanced})},
		{"resume without a pause", then(begun(),
			moment{do: command(Resume), want: learn, event: advanced}, moment{after: h, want: warnDev, event: advanced})},
		{"a replayed pause does nothing", then(begun(),
			moment{do: command(Pause), want: learn + paused, event: advanced},
			moment{do: command(Resume), want: learn, event: advanced},
			moment{do: func(w *world) {
				w.policy.Annotations[Annotation] = Command{Action: Pause, Binding: "b", Token: EvidenceKey(w.state().Token)}.String()
			}, want: learn},
			moment{after: h, want: warnDev, event: advanced})},
		{"a pause stays in a step that begins again", then(begun(),
			moment{do: command(Pause), want: learn + paused, event: advanced},
			moment{do: expression("object.spec.other"), want: learn + paused, event: advanced})},
		{"skip", then(begun(), moment{after: m, do: command(Skip), want: warnDev, event: advanced}, moment{after: m, want: warnDev})},
		{"skip a held step", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{do: command(Skip), want: warnAll, event: advanced})},
		{"skip a paused step", then(begun(),
			moment{do: command(Pause), want: learn + paused, event: advanced}, moment{do: command(Skip), want: warnDev, event: advanced})},
		{"skip the last step", then(inWarn(), moment{do: command(Skip), want: final, event: completed})},
		{"skip has no effect on the final action", then(done(), moment{do: command(Skip), want: final})},
		{"pause has no effect on the final action", then(done(), moment{do: command(Pause), want: final})},
		{"restart in a step", then(inWarn(),
			moment{do: command(Restart), want: learn, event: restarted}, moment{after: h, want: warnDev, event: advanced})},
		{"restart after the final action", then(done(), moment{do: command(Restart), want: learn, event: restarted})},
		{"restart ends a pause", then(inDev(),
			moment{do: command(Pause), want: warnDev + paused, event: advanced}, moment{do: command(Restart), want: learn, event: restarted})},
		{"complete", then(begun(), moment{do: command(Complete), want: final, event: completed})},
		{"complete has no effect on the final action", then(done(), moment{do: command(Complete), want: final})},
		{"a command for another binding", then(begun(), moment{do: func(w *world) {
			w.policy.Annotations = map[string]string{Annotation: Command{Action: Complete, Binding: "other", Token: w.state().Token}.String()}
		}, want: learn})},
		{"a command with an old token", then(inDev(), moment{do: func(w *world) {
			w.policy.Annotations = map[string]string{Annotation: "complete b 0123456789abcdef"}
		}, want: warnDev})},
		{"an unreadable command", then(begun(), moment{do: func(w *world) {
			w.policy.Annotations = map[string]string{Annotation: "finish b " + w.state().Token}
		}, want: learn})},
	}
}

func timelinesOfChanges() []timeline {
	return []timeline{
		{"another expression in the first step", then(begun(),
			moment{after: 50 * m, do: expression("true"), want: learn, event: advanced},
			moment{after: 50 * m, want: learn},
			moment{after: 10 * m, want: warnDev, event: advanced})},
		{"another expression in the second step", then(inDev(),
			moment{after: h, do: expression("true"), want: warnDev, event: advanced},
			moment{after: h, want: warnDev},
			moment{after: h, want: warnAll, event: advanced})},
		{"another expression in the last step", then(inWarn(),
			moment{after: 50 * m, do: expression("true"), want: warnAll, event: advanced}, moment{after: h, want: final, event: completed})},
		{"another expression while a step is held", then(inDev(),
			moment{after: 2 * h, do: objects(3), want: warnDev + objectsHeld(3, 0), event: held},
			moment{do: expression("true"), want: warnDev, event: advanced})},
		{"another expression after the final action", then(done(),
			moment{after: h, do: expression("true"), want: final}, moment{after: h, want: final})},
		{"another expression after the final action with Restart", then(done(),
			moment{do: func(w *world) { w.rollout().OnChange = v1alpha1.RolloutOnChangeRestart }, want: final},
			moment{after: h, do: expression("true"), want: learn, event: restarted})},
		{"onChange alone does not restart what was changed before", then(done(),
			moment{do: expression("true"), want: final},
			moment{do: func(w *world) { w.rollout().OnChange = v1alpha1.RolloutOnChangeRestart }, want: final})},
		{"another message changes nothing", then(inDev(),
			moment{after: 2*h - m, do: edit(func(s *spec) { s.Validations[0].Message = "no" }), want: warnDev},
			moment{after: m, want: warnAll, event: advanced})},
		{"another audit and timeout change nothing", then(inDev(),
			moment{after: 2*h - m, do: edit(func(s *spec) { s.Audit, s.TimeoutSeconds = &v1alpha1.Audit{}, new(int32(9)) }), want: warnDev},
			moment{after: m, want: warnAll, event: advanced})},
		{"another selector of the step in effect", then(inDev(),
			moment{after: h, do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[1].NamespaceSelector = &metav1.LabelSelector{} }),
				want: warnDev, event: advanced})},
		{"other actions of a later step", then(inDev(),
			moment{after: h, do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[2].ValidationActions = does(audit) }), want: warnDev})},
		{"a step that is renamed", then(inWarn(),
			moment{do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[2].Name = "other" }), want: learn, event: restarted})},
		{"a step that is renamed after the final action", then(done(),
			moment{do: edit(func(s *spec) { s.Bindings[0].Rollout.Steps[2].Name = "other" }), want: final})},
		{"a step that is added before the one in effect", then(inDev(),
			moment{do: edit(func(s *spec) {
				r := s.Bindings[0].Rollout
				r.Steps = append([]v1alpha1.RolloutStep{{Name: "new", ValidationActions: does(audit), MinDurationSeconds: 1}}, r.Steps...)
			}), want: "Warn 3/4"})},
		{"the final action becomes another", then(done(),
			moment{do: edit(func(s *spec) { s.Bindings[0].Rollout.Final.ValidationActions = does(warn) }), want: "Warn"})},
		{"the rollout is replaced by its final action", then(done(),
			moment{do: edit(func(s *spec) {
				s.Bindings[0] = v1alpha1.Binding{Name: "b", ValidationActions: does(deny)}
			}), want: ""})},
		{"the binding is renamed", then(done(), moment{do: edit(func(s *spec) { s.Bindings[0].Name = "c" }), want: "", event: started})},
	}
}

func timelinesOfClocks() []timeline {
	return []timeline{
		{"the clock goes back a little", then(begun(),
			moment{after: -30 * time.Second, want: learn},
			moment{after: h, want: learn},
			moment{after: 30 * time.Second, want: warnDev, event: advanced})},
		{"the clock goes back by a day", then(begun(),
			moment{after: -24 * h, want: learn, event: advanced}, moment{after: h, want: warnDev, event: advanced})},
		{"the clock goes back after the final action", then(done(), moment{after: -240 * h, want: final})},
		{"the clock goes forward without evidence", then(inDev(),
			moment{after: 240 * h, do: func(w *world) { w.objects.IsPending, w.reportedUntil = true, start() },
				want: warnDev + noScan + "; " + notReported[len(" held: "):], event: held})},
	}
}

func timelinesOfLostStatus() []timeline {
	return []timeline{
		{"a lost status in a step", then(inWarn(),
			moment{do: loseStatus, want: learn, event: restarted}, moment{after: h, want: warnDev, event: advanced})},
		{"a lost status after the final action", then(done(),
			moment{do: loseStatus, want: learn, event: restarted}, moment{do: command(Complete), want: final, event: completed})},
		{"a lost status with the flag", then(done(),
			moment{do: func(w *world) { loseStatus(w); w.facts.AssumeComplete = true }, want: final, event: completed})},
		{"the flag has no effect on a recorded step", then(inDev(),
			moment{do: func(w *world) { w.facts.AssumeComplete = true }, want: warnDev})},
		{"a state without a time", then(inDev(),
			moment{do: func(w *world) { w.policy.Status.Bindings[0].Since = nil }, want: warnDev, event: advanced})},
		{"a state with an unknown step", then(inDev(),
			moment{do: func(w *world) { w.policy.Status.Bindings[0].Step = "unknown" }, want: learn, event: restarted})},
	}
}

func TestTimelines(t *testing.T) {
	all := slices.Concat(timelinesOfTime(), timelinesOfViolations(), timelinesOfEvidence(), timelinesOfCommands(),
		timelinesOfChanges(), timelinesOfClocks(), timelinesOfLostStatus())
	if len(all) < 60 {
		t.Errorf("got %d timelines, want at least 60", len(all))
	}
	for _, tl := range all {
		t.Run(tl.name, tl.run)
	}
}
