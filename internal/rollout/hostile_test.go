package rollout

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// A state that another client has written, or that is from a backup, never panics, has no field that the API server rejects,
// and ends no step before its time.
func TestRandomStates(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3_000 {
		w := newWorld()
		w.policy.CreationTimestamp = metav1.Time{Time: w.now.Add(-30 * 24 * time.Hour)}
		w.policy.Status.Bindings = randomStates(r)
		before := w.state()
		var actions []Action
		w.policy.Annotations, actions = randomCommands(r, before.Token)
		w.objects.Count = r.Int64N(7) - 3
		w.reconcile()
		after := w.state()
		checkState(t, &after)
		isAsked := slices.Contains(actions, Skip) || slices.Contains(actions, Complete)
		if after.Final && !before.Final && !isAsked && !hasEnded(w, &before) {
			t.Errorf("the final action begins after %+v", before)
		}
		if n := len(w.policy.Status.Bindings); n != 1 {
			t.Errorf("got %d states, want that of the one binding", n)
		}
	}
}

// hasEnded reports whether the time of the last step has passed since its beginning.
func hasEnded(w *world, s *v1alpha1.BindingStatus) bool {
	last := &w.rollout().Steps[2]
	created := w.policy.CreationTimestamp.Add(-maxAhead)
	return s.Step == last.Name && s.Since != nil && !s.Since.Time.Before(created) && !w.now.Before(s.Since.Add(minDuration(last)))
}

func checkState(t *testing.T, s *v1alpha1.BindingStatus) {
	t.Helper()
	for what, isWrong := range map[string]bool{
		"token":      len(s.Token) > 64 || s.Token == "" && !s.Final, // a final state stays as it is
		"policyHash": len(s.PolicyHash) > 64, "action": len(s.Action) > 64,
		"heldBy": len(s.HeldBy) > maxHeldBy, "examples": len(s.Examples) > maxExamplesOfPolicy,
		"next": !s.Final && (s.Next == nil || s.Since == nil), "step": len(s.Step) > 63,
	} {
		if isWrong {
			t.Errorf("%s is not valid in %+v", what, *s)
		}
	}
}

func randomStates(r *rand.Rand) (out []v1alpha1.BindingStatus) {
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	times := []*metav1.Time{
		nil, {}, {Time: time.Unix(-1<<40, 0)}, {Time: start().Add(-60 * 24 * time.Hour)}, {Time: start().Add(-90 * time.Minute)},
		{Time: start()}, {Time: start().Add(time.Hour)}, {Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	for _, name := range []string{"b", "b", "absent", "x"}[r.IntN(2):] {
		out = append(out, v1alpha1.BindingStatus{
			Name: name, Step: pick("", "learn", "warn-dev", "warn", "unknown", strings.Repeat("x", 63)), Final: r.IntN(8) == 0,
			Since: times[r.IntN(len(times))], Next: times[r.IntN(len(times))], Paused: r.IntN(4) == 0,
			Token:      pick("", "12ab", "12ab-1", "12ab-9223372036854775807", "x--1", "a b\nc", strings.Repeat("t", 64), strings.Repeat("-", 64)),
			PolicyHash: pick("", "0", strings.Repeat("h", 64)), HeldBy: pick("", strings.Repeat("9", 1024)),
			Action: pick("", "Deny"), Examples: slices.Repeat([]string{strings.Repeat("e", 512)}, r.IntN(11)),
		})
	}
	return out
}

// randomCommands returns an annotation, and the actions in it that are for the token.
func randomCommands(r *rand.Rand, token string) (map[string]string, []Action) {
	var all []Command
	var actions []Action
	for range r.IntN(3) {
		c := Command{Action: Actions()[r.IntN(len(Actions()))], Binding: "b", Token: token}
		if r.IntN(2) == 0 {
			c.Token = "other"
		} else {
			actions = append(actions, c.Action)
		}
		all = append(all, c)
	}
	text := FormatCommands(all)
	if r.IntN(4) == 0 {
		text = strings.Repeat("stop b x,", r.IntN(2*maxCommands)) + text
	}
	return map[string]string{Annotation: text}, actions
}

// Tokens of other clients make no token that the API server rejects, none twice, and no second line in a Lease.
func TestHostileTokens(t *testing.T) {
	tests := map[string]struct{ token, wantAfter, wantKey string }{
		"of a step":        {token: "0123456789abcdef", wantAfter: "0123456789abcdef-1", wantKey: "0123456789abcdef"},
		"after a command":  {token: "0123456789abcdef-1", wantAfter: "0123456789abcdef-2", wantKey: "0123456789abcdef"},
		"as long as it is": {token: strings.Repeat("t", 64)},
		"two lines":        {token: "a\nb 1 AAAA x"},
		"a large number":   {token: "12ab-9223372036854775807", wantKey: "12ab"},
		"a negative one":   {token: "12ab--5", wantKey: "12ab"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			after, key := afterCommand(tt.token), EvidenceKey(tt.token)
			if tt.wantAfter == "" {
				tt.wantAfter = hashOf([]any{tt.token})
			}
			if tt.wantKey == "" {
				tt.wantKey = hashOf([]any{tt.token})
			}
			if diff := cmp.Diff([]string{tt.wantAfter, tt.wantKey}, []string{after, key}); diff != "" {
				t.Errorf("next token and key (-want +got):\n%s", diff)
			}
		})
	}
}

// A step whose beginning is earlier than the policy is that of another one, so its time begins again.
func TestStepOlderThanPolicy(t *testing.T) {
	tests := map[string]struct {
		created, since time.Duration // before now
		want           string
	}{
		"from before the policy":           {created: time.Hour, since: 48 * time.Hour, want: "Warn 3/3"},
		"a clock that differs by a minute": {created: 2 * time.Hour, since: 2*time.Hour + time.Minute, want: "Deny"},
		"created after now":                {created: -time.Hour, since: 2 * time.Hour, want: "Deny"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.reconcile()
			s := &w.policy.Status.Bindings[0]
			w.policy.CreationTimestamp = metav1.Time{Time: w.now.Add(-tt.created)}
			s.Step, s.Since = "warn", &metav1.Time{Time: w.now.Add(-tt.since)}
			s.PolicyHash = policyHash(&w.policy.Spec, &w.policy.Spec.Bindings[0], &w.rollout().Steps[2])
			w.reconcile()
			if diff := cmp.Diff(tt.want, w.describe()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}
