package pki

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"
)

// TestServingState follows one replica through what it may find in the Secret.
func TestServingState(t *testing.T) {
	first, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	unrelated, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	crossCertified := first
	for range 2 {
		o := steadyObserved(crossCertified, epoch0)
		o.Request = "please"
		var err error
		if crossCertified, err = Apply(crossCertified, Next(crossCertified, o, names, config()), o, names, config(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	withoutCross := Serving{Pair: unrelated.Serving.Pair, Bundle: mustBundle(t, first.CA.Pair, unrelated.CA.Pair), Epoch: 2, TrustEpoch: 2}
	onlyBundle := Serving{Bundle: withoutCross.Bundle, TrustEpoch: 2}
	holding := func(s Serving) ServingState { return ServingState{Serving: s} }
	live := []Bundle{first.Serving.Bundle}
	tests := map[string]struct {
		held       ServingState
		stored     Serving
		live       []Bundle
		now        time.Time
		wantReason Reason // why the pair is refused
		wantEpoch  int64  // that is presented
		wantTrust  int64
	}{
		"the first": {
			held:      ServingState{},
			stored:    first.Serving,
			now:       epoch0,
			wantEpoch: 1,
			wantTrust: 1,
		},
		"the first, untrusted: better than none": {
			held:      ServingState{},
			stored:    unrelated.Serving,
			live:      live,
			now:       epoch0,
			wantEpoch: 1,
			wantTrust: 1,
		},
		"a cross-certificate": {
			held:      holding(first.Serving),
			stored:    crossCertified.Serving,
			live:      live,
			now:       epoch0,
			wantEpoch: 2,
			wantTrust: 2,
		},
		"an untrusted CA": {
			held:       holding(first.Serving),
			stored:     withoutCross,
			live:       live,
			now:        epoch0,
			wantReason: ReasonChain,
			wantEpoch:  1,
			wantTrust:  2,
		},
		"a CA that all know": {
			held:      holding(first.Serving),
			stored:    withoutCross,
			live:      []Bundle{withoutCross.Bundle},
			now:       epoch0,
			wantEpoch: 2,
			wantTrust: 2,
		},
		"a bundle alone": {
			held:       holding(first.Serving),
			stored:     onlyBundle,
			live:       live,
			now:        epoch0,
			wantReason: ReasonEncoding,
			wantEpoch:  1,
			wantTrust:  2,
		},
		"a bundle that ends what is served": {
			held:       holding(first.Serving),
			stored:     unrelated.Serving,
			live:       live,
			now:        epoch0,
			wantReason: ReasonChain,
			wantEpoch:  1,
			wantTrust:  1,
		},
		"an older copy": {
			held:       holding(crossCertified.Serving),
			stored:     first.Serving,
			now:        epoch0,
			wantReason: ReasonEpoch,
			wantEpoch:  2,
			wantTrust:  2,
		},
		"an older copy, but own has expired": {
			held: holding(crossCertified.Serving),
			stored: Serving{
				Pair:       mustLeaf(t, first.CA.Pair, names, epoch0.Add(99*day)),
				Bundle:     first.Serving.Bundle,
				Epoch:      1,
				TrustEpoch: 1,
			},
			now:       epoch0.Add(100 * day),
			wantEpoch: 1,
			wantTrust: 2,
		},
		"an older leaf, the own root was given up": {
			held:      holding(withoutCross),
			stored:    Serving{Pair: first.Serving.Pair, Bundle: first.Serving.Bundle, Epoch: 1, TrustEpoch: 3},
			now:       epoch0,
			wantEpoch: 1,
			wantTrust: 3,
		},
		"an older leaf, the own root is trusted": {
			held:       holding(withoutCross),
			stored:     Serving{Pair: first.Serving.Pair, Bundle: withoutCross.Bundle, Epoch: 1, TrustEpoch: 3},
			now:        epoch0,
			wantReason: ReasonEpoch,
			wantEpoch:  2,
			wantTrust:  3,
		},
		"nothing": {
			held:       holding(first.Serving),
			stored:     Serving{},
			live:       live,
			now:        epoch0,
			wantReason: ReasonEncoding,
			wantEpoch:  1,
			wantTrust:  1,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tc.held.Accept(tc.stored, tc.live, names, clocksAt(tc.now), tc.now)
			var rejected *RejectedError
			switch errors.As(err, &rejected); {
			case tc.wantReason == "" && err != nil, tc.wantReason != "" && (rejected == nil || rejected.Reason != tc.wantReason):
				t.Errorf("error = %v, want reason %q", err, tc.wantReason)
			}
			if got.PresentedEpoch() != tc.wantEpoch || got.Serving.TrustEpoch != tc.wantTrust {
				t.Errorf("presents epoch %d, trusts %d; want %d and %d", got.PresentedEpoch(), got.Serving.TrustEpoch, tc.wantEpoch, tc.wantTrust)
			}
		})
	}
}

// TestTrial checks that a replica never presents less than it has reported.
func TestTrial(t *testing.T) {
	first, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	second := first.Serving
	second.Pair, second.Epoch = mustLeaf(t, first.CA.Pair, names, epoch0), 2
	p := Periods{Trial: time.Minute, Fallback: time.Hour}
	swapped, err := ServingState{Serving: first.Serving}.Accept(second, nil, names, clocksAt(epoch0), epoch0)
	if err != nil {
		t.Fatal(err)
	}
	fallen := swapped.Tick(epoch0.Add(30*time.Second), p).FallBack(epoch0.Add(30 * time.Second))
	over := swapped.Tick(epoch0.Add(time.Minute), p)
	tests := map[string]struct {
		held                     ServingState
		wantPresented, wantFloor int64
	}{
		"on trial":               {swapped, 2, 1},
		"fallen back":            {fallen, 1, 1},
		"fallen back for long":   {fallen.Tick(epoch0.Add(time.Hour), p), 1, 1},
		"once more":              {fallen.Tick(epoch0.Add(time.Hour+30*time.Second), p), 2, 2},
		"the trial is over":      {over, 2, 2},
		"distrusted afterwards":  {over.FallBack(epoch0.Add(2 * time.Minute)), 2, 2},
		"distrusted with no way": {ServingState{Serving: first.Serving}.FallBack(epoch0), 1, 1},
		"nothing":                {ServingState{}, 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.held.PresentedEpoch(); got != tc.wantPresented {
				t.Errorf("presents epoch %d, want %d", got, tc.wantPresented)
			}
			if got := tc.held.Committed(); got != tc.wantFloor {
				t.Errorf("reports epoch %d, want %d", got, tc.wantFloor)
			}
		})
	}
}

// TestServingStateCheck covers readiness.
func TestServingStateCheck(t *testing.T) {
	s, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	unrelated, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	own, other := s.Serving.Bundle, unrelated.Serving.Bundle
	tests := map[string]struct {
		held ServingState
		live []Bundle
		now  time.Time
		want string
	}{
		"good":               {held: ServingState{Serving: s.Serving}, live: []Bundle{own}, now: epoch0},
		"nothing registered": {held: ServingState{Serving: s.Serving}, now: epoch0},
		"one was edited":     {held: ServingState{Serving: s.Serving}, live: []Bundle{other, own}, now: epoch0},
		"nothing held":       {held: ServingState{}, now: epoch0, want: "no certificate"},
		"none trusts it": {
			held: ServingState{Serving: s.Serving},
			live: []Bundle{other},
			now:  epoch0,
			want: "the bundles in the webhook configurations do not verify it: x509: certificate signed by unknown authority",
		},
		"less than a day left": {
			held: ServingState{Serving: s.Serving},
			live: []Bundle{own},
			now:  epoch0.Add(89*day + time.Hour),
			want: "it expires in 23h0m0s, less than 24h0m0s: its renewal is overdue",
		},
		"a day and an hour left": {
			held: ServingState{Serving: s.Serving},
			live: []Bundle{own},
			now:  epoch0.Add(89*day - time.Hour),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got string
			if err := tc.held.Check(tc.live, names, config(), clocksAt(tc.now)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("Check() = %q, want %q", got, tc.want)
			}
		})
	}
}
