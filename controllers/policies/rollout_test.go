package policies

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// staged returns a policy with a rollout in a step, as it is in a resource version; "" is the final action.
func staged(step, version string, edits ...func(*v1alpha1.BindingStatus)) *v1alpha1.WebhookPolicy {
	p := newPolicy("p", 1, "false")
	p.ResourceVersion = version
	p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
		Steps: []v1alpha1.RolloutStep{
			{Name: "learn", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}},
			{Name: "warn", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}},
		},
		Final: v1alpha1.RolloutFinal{ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}}}
	s := v1alpha1.BindingStatus{Name: "b", Step: step, Final: step == "", Token: "of-" + step}
	for _, edit := range edits {
		edit(&s)
	}
	p.Status.Bindings = []v1alpha1.BindingStatus{s}
	return &p
}

func heldBy(s *v1alpha1.BindingStatus) { s.HeldBy = "1 violation" }

// A step is loaded like a generation: replicas that have not loaded it are waited for.
func TestStepIsLoaded(t *testing.T) {
	l := newLoader(t)
	load := func(before *State, p *v1alpha1.WebhookPolicy) *State {
		var observed []registration.Configuration
		if before != nil {
			for _, g := range before.Plan.Groups {
				observed = append(observed, g.Configuration)
			}
		}
		return publish(l, []*v1alpha1.WebhookPolicy{p}, observed)
	}
	first := load(nil, staged("learn", "10"))
	held := load(first, staged("learn", "11", heldBy))
	if a, b := first.Entries["uid-p"], held.Entries["uid-p"]; a.Compiled != b.Compiled || b.LoadedVersion() != "10" {
		t.Errorf("another text is compiled again, with version %s", b.LoadedVersion())
	}
	second := load(held, staged("warn", "12"))
	if a, b := held.Entries["uid-p"], second.Entries["uid-p"]; a.Compiled == b.Compiled || b.LoadedVersion() != "12" {
		t.Errorf("another step is not compiled, and has version %s", b.LoadedVersion())
	}
	if got := second.Entries["uid-p"].Requirement().Loaded[versionskew.Policies]; got != "12" {
		t.Errorf("a replica needs version %s, want 12", got)
	}
	final := load(second, staged("", "13"))
	if got, was := final.Plan.Groups[0].Name, second.Plan.Groups[0].Name; got == was {
		t.Errorf("the policy stays in the call group %s, although it denies now", got)
	}
	if answers := answering(final, second.Plan.Groups[0].Key(), final.Plan.Groups[0].Key()); len(answers) != 2 {
		t.Errorf("groups that answer during the move: %v", answers)
	}
}

// A replica does not report a version of the cache whose step it has not loaded.
func TestStepIsNotReportedBeforeItIsLoaded(t *testing.T) {
	l := newLoader(t)
	l.cached = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	cache := func(p *v1alpha1.WebhookPolicy) {
		if err := l.cached.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	cache(staged("learn", "10"))
	publish(l, l.policies(), nil)
	cache(staged("learn", "11", heldBy))
	if got := l.Report().Loaded[versionskew.Policies]; got != "11" {
		t.Errorf("reports version %s, want 11: only a text has changed", got)
	}
	cache(staged("", "12"))
	if got := l.Report().Loaded[versionskew.Policies]; versionskew.Reached(got, "12") {
		t.Errorf("reports version %s before the step is loaded", got)
	}
	publish(l, l.policies(), nil)
	if got := l.Report().Loaded[versionskew.Policies]; got != "12" {
		t.Errorf("reports version %s, want 12", got)
	}
}

func TestCurrentNeedsTheStep(t *testing.T) {
	live := paged{pages: map[string]metav1.PartialObjectMetadataList{"": {
		ListMeta: metav1.ListMeta{ResourceVersion: "12"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p", Generation: 1, ResourceVersion: "12"}}},
	}}}
	for name, tc := range map[string]struct {
		loaded, cached *v1alpha1.WebhookPolicy
		want           bool
	}{
		"the cache is older":           {staged("learn", "10"), staged("learn", "10"), false},
		"the step is not loaded":       {staged("learn", "10"), staged("", "12"), false},
		"the step is loaded":           {staged("", "12"), staged("", "12"), true},
		"only the text is not loaded":  {staged("learn", "10"), staged("learn", "12", heldBy), true},
		"the cache is newer than that": {staged("", "13"), staged("", "13"), true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoader(t)
			l.cached = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
			if err := l.cached.Add(tc.cached); err != nil {
				t.Fatal(err)
			}
			publish(l, []*v1alpha1.WebhookPolicy{tc.loaded}, nil)
			if err := l.Current(t.Context(), live); (err == nil) != tc.want {
				t.Errorf("got %v, want success: %t", err, tc.want)
			}
		})
	}
}

func TestStepsAreRelevantEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after *v1alpha1.WebhookPolicy
		want          bool
	}{
		"a text":           {staged("learn", "1"), staged("learn", "2", heldBy), false},
		"another step":     {staged("learn", "1"), staged("warn", "2"), true},
		"the final action": {staged("warn", "1"), staged("", "2"), true},
		"a lost state":     {staged("", "1"), staged("", "2", func(s *v1alpha1.BindingStatus) { s.Name = "lost" }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := relevantEvents().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// A replica that does not know rollouts would take the default action Deny.
func TestRolloutThatAnotherReplicaDoesNotKnow(t *testing.T) {
	l := newLoader(t)
	warns := newPolicy("p", 1, "false")
	warns.Spec.Bindings = []v1alpha1.Binding{{Name: "b", ValidationActions: []admissionregistrationv1.ValidationAction{"Warn"}}}
	state := load(l, load(l, nil, warns), warns)
	old := fieldsWithout(t, "bindings")
	old["bindings"] = versionskew.Fields{"name": nil, "validationActions": nil, "matchResources": nil, "paramRef": nil}
	besides(l, map[string]versionskew.Fields{"new": versionskew.KnownFields(), "old": old})
	changed := staged("", "20")
	changed.Generation = 2
	state = load(l, state, *changed)
	const want = "waiting for replica old, which does not know spec.bindings.rollout"
	if e := state.Entries["uid-p"]; e.EffectiveGeneration() != 1 || e.Skew != want {
		t.Errorf("generation %d is registered, because %q; want generation 1, because %q", e.EffectiveGeneration(), e.Skew, want)
	}
}

// If the API server rejects the registration of a step, the earlier one stays: the policy is not disabled.
func TestDecideForAnotherStep(t *testing.T) {
	refused := map[int64]string{1: "no"}
	for name, tc := range map[string]struct {
		facts      Facts
		wantChoice Choice
	}{
		"registered":                  {Facts{Named: true, Registered: true}, ChooseLatest},
		"rejected":                    {Facts{Named: true, Registered: true, Refusals: refused}, ChoosePrevious},
		"rejected before it was ever": {Facts{Refusals: refused}, ChooseNone},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(entryOf(ChooseLatest, generationOf(1), nil), generationOf(1), tc.facts)
			if got.Choice != tc.wantChoice {
				t.Errorf("choice %d, want %d", got.Choice, tc.wantChoice)
			}
		})
	}
}
