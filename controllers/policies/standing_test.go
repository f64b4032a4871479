package policies

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

func generationOf(number int64, edits ...func(*Generation)) *Generation {
	g := &Generation{Policy: &v1alpha1.WebhookPolicy{}, Compiled: &policy.Compiled{}, registrable: true}
	g.Policy.Generation = number
	for _, edit := range edits {
		edit(g)
	}
	return g
}

func invalid(g *Generation) { g.Errors = field.ErrorList{field.Invalid(nil, nil, "no")} }

func unregistrable(g *Generation) {
	invalid(g)
	g.registrable = false
}

func withBackend(g *Generation) { g.Policy.Spec.Backend = &v1alpha1.Backend{} }

func withKnownBundle(g *Generation) {
	withBackend(g)
	g.hasBundle = true
}

func asPlaceholder(g *Generation) { g.placeholder = true }

func withUnknownField(g *Generation) { g.Policy.UnknownFields = []string{"spec.future"} }

func reportedAsRefused(g *Generation) {
	g.Policy.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionRegistered, Reason: ReasonRefused, ObservedGeneration: g.Policy.Generation, Message: "reported",
	}}
}

// entryOf returns an entry whose previous generation may be nil.
func entryOf(choice Choice, latest, previous *Generation) *Entry {
	return &Entry{Generation: latest, Standing: Standing{Choice: choice, previous: previous}}
}

// TestDecide has every transition of a policy: each state that it can be in, with each event
// that can follow.
func TestDecide(t *testing.T) {
	const none, latest, previous, holder = ChooseNone, ChooseLatest, ChoosePrevious, ChoosePlaceholder
	one, two, three := generationOf(1), generationOf(2), generationOf(3)
	refusal := func(generation int64) map[int64]string { return map[int64]string{generation: "no"} }
	notYet := generationOf(2, withBackend)
	closed := generationOf(1, asPlaceholder)
	wrong := generationOf(2, invalid)
	tests := map[string]struct {
		before *Entry
		latest *Generation
		facts  Facts

		wantChoice   Choice
		wantPrevious int64 // generation; 0 is none
		wantRefusal  string
	}{
		// A policy that this process has not loaded before.
		"new":                       {latest: one, wantChoice: latest},
		"new and registered":        {latest: one, facts: Facts{Named: true}, wantChoice: latest},
		"new and invalid":           {latest: wrong, wantChoice: none},
		"invalid, after a restart":  {latest: wrong, facts: Facts{Named: true}, wantChoice: latest},
		"new and never registrable": {latest: generationOf(1, unregistrable), wantChoice: none},
		"never registrable, after a restart": {
			latest:     generationOf(2, unregistrable),
			facts:      Facts{Named: true},
			wantChoice: none,
		},
		"new and refused": {
			latest:      one,
			facts:       Facts{Refusals: refusal(1)},
			wantChoice:  none,
			wantRefusal: "no",
		},
		"refused in the status only": {latest: generationOf(1, reportedAsRefused), wantChoice: latest},
		"refused in the status, after a restart": {
			latest:     generationOf(2, reportedAsRefused),
			facts:      Facts{Named: true},
			wantChoice: latest,
		},
		"new, without a bundle":             {latest: notYet, wantChoice: none},
		"without a bundle, after a restart": {latest: notYet, facts: Facts{Named: true}, wantChoice: holder},
		"and refused in the status": {
			latest:      generationOf(2, withBackend, reportedAsRefused),
			facts:       Facts{Named: true},
			wantChoice:  holder,
			wantRefusal: "reported",
		},
		"unregistrable, without a bundle": {
			latest:     generationOf(2, withBackend, unregistrable),
			facts:      Facts{Named: true},
			wantChoice: none,
		},
		"new, with a bundle":                       {latest: generationOf(1, withKnownBundle), wantChoice: latest},
		"new, with a rejection of an earlier time": {latest: two, facts: Facts{Refusals: refusal(1)}, wantChoice: latest},

		// The latest generation was chosen, and is now registered.
		"unchanged": {
			before:     entryOf(latest, one, nil),
			latest:     one,
			facts:      Facts{Named: true, Registered: true},
			wantChoice: latest,
		},
		"changed": {
			before:       entryOf(latest, one, nil),
			latest:       two,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"changed before it was registered": {before: entryOf(latest, one, nil), latest: two, wantChoice: latest},
		"changed and invalid": {
			before:       entryOf(latest, one, nil),
			latest:       wrong,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"changed and unregistrable": {
			before:       entryOf(latest, one, nil),
			latest:       generationOf(2, unregistrable),
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   none,
			wantPrevious: 1,
		},
		"changed and refused": {
			before:       entryOf(latest, one, nil),
			latest:       two,
			facts:        Facts{Named: true, Registered: true, Refusals: refusal(2)},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "no",
		},
		"changed and refused elsewhere": {
			before:       entryOf(latest, one, nil),
			latest:       generationOf(2, reportedAsRefused),
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "reported",
		},
		"moved to a backend": {
			before:       entryOf(latest, one, nil),
			latest:       notYet,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"moved to a known backend": {
			before:       entryOf(latest, one, nil),
			latest:       generationOf(2, withKnownBundle),
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"refused": {
			before:      entryOf(latest, one, nil),
			latest:      one,
			facts:       Facts{Named: true, Refusals: refusal(1)},
			wantChoice:  none,
			wantRefusal: "no",
		},
		"its configuration was deleted": {before: entryOf(latest, one, nil), latest: one, wantChoice: latest},
		"the bundle is lost": {
			before:     entryOf(latest, generationOf(2, withKnownBundle), nil),
			latest:     notYet,
			facts:      Facts{Named: true},
			wantChoice: holder,
		},

		// A replica does not know a field of the latest generation.
		"new, and another replica is older": {latest: one, facts: Facts{Skew: "b"}, wantChoice: none},
		"new, and this replica is older": {
			latest:     generationOf(1, withUnknownField),
			facts:      Facts{Skew: "a"},
			wantChoice: none,
		},
		"another is older, after a restart": {latest: two, facts: Facts{Named: true, Skew: "b"}, wantChoice: latest},
		"this one is older, after a restart": {
			latest:     generationOf(2, withUnknownField),
			facts:      Facts{Named: true, Skew: "a"},
			wantChoice: holder,
		},
		"changed, and another is older": {
			before:       entryOf(latest, one, nil),
			latest:       two,
			facts:        Facts{Named: true, Registered: true, Skew: "b"},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"changed, and this one is older": {
			before:       entryOf(latest, one, nil),
			latest:       generationOf(2, withUnknownField),
			facts:        Facts{Named: true, Registered: true, Skew: "a"},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"changed again, and another is older": {
			before:       entryOf(previous, two, one),
			latest:       three,
			facts:        Facts{Named: true, Registered: true, Skew: "b"},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"another is still older": {
			before:       entryOf(previous, two, one),
			latest:       two,
			facts:        Facts{Named: true, Registered: true, Skew: "b"},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"all are upgraded": {
			before:       entryOf(previous, two, one),
			latest:       two,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"the field is removed": {
			before:       entryOf(previous, generationOf(2, withUnknownField), one),
			latest:       three,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"the field is removed, at a restart": {
			before:       entryOf(holder, generationOf(2, withUnknownField), closed),
			latest:       three,
			facts:        Facts{Named: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"an older one starts": {
			before:     entryOf(latest, two, nil),
			latest:     two,
			facts:      Facts{Named: true, Registered: true, Skew: "b"},
			wantChoice: latest,
		},
		"an older one starts while it waits": {
			before:       entryOf(latest, two, one),
			latest:       two,
			facts:        Facts{Named: true, Skew: "b"},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"refused, and another is older": {
			before:       entryOf(latest, one, nil),
			latest:       two,
			facts:        Facts{Named: true, Registered: true, Skew: "b", Refusals: refusal(2)},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "no",
		},
		"not registered yet, another is older": {before: entryOf(latest, one, nil), latest: two, facts: Facts{Skew: "b"}, wantChoice: none},

		// An invalid generation is registered: it is nothing to go back to.
		"corrected": {
			before:       entryOf(latest, wrong, one),
			latest:       three,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"corrected and refused": {
			before:      entryOf(latest, wrong, nil),
			latest:      three,
			facts:       Facts{Named: true, Registered: true, Refusals: refusal(3)},
			wantChoice:  none,
			wantRefusal: "no",
		},

		// The latest generation was chosen, and the previous one is still registered.
		"waiting": {
			before:       entryOf(latest, two, one),
			latest:       two,
			facts:        Facts{Named: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"waiting and changed": {
			before:       entryOf(latest, two, one),
			latest:       three,
			facts:        Facts{Named: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"waiting and refused": {
			before:       entryOf(latest, two, one),
			latest:       two,
			facts:        Facts{Named: true, Refusals: refusal(2)},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "no",
		},
		"waiting, the previous refused": {
			before:     entryOf(latest, two, one),
			latest:     two,
			facts:      Facts{Named: true, Refusals: refusal(1)},
			wantChoice: latest,
		},

		// The previous generation was chosen.
		"still refused": {
			before:       entryOf(previous, two, one),
			latest:       two,
			facts:        Facts{Named: true, Registered: true, Refusals: refusal(2)},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "no",
		},
		"no longer refused": {
			before:       entryOf(previous, two, one),
			latest:       two,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"refused and changed": {
			before:       entryOf(previous, two, one),
			latest:       three,
			facts:        Facts{Named: true, Registered: true, Refusals: refusal(2)},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"refused again": {
			before:       entryOf(previous, two, one),
			latest:       three,
			facts:        Facts{Named: true, Registered: true, Refusals: refusal(3)},
			wantChoice:   previous,
			wantPrevious: 1,
			wantRefusal:  "no",
		},
		"both refused": {
			before:      entryOf(previous, two, one),
			latest:      two,
			facts:       Facts{Named: true, Refusals: map[int64]string{1: "no", 2: "neither"}},
			wantChoice:  none,
			wantRefusal: "neither",
		},
		"without a bundle, still": {
			before:       entryOf(previous, notYet, one),
			latest:       notYet,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   previous,
			wantPrevious: 1,
		},
		"the bundle is known": {
			before:       entryOf(previous, notYet, one),
			latest:       generationOf(2, withKnownBundle),
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"without a bundle, the next time": {
			before:       entryOf(previous, notYet, one),
			latest:       generationOf(3, withBackend),
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   previous,
			wantPrevious: 1,
		},

		// failurePolicy decides the requests.
		"the bundle is not known yet": {
			before:       entryOf(holder, notYet, closed),
			latest:       notYet,
			facts:        Facts{Named: true},
			wantChoice:   holder,
			wantPrevious: 1,
		},
		"the bundle is known at last": {
			before:       entryOf(holder, notYet, closed),
			latest:       generationOf(2, withKnownBundle),
			facts:        Facts{Named: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"the bundle is lost again": {
			before:       entryOf(latest, generationOf(2, withKnownBundle), closed),
			latest:       notYet,
			facts:        Facts{Named: true},
			wantChoice:   holder,
			wantPrevious: 1,
		},
		"moved from the backend": {
			before:       entryOf(holder, notYet, closed),
			latest:       three,
			facts:        Facts{Named: true, Registered: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"moved from the backend, unwritten": {
			before:       entryOf(holder, notYet, closed),
			latest:       three,
			facts:        Facts{Named: true},
			wantChoice:   latest,
			wantPrevious: 1,
		},
		"the registration is refused": {
			before:       entryOf(holder, notYet, closed),
			latest:       notYet,
			facts:        Facts{Named: true, Refusals: refusal(2)},
			wantChoice:   holder,
			wantPrevious: 1,
			wantRefusal:  "no",
		},

		// The policy was not registered.
		"refused at first, and still": {
			before:      entryOf(none, one, nil),
			latest:      one,
			facts:       Facts{Refusals: refusal(1)},
			wantChoice:  none,
			wantRefusal: "no",
		},
		"refused at first, and changed": {
			before:     entryOf(none, one, nil),
			latest:     two,
			facts:      Facts{Refusals: refusal(1)},
			wantChoice: latest,
		},
		"the first bundle is known":        {before: entryOf(none, notYet, nil), latest: generationOf(2, withKnownBundle), wantChoice: latest},
		"invalid at first, then corrected": {before: entryOf(none, wrong, nil), latest: three, wantChoice: latest},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.before != nil && tc.before.Policy.Generation == tc.latest.Policy.Generation {
				same := *tc.latest // with a bundle, for example, it is compiled once
				same.Compiled = tc.before.Compiled
				tc.latest = &same
			}
			got := Decide(tc.before, tc.latest, tc.facts)
			gotPrevious := int64(0)
			if got.previous != nil {
				gotPrevious = got.previous.Policy.Generation
			}
			want := []any{tc.wantChoice, tc.wantPrevious, tc.wantRefusal}
			if diff := cmp.Diff(want, []any{got.Choice, gotPrevious, got.Refusal}); diff != "" {
				t.Errorf("choice, previous generation and refusal (-want +got):\n%s", diff)
			}
			if got.Choice == previous && got.previous == nil {
				t.Error("the previous generation is chosen, and there is none")
			}
		})
	}
}

// The generation that is registered needs no previous one, and any other choice does.
func TestConfirmed(t *testing.T) {
	for choice, wantPrevious := range map[Choice]bool{ChooseLatest: false, ChoosePrevious: true, ChoosePlaceholder: true} {
		got := Standing{Choice: choice, previous: generationOf(1)}.confirmed()
		if (got.previous != nil) != wantPrevious {
			t.Errorf("choice %d: keeps a previous generation: %t, want %t", choice, got.previous != nil, wantPrevious)
		}
	}
}

// A generation that is compiled again, for another engine, is like a new one.
func TestDecideForAnotherEngine(t *testing.T) {
	before := entryOf(ChooseLatest, generationOf(1), nil)
	got := Decide(before, generationOf(1), Facts{Named: true, Registered: true})
	if got.Choice != ChooseLatest || got.previous != before.Generation {
		t.Errorf("got %+v, want the latest generation, with the earlier one kept", got)
	}
}

// The conditions are those of the generation that is registered, not of the latest.
func TestDelegationError(t *testing.T) {
	conditional := newPolicy("p", 1, "true")
	conditional.Spec.MatchConditions = conditionsOf("object.metadata.name != 'x'")
	l := newLoader(t)
	before := load(l, nil, conditional)
	condition := before.Entries["uid-p"].prepared.Condition()
	if condition == "" {
		t.Fatal("the condition is not delegated")
	}
	rejected := map[string]string{condition: "no"}
	latest := generationOf(2)
	for name, tc := range map[string]struct {
		refusals map[int64]string
		want     string
	}{
		"the latest generation has no condition":    {},
		"the previous generation has the condition": {refusals: map[int64]string{2: "refused"}, want: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := Facts{Named: true, Registered: true, Refusals: tc.refusals, RefusedConditions: rejected}
			if got := Decide(before.Entries["uid-p"], latest, facts).DelegationError; got != tc.want {
				t.Errorf("delegation error %q, want %q", got, tc.want)
			}
		})
	}
}

func conditionsOf(expression string) []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
}
