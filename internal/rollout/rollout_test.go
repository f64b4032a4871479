package rollout

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// inState returns the test policy with a recorded step, or with the final action for "".
func inState(step string) *v1alpha1.WebhookPolicy {
	p := testPolicy()
	p.Status.Bindings = []v1alpha1.BindingStatus{{Name: "b", Step: step, Final: step == "", Token: "key-1"}}
	return p
}

func TestEffective(t *testing.T) {
	dev := testPolicy().Spec.Bindings[0].Rollout.Steps[1].NamespaceSelector
	atLearn := Effect{Step: "learn", ValidationActions: does(audit), MutationAction: v1alpha1.MutationActionPreview}
	counted := func(e Effect) Effect { e.Evidence = "key"; return e }
	inDev := Effect{Step: "warn-dev", NamespaceSelector: dev, ValidationActions: does(warn), MutationAction: v1alpha1.MutationActionPreview}
	everywhere := Effect{Step: "warn", ValidationActions: does(warn), MutationAction: v1alpha1.MutationActionPreview}
	unselected := testPolicy()
	unselected.Spec.Bindings[0].Rollout.Steps[0].NamespaceSelector = dev // the definition rejects it
	plain := &v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{Bindings: []v1alpha1.Binding{{Name: "b"}}}}
	for _, tc := range []struct {
		name   string
		policy *v1alpha1.WebhookPolicy
		want   []Effect
	}{
		{"no recorded state", testPolicy(), []Effect{atLearn}},
		{"an unknown step", inState("unknown"), []Effect{atLearn}},
		{"the first step", inState("learn"), []Effect{counted(atLearn)}},
		{"a step with a selector", inState("warn-dev"), []Effect{counted(inDev), atLearn}},
		{"a step without a selector after one with", inState("warn"), []Effect{counted(everywhere)}},
		{"the final action", inState(""), []Effect{{ValidationActions: does(deny), MutationAction: v1alpha1.MutationActionApply}}},
		{"without a rollout", plain, []Effect{{ValidationActions: does(deny), MutationAction: v1alpha1.MutationActionApply}}},
		{"a selector of the first step", unselected, []Effect{atLearn}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Effective(&tc.policy.Spec.Bindings[0], tc.policy.Status.Bindings)); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInEffect(t *testing.T) {
	staged := inState("warn-dev")
	staged.Spec.PodTemplates = &v1alpha1.PodTemplates{ValidationActions: does(deny)}
	mixed := inState("learn")
	mixed.Spec.Bindings = append(mixed.Spec.Bindings, v1alpha1.Binding{Name: "other"})
	mixed.Spec.PodTemplates = &v1alpha1.PodTemplates{ValidationActions: does(warn)}
	for _, tc := range []struct {
		name        string
		policy      *v1alpha1.WebhookPolicy
		wantDenies  bool
		wantActions string
	}{
		{"no recorded state", testPolicy(), false, "Audit 1/3"},
		{"a step with a selector, without the actions for templates", staged, false, "Warn,Audit 2/3"},
		{"the final action", inState(""), true, "Deny"},
		{"another binding denies", mixed, true, "Deny,Warn,Audit 1/3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.policy.DeepCopy()
			if got := InEffect(tc.policy).Spec.Denies(); got != tc.wantDenies {
				t.Errorf("denies: got %t, want %t", got, tc.wantDenies)
			}
			if got := ActionsOf(tc.policy); got != tc.wantActions {
				t.Errorf("actions: got %q, want %q", got, tc.wantActions)
			}
			if diff := cmp.Diff(before, tc.policy); diff != "" {
				t.Errorf("the policy has changed:\n%s", diff)
			}
		})
	}
	if p := new(v1alpha1.WebhookPolicy); InEffect(p) != p {
		t.Error("a policy without a rollout is copied")
	}
}

// TestRecorded shows that a policy that has changed does not deny before its restart is recorded.
func TestRecorded(t *testing.T) {
	restarting := func(change func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
		p := inState("")
		p.Spec.Bindings[0].Rollout.OnChange = v1alpha1.RolloutOnChangeRestart
		p.Status.Bindings[0].PolicyHash = policyHash(&p.Spec, &p.Spec.Bindings[0], nil)
		change(p)
		return p
	}
	another := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = []v1alpha1.Validation{{Expression: "false"}}
	}
	for _, tc := range []struct {
		name       string
		policy     *v1alpha1.WebhookPolicy
		wantDenies bool
	}{
		{"unchanged", restarting(func(*v1alpha1.WebhookPolicy) {}), true},
		{"another validation", restarting(another), false},
		{"another message", restarting(func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].Message = "another" }), true},
		{"another validation, with Keep", restarting(func(p *v1alpha1.WebhookPolicy) {
			another(p)
			p.Spec.Bindings[0].Rollout.OnChange = v1alpha1.RolloutOnChangeKeep
		}), true},
		{"a state without a hash", restarting(func(p *v1alpha1.WebhookPolicy) {
			another(p)
			p.Status.Bindings[0].PolicyHash = ""
		}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			effects := Effective(&tc.policy.Spec.Bindings[0], Recorded(tc.policy))
			if got := slices.Contains(effects[0].ValidationActions, deny); got != tc.wantDenies {
				t.Errorf("denies: got %t, want %t", got, tc.wantDenies)
			}
			if got := InEffect(tc.policy).Spec.Denies(); got != tc.wantDenies {
				t.Errorf("is registered as one that denies: got %t, want %t", got, tc.wantDenies)
			}
		})
	}
}

// TestSpecAloneNeverDenies shows what code does that has no status.
func TestSpecAloneNeverDenies(t *testing.T) {
	if spec := inState("").Spec; spec.Denies() {
		t.Error("the bindings of a spec deny without a status")
	}
}

func TestSameEffect(t *testing.T) {
	now := func(change func(*v1alpha1.BindingStatus)) *v1alpha1.WebhookPolicy {
		p := inState("warn")
		change(&p.Status.Bindings[0])
		return p
	}
	for _, tc := range []struct {
		name string
		b    *v1alpha1.WebhookPolicy
		want bool
	}{
		{"equal", inState("warn"), true},
		{"only texts and a command", now(func(s *v1alpha1.BindingStatus) { s.HeldBy, s.Token = "held", "key-2" }), true},
		{"another step", inState("learn"), false},
		{"the step has begun again", now(func(s *v1alpha1.BindingStatus) { s.Token = "other" }), false},
		{"the final action", inState(""), false},
		{"no state", testPolicy(), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SameEffect(inState("warn"), tc.b); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		want        []Command
		wantErr     string
	}{
		{"none", " ", nil, ""},
		{"one", "pause everywhere 12ab", []Command{{Pause, "everywhere", "12ab"}}, ""},
		{"several", "skip a 1, restart b 2-3", []Command{{Skip, "a", "1"}, {Restart, "b", "2-3"}}, ""},
		{"an unknown one beside a known one", "stop a 1,complete b 2", []Command{{Complete, "b", "2"}}, `"stop a 1"`},
		{"without a token", "pause a", nil, "COMMAND BINDING TOKEN"},
		{"too many", strings.Repeat("pause a 1,", 101), nil, "more than 100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseCommands(tc.value)
			if tc.name == "too many" {
				got = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error: got %v, want %q", err, tc.wantErr)
			}
			if err == nil {
				again, err := ParseCommands(FormatCommands(got))
				if diff := cmp.Diff(got, again); diff != "" || err != nil {
					t.Errorf("formatted and read again: %v\n%s", err, diff)
				}
			}
		})
	}
}

// TestTokensDiffer replays every command in every later state: none of them has an effect.
func TestTokensDiffer(t *testing.T) {
	w := newWorld()
	seen := map[string]bool{}
	for i := range 40 {
		w.reconcile()
		token := w.state().Token
		if seen[token] {
			t.Fatalf("state %d has the token %s of an earlier one", i, token)
		}
		seen[token] = true
		command([]Action{Pause, Resume, Skip, Restart}[i%4])(w)
	}
}

func TestSketch(t *testing.T) {
	for _, n := range []int{0, 1, 63, 1000, 200_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var one, two Sketch
			for i := range n {
				text := fmt.Sprintf("namespace/ReplicaSet/web-%d", i)
				one, _ = one.Add(text)
				if i%2 == 0 {
					two, _ = two.Add(text)
				}
			}
			read, ok := ParseSketch(two.Merge(one).Merge(two).String())
			if !ok {
				t.Fatal("a sketch cannot be read")
			}
			got, isEstimate := read.Count()
			if isEstimate != (n >= maxKept) {
				t.Errorf("estimate: got %t", isEstimate)
			}
			limit := 0.0
			if isEstimate {
				limit = 0.4 * float64(n) // three standard errors
			}
			if math.Abs(float64(got)-float64(n)) > limit {
				t.Errorf("got %d, want %d", got, n)
			}
		})
	}
	for _, text := range []string{"?", "AAAA", strings.Repeat("AAAAAAAAAAA", 70)} {
		if _, ok := ParseSketch(text); ok {
			t.Errorf("%q is read", text)
		}
	}
}

// TestOneWriteForEachStep counts the states of 1,000 policies that run through all steps, which are decided every ten minutes.
func TestOneWriteForEachStep(t *testing.T) {
	for i := range 1000 {
		w := newWorld()
		w.policy.UID = ""
		w.now = w.now.Add(time.Duration(i) * time.Second)
		for range 6 * 6 {
			w.reconcile()
			w.now = w.now.Add(10 * time.Minute)
		}
		if w.describe() != final || w.writes != 4 {
			t.Fatalf("policy %d: %d writes until %s, want 4", i, w.writes, w.describe())
		}
		if w.requeue != 0 {
			t.Fatalf("policy %d is decided again in %s, although it is at rest", i, w.requeue)
		}
	}
}

func TestExamplesAreBounded(t *testing.T) {
	w := newWorld()
	second := *w.policy.Spec.Bindings[0].DeepCopy()
	second.Name = "c"
	third := *second.DeepCopy()
	third.Name = "d"
	w.policy.Spec.Bindings = append(w.policy.Spec.Bindings, second, third)
	for range 9 {
		w.objects.Examples = append(w.objects.Examples, strings.Repeat("x", 600))
		w.requests.Examples = append(w.requests.Examples, "y")
	}
	w.objects.Count, w.requests.Count = 9, 9
	w.reconcile()
	w.now = w.now.Add(time.Hour)
	w.reconcile()
	w.now = w.now.Add(2 * time.Hour)
	w.reconcile()
	total := 0
	for _, s := range w.policy.Status.Bindings {
		total += len(s.Examples)
		for _, text := range s.Examples {
			if len(text) > maxExampleText {
				t.Errorf("an example has %d bytes", len(text))
			}
		}
	}
	if total != maxExamplesOfPolicy {
		t.Errorf("got %d examples, want %d", total, maxExamplesOfPolicy)
	}
}

func TestUpToSecond(t *testing.T) {
	at := metav1.NewTime(start().Add(time.Nanosecond))
	if got, want := upToSecond(at.Time), start().Add(time.Second); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
