package policies

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// naming is the configuration of policies that another replica has planned.
func naming(policies ...v1alpha1.WebhookPolicy) []registration.Configuration {
	in := registration.Input{Endpoint: registration.Endpoint{URL: "https://127.0.0.1:1"}, CABundle: []byte("bundle")}
	for i := range policies {
		in.Policies = append(in.Policies, &policies[i])
	}
	var out []registration.Configuration
	for _, g := range registration.Build(in).Groups {
		out = append(out, g.Configuration)
	}
	return out
}

// A configuration names what is not loaded here: it may have been created or
// deleted a moment ago, and only one of these may be answered with "allowed".
func TestUnseenPolicies(t *testing.T) {
	a, b := newPolicy("a", 1, "true"), newPolicy("b", 1, "false")
	again := b
	again.UID = "uid-again"
	noOwner := naming(a, b)
	noOwner[0].SetOwnerReferences(nil)
	tests := map[string]struct {
		before   []v1alpha1.WebhookPolicy // loaded earlier
		loaded   []v1alpha1.WebhookPolicy
		observed []registration.Configuration
		existing map[string]types.UID // nil: the API server does not answer
		want     string               // the policy that is missing
	}{
		"all are loaded": {loaded: []v1alpha1.WebhookPolicy{a, b}, observed: naming(a, b)},
		"one was deleted here": {
			before:   []v1alpha1.WebhookPolicy{a, b},
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: naming(a, b),
		},
		"one was deleted before": {
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: naming(a, b),
			existing: map[string]types.UID{"a": a.UID},
		},
		"one is new": {
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: naming(a, b),
			existing: map[string]types.UID{"a": a.UID, "b": b.UID},
			want:     "b",
		},
		"the API server does not answer": {loaded: []v1alpha1.WebhookPolicy{a}, observed: naming(a, b), want: "b"},
		"one was made again": {
			loaded:   []v1alpha1.WebhookPolicy{a, b},
			observed: naming(a, again),
			existing: map[string]types.UID{"a": a.UID, "b": again.UID},
			want:     "b",
		},
		"the former of one made again": {
			loaded:   []v1alpha1.WebhookPolicy{a, again},
			observed: naming(a, b),
			existing: map[string]types.UID{"a": a.UID, "b": again.UID},
		},
		"an owner was taken out": {
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: noOwner,
			existing: map[string]types.UID{"a": a.UID, "b": b.UID},
			want:     "b",
		},
		"a name was put in": {
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: noOwner,
			existing: map[string]types.UID{"a": a.UID},
		},
		"a configuration of no group": {
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: []registration.Configuration{registration.NewConfiguration(registration.PhaseValidate)},
		},
		"loaded again, and still behind": {
			before:   []v1alpha1.WebhookPolicy{a},
			loaded:   []v1alpha1.WebhookPolicy{a},
			observed: naming(a, b),
			existing: map[string]types.UID{"a": a.UID, "b": b.UID},
			want:     "b",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLoader(t)
			l.Existing = func(context.Context) (map[string]types.UID, error) {
				if tt.existing == nil {
					return nil, errors.New("no answer")
				}
				return tt.existing, nil
			}
			if tt.before != nil {
				load(l, nil, tt.before...)
			}
			for range 2 { // what was found out once is not forgotten
				state := stateFor(l, pointersTo(tt.loaded), tt.observed)
				if len(state.unknown) > 0 && len(state.pending) == 0 {
					t.Error("a group is answered for while a policy of it is in doubt")
				}
				if resolved, err := l.resolveUnknown(t.Context(), state); err == nil {
					state = resolved
				}
				var want map[registration.GroupKey]string
				if tt.want != "" {
					key, _ := registration.GroupOf(tt.observed[0])
					want = map[registration.GroupKey]string{key: tt.want}
				}
				if diff := cmp.Diff(want, state.pending); diff != "" && len(want)+len(state.pending) > 0 {
					t.Errorf("pending (-want +got):\n%s", diff)
				}
				l.Store.publish(state)
			}
		})
	}
}

// A request for what is not loaded waits for a moment, and is answered as soon
// as it is.
func TestRequestsWaitForWhatIsLoadedNext(t *testing.T) {
	l := newLoader(t)
	p := newPolicy("p", 1, "false")
	state := stateFor(l, []*v1alpha1.WebhookPolicy{&p}, nil)
	key := groupOf(state, registration.PhaseValidate, "p")
	answered := make(chan error, 1)
	request := &admissionv1.AdmissionRequest{
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "services"},
		Operation: admissionv1.Create,
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	go func() {
		_, err := l.Store.Evaluate(ctx, key, request)
		answered <- err
	}()
	for l.Store.waiting.Load() == 0 {
		select {
		case err := <-answered:
			t.Fatalf("answered with %v before anything is loaded", err)
		case <-time.After(time.Millisecond):
		}
	}
	l.Store.publish(state)
	if err := <-answered; err != nil {
		t.Errorf("Evaluate() = %v after the load", err)
	}
	if n := l.Store.waiting.Load(); n != 0 {
		t.Errorf("%d requests still wait", n)
	}
}

func TestPauseFitsIntoTheTimeout(t *testing.T) {
	tests := map[string]struct {
		left        time.Duration
		wantWait    time.Duration
		wantRetryIn time.Duration
	}{
		"ordinarily": {10 * time.Second, time.Second, time.Second},
		"short":      {time.Second, 500 * time.Millisecond, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tt.left)
			defer cancel()
			if got := waitTimeout(ctx); got > tt.wantWait {
				t.Errorf("waits for %s, want %s", got, tt.wantWait)
			}
			if got := (&NotLoadedError{}).retryableIn(ctx).RetryAfter(); got != tt.wantRetryIn {
				t.Errorf("asks for a pause of %s, want %s", got, tt.wantRetryIn)
			}
		})
	}
}

// Whoever reaches the port can ask for groups that do not exist: those must not
// hold what others need.
func TestFewRequestsWait(t *testing.T) {
	l := newLoader(t)
	load(l, nil)
	l.Store.waiting.Store(maxWaiting)
	began := make(chan struct{})
	go func() {
		defer close(began)
		_, err := l.Store.Evaluate(t.Context(), registration.GroupKey{Phase: registration.PhaseValidate, Name: "x"},
			&admissionv1.AdmissionRequest{})
		var notLoaded *NotLoadedError
		if !errors.As(err, &notLoaded) || notLoaded.RetryAfter() != retryAfter {
			t.Errorf("Evaluate() = %v", err)
		}
	}()
	<-began
	if n := l.Store.waiting.Load(); n != maxWaiting {
		t.Errorf("%d requests wait, want %d", n, maxWaiting)
	}
}

func TestLoadedVersionNeverGoesBack(t *testing.T) {
	at := func(p v1alpha1.WebhookPolicy, version string) v1alpha1.WebhookPolicy {
		p.ResourceVersion = version
		return p
	}
	l := newLoader(t)
	a, b := newPolicy("a", 1, "true"), newPolicy("b", 1, "true")
	for _, step := range []struct {
		policies []v1alpha1.WebhookPolicy
		want     string
	}{
		{nil, ""},
		{[]v1alpha1.WebhookPolicy{at(a, "9"), at(b, "10")}, "10"},
		{[]v1alpha1.WebhookPolicy{at(a, "9")}, "10"},
		{[]v1alpha1.WebhookPolicy{at(a, "100")}, "100"},
	} {
		if got := load(l, nil, step.policies...).Versions[versionskew.Policies]; got != step.want {
			t.Errorf("version %q, want %q", got, step.want)
		}
	}
}
