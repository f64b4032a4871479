package pki

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNext(t *testing.T) {
	fresh, kinds := runUntilSteady(t, State{}, names, config(), epoch0)
	if diff := cmp.Diff([]Kind{CreateCA, IssueLeaf}, kinds); diff != "" {
		t.Fatalf("from nothing: %s", diff)
	}
	second := mustCA(t, names, epoch0)
	with := func(change func(*State)) State { s := fresh; change(&s); return s }
	more := Names{DNS: append([]string{"ostiary.example.org"}, names.DNS...), IPs: names.IPs}
	fewer := Names{DNS: names.DNS}

	expiring, err := newCA(names, Config{CALifetime: day}.WithDefaults(), clocksAt(epoch0), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rotated := []Kind{CreateCA, IssueLeaf, Retire, PublishBundle}
	tests := map[string]struct {
		state State
		names Names
		now   time.Time
		want  []Kind
	}{
		"fresh": {state: fresh, names: names, now: epoch0},
		"names reordered": {
			state: fresh,
			names: Names{DNS: names.DNS, IPs: append(names.IPs, names.IPs...)},
			now:   epoch0,
		},
		"just before day 60":    {state: fresh, names: names, now: epoch0.Add(60*day - time.Second)},
		"day 60":                {state: fresh, names: names, now: epoch0.Add(60 * day), want: []Kind{IssueLeaf}},
		"leaf expired":          {state: fresh, names: names, now: epoch0.Add(100 * day), want: []Kind{IssueLeaf}},
		"clock behind":          {state: fresh, names: names, now: epoch0.Add(-30 * time.Minute)},
		"all clocks far behind": {state: fresh, names: names, now: epoch0.Add(-2 * time.Hour), want: rotated},
		"half of CA life": {
			state: fresh,
			names: names,
			now:   epoch0.Add(defaultCALifetime / 2),
			want:  append([]Kind{IssueLeaf}, rotated...),
		},
		"CA expired": {
			state: fresh,
			names: names,
			now:   epoch0.Add(defaultCALifetime + time.Second),
			want:  []Kind{CreateCA, IssueLeaf, PublishBundle},
		},
		"leaf missing": {
			state: with(func(s *State) { s.Serving.Pair = Pair{} }),
			names: names,
			now:   epoch0,
			want:  []Kind{IssueLeaf},
		},
		"serving missing": {
			state: with(func(s *State) { s.Serving = Serving{} }),
			names: names,
			now:   epoch0,
			want:  []Kind{IssueLeaf},
		},
		"bundle missing": {
			state: with(func(s *State) { s.Serving.Bundle = Bundle{} }),
			names: names,
			now:   epoch0,
			want:  []Kind{PublishBundle},
		},
		"bundle with an unrelated CA": {
			state: with(func(s *State) { s.Serving.Bundle = mustBundle(t, s.CA.Pair, second) }),
			names: names,
			now:   epoch0,
			want:  []Kind{PublishBundle},
		},
		"epoch of serving missing": {
			state: with(func(s *State) { s.Serving.Epoch = 0 }),
			names: names,
			now:   epoch0,
			want:  []Kind{PublishBundle},
		},
		"CA missing": {
			state: with(func(s *State) { s.CA = Authority{} }),
			names: names,
			now:   epoch0,
			want:  []Kind{CreateCA, PublishBundle},
		},
		"CA restored from a copy": {
			state: with(func(s *State) { s.Serving.Epoch, s.Serving.TrustEpoch = 2, 2 }),
			names: names,
			now:   epoch0,
			want:  []Kind{CreateCA, PublishBundle},
		},
		"CA replaced by an unrelated one": {
			state: with(func(s *State) { s.CA.Pair = second }),
			names: names,
			now:   epoch0,
			want:  []Kind{CreateCA, PublishBundle},
		},
		"a leaf in the CA's place": {
			state: with(func(s *State) { s.CA.Pair = s.Serving.Pair }),
			names: names,
			now:   epoch0,
			want:  []Kind{CreateCA, PublishBundle},
		},
		"a name more": {state: fresh, names: more, now: epoch0, want: rotated},
		"a name less": {state: fresh, names: fewer, now: epoch0, want: []Kind{IssueLeaf}},
		"highest epoch": {
			state: with(func(s *State) { s.CA, s.Serving.Epoch = Authority{}, MaxEpoch }),
			names: names,
			now:   epoch0,
			want:  []Kind{CreateCA, PublishBundle},
		},
		"previous is a leaf": {
			state: with(func(s *State) { s.CA.Previous = s.Serving.Pair.Certificate() }),
			names: names,
			now:   epoch0,
			want:  []Kind{Retire},
		},
		"previous of an older version, not needed": {
			state: with(func(s *State) {
				s.CA.Previous, s.Serving.Bundle = second.Certificate(), mustBundle(t, s.CA.Pair, second)
			}),
			names: names, now: epoch0, want: []Kind{Retire, PublishBundle},
		},
		"previous expired": {
			state: with(func(s *State) { s.CA.Previous = expiring.Certificate() }),
			names: names,
			now:   epoch0.Add(2 * day),
			want:  []Kind{Retire},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, kinds := runUntilSteady(t, tc.state, tc.names, config(), tc.now)
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			checkSteady(t, got, tc.names, tc.now)
		})
	}
}

// checkSteady states what holds whenever there is nothing to do.
func checkSteady(t *testing.T, s State, n Names, now time.Time) {
	t.Helper()
	if err := s.Serving.Pair.Check(s.Serving.Bundle, n, now); err != nil {
		t.Errorf("the leaf does not verify under the published bundle: %v", err)
	}
	if count := len(s.Serving.Bundle.roots); count < 1 || count > 2 {
		t.Errorf("the bundle has %d roots", count)
	}
	if _, err := ParseBundle(s.Serving.Bundle.PEM()); err != nil {
		t.Errorf("the published bundle is not one that replicas accept: %v", err)
	}
	if s.CA.Epoch < s.Serving.Epoch {
		t.Errorf("the CA has epoch %d, what is served has %d", s.CA.Epoch, s.Serving.Epoch)
	}
	if left := s.Serving.Pair.Certificate().NotAfter.Sub(now); left < config().MinimumLeft(s.Serving.Pair.Certificate()) {
		t.Errorf("the leaf has %s left, too little to be ready", left)
	}
}

// TestTrustBeforeUse loses the CA: the old leaf is served until the new CA has
// been in every configuration for the overlap.
func TestTrustBeforeUse(t *testing.T) {
	s, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	before := s.Serving
	s.CA = Authority{}
	observe := func(change func(*Observed)) func(State) Observed {
		return func(s State) Observed { o := steadyObserved(s, epoch0); change(&o); return o }
	}
	s, kinds := runUntilWait(t, s, names, config(), observe(func(*Observed) {}))
	if diff := cmp.Diff([]Kind{CreateCA, PublishBundle}, kinds); diff != "" {
		t.Fatalf("at the loss: %s", diff)
	}
	if s.Serving.Pair.Certificate() != before.Pair.Certificate() || s.Phase() != PhaseTrusting {
		t.Fatalf("phase %s; the leaf must not be changed at once", s.Phase())
	}
	if s.Serving.Epoch != before.Epoch || s.Serving.TrustEpoch != before.Epoch+1 || s.CA.Epoch != before.Epoch+1 {
		t.Errorf("epochs = %d served, %d trusted, %d of the CA", s.Serving.Epoch, s.Serving.TrustEpoch, s.CA.Epoch)
	}
	for name, published := range map[string]Publication{
		"not long enough":       {Current: true, For: 15*time.Minute - time.Second},
		"one configuration not": {Current: false, For: time.Hour},
	} {
		if _, kinds := runUntilWait(t, s, names, config(), observe(func(o *Observed) { o.Published = published })); kinds != nil {
			t.Errorf("%s: %v", name, kinds)
		}
	}

	overlap := s.Serving.Bundle
	long := Publication{Current: true, For: 15 * time.Minute}
	behind := []Replica{{Name: "a", Epoch: 2}, {Name: "b", Epoch: 1}}
	s, kinds = runUntilWait(t, s, names, config(), observe(func(o *Observed) { o.Published, o.Replicas = long, behind }))
	if diff := cmp.Diff([]Kind{IssueLeaf}, kinds); diff != "" {
		t.Fatalf("after the overlap: %s", diff)
	}
	if !s.Serving.Bundle.Equal(overlap) || s.Serving.Epoch != s.CA.Epoch || s.Phase() != PhaseServing {
		t.Errorf("phase %s, epoch %d; the switch of the leaf must not change the bundle", s.Phase(), s.Serving.Epoch)
	}
	s, kinds = runUntilSteady(t, s, names, config(), epoch0)
	if diff := cmp.Diff([]Kind{Retire, PublishBundle}, kinds); diff != "" {
		t.Fatalf("when all replicas serve it: %s", diff)
	}
	if len(s.Serving.Bundle.roots) != 1 || s.Phase() != PhaseSteady || s.CA.PreviousRemoved.IsZero() {
		t.Errorf("phase %s, %d roots, previous CA removed at %s", s.Phase(), len(s.Serving.Bundle.roots), s.CA.PreviousRemoved)
	}
}

// TestCrossCertificate follows a requested rotation: no step waits for time.
func TestCrossCertificate(t *testing.T) {
	first, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	asked := func(s State, now time.Time, change func(*Observed)) Observed {
		o := steadyObserved(s, now)
		o.Request = "please"
		if change != nil {
			change(&o)
		}
		return o
	}
	now := epoch0.Add(time.Hour)
	step := func(s State, want Kind) State {
		t.Helper()
		o := asked(s, now, nil)
		a := Next(s, o, names, config())
		if a.Kind != want {
			t.Fatalf("next is %+v, want %s", a, want)
		}
		s, err := Apply(s, a, o, names, config(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	minted := step(first, CreateCA)
	served := step(minted, IssueLeaf)
	for name, bundle := range map[string]Bundle{
		"before":  first.Serving.Bundle,
		"between": served.Serving.Bundle,
		"after":   mustBundle(t, minted.CA.Pair),
	} {
		if err := served.Serving.Pair.Check(bundle, names, now); err != nil {
			t.Errorf("the new leaf under the bundle %s: %v", name, err)
		}
	}
	for name, hold := range map[string]func(*Observed){
		"a replica is behind":    func(o *Observed) { o.Replicas = append(o.Replicas, Replica{Name: "b", Epoch: 1}) },
		"a replica has nothing":  func(o *Observed) { o.Replicas = append(o.Replicas, Replica{Name: "b"}) },
		"no replica says so":     func(o *Observed) { o.Replicas = nil },
		"not published":          func(o *Observed) { o.Published.Current = false },
		"this clock is ahead":    func(o *Observed) { o.Clocks.Local = now.Add(40 * day) },
		"this clock is behind":   func(o *Observed) { o.Clocks.Local = now.Add(-2 * time.Hour) },
		"the other is not known": func(o *Observed) { o.Clocks.Server = time.Time{} },
	} {
		o := asked(served, now, hold)
		if a := Next(served, o, names, config()); a.Kind == Retire || a.Reason == "" {
			t.Errorf("%s: %+v, want to wait and say why", name, a)
		}
	}
	steady := step(step(served, Retire), PublishBundle)
	if a := Next(steady, asked(steady, now, nil), names, config()); a.Kind != Wait {
		t.Errorf("the answered request leads to %+v", a)
	}
	again := func(now time.Time) Action {
		return Next(steady, asked(steady, now, func(o *Observed) { o.Request = "once more" }), names, config())
	}
	if a := again(now.Add(15*time.Minute - time.Second)); a.Kind != Wait ||
		a.Reason != "a rotation was requested, but API servers may still have the bundle before the last rotation until 2026-09-01T13:15:00Z" {
		t.Errorf("too soon after the last: %+v", a)
	}
	if a := again(now.Add(15 * time.Minute)); a.Kind != Wait || !strings.Contains(a.Reason, "API servers may still call the previous path") {
		t.Errorf("while the path before is accepted: %+v", a)
	}
	steady, _ = runUntilWait(t, steady, names, config(),
		func(s State) Observed { return steadyObservedFor(s, now.Add(15*time.Minute), config().Overlap) })
	if a := again(now.Add(15 * time.Minute)); a.Kind != CreateCA || !a.CrossCertified {
		t.Errorf("after the overlap: %+v", a)
	}
	renewed, kinds := runUntilSteady(t, steady, names, config(), now.Add(60*day))
	if diff := cmp.Diff([]Kind{IssueLeaf}, kinds); diff != "" ||
		renewed.Serving.Pair.Check(first.Serving.Bundle, names, now.Add(60*day)) != nil {
		t.Errorf("clients that trust the previous CA must accept a renewed leaf: %s", diff)
	}
}

// TestMemory loses or damages what is stored while the leader lives.
func TestMemory(t *testing.T) {
	known, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	o := steadyObserved(known, epoch0)
	o.Request = "please"
	minted, err := Apply(known, Next(known, o, names, config()), o, names, config(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	unrelated, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	tests := map[string]struct {
		memory State
		change func(*State)
		want   []Kind
	}{
		"CA lost":      {memory: known, change: func(s *State) { s.CA = Authority{} }, want: []Kind{RestoreCA}},
		"unrelated CA": {memory: known, change: func(s *State) { s.CA = unrelated.CA }, want: []Kind{RestoreCA}},
		"CA of before": {memory: minted, change: func(*State) {}, want: []Kind{RestoreCA, IssueLeaf, Retire, PublishBundle}},
		"the previous CA is gone": {
			memory: minted,
			change: func(s *State) { s.CA = minted.CA; s.CA.Previous = nil },
			want:   []Kind{RestoreCA, IssueLeaf, Retire, PublishBundle},
		},
		"the cross-certificate is missing": {
			memory: minted,
			change: func(s *State) { s.CA = minted.CA; s.CA.CrossCertificate = nil },
			want:   []Kind{RestoreCA, IssueLeaf, Retire, PublishBundle},
		},
		"another leader went on": {
			memory: known,
			change: func(s *State) { s.CA = minted.CA },
			want:   []Kind{IssueLeaf, Retire, PublishBundle},
		},
		"another leader ended it": {
			memory: minted,
			change: func(s *State) { s.CA = minted.CA; s.CA.Previous, s.CA.PreviousRemoved = nil, epoch0 },
			want:   []Kind{IssueLeaf, PublishBundle},
		},
		"serving lost": {
			memory: known,
			change: func(s *State) { s.Serving = Serving{} },
			want:   []Kind{IssueLeaf},
		},
		"unrelated serving": {
			memory: known,
			change: func(s *State) { s.Serving = unrelated.Serving },
			want:   []Kind{IssueLeaf, PublishBundle},
		},
		"everything lost": {
			memory: known,
			change: func(s *State) { *s = State{} },
			want:   []Kind{RestoreCA, IssueLeaf},
		},
		"CA lost for good, then serving too": {
			memory: State{Serving: known.Serving},
			change: func(s *State) { *s = State{} },
			want:   []Kind{CreateCA, RestoreLeaf, PublishBundle},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := known
			tc.change(&s)
			got, kinds := runUntilWait(t, s, names, config(), func(s State) Observed {
				o := steadyObserved(s, epoch0)
				o.Memory = tc.memory
				if kind := s.CA.Follows(tc.memory.CA) && !s.CA.Pair.IsZero(); kind {
					o.Memory.CA = s.CA
				}
				if s.Serving.Pair.IsZero() { // replicas go on with theirs
					o.Replicas = []Replica{{Name: "a", Epoch: tc.memory.Serving.Epoch}}
				}
				return o
			})
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			checkSteady(t, got, names, epoch0)
		})
	}
}

// TestTwoCAsOfOneEpoch has two leaders that lost the same copy and each created a
// CA of the next epoch. They must agree on one.
func TestTwoCAsOfOneEpoch(t *testing.T) {
	one, two := mustCA(t, names, epoch0), mustCA(t, names, epoch0)
	roots := func(pairs ...Pair) (out []*x509.Certificate) {
		for _, p := range pairs {
			out = append(out, p.Certificate())
		}
		return out
	}
	tests := map[string]struct {
		stored    int64 // epoch
		bundle    []*x509.Certificate
		published []*x509.Certificate
		want      Pair
	}{
		"the stored one is of a later epoch":      {3, nil, nil, two},
		"the stored one is of an earlier epoch":   {1, roots(two), roots(two), one},
		"neither is trusted":                      {2, nil, nil, one},
		"the stored one is published":             {2, roots(two), roots(two), two},
		"the stored one is about to be published": {2, roots(two), nil, two},
		"the remembered one is published":         {2, roots(two), roots(one), one},
		"both are, and the stored one is next":    {2, roots(two), roots(one, two), two},
		"both are, and the remembered one is":     {2, roots(one), roots(one, two), one},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := State{CA: Authority{Pair: two, Epoch: tc.stored}, Serving: Serving{Bundle: Bundle{roots: tc.bundle}}}
			o := Observed{Memory: State{CA: Authority{Pair: one, Epoch: 2}}, Published: Publication{Roots: tc.published}}
			if got := s.Remembered(o).Pair; !got.Certificate().Equal(tc.want.Certificate()) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestOrderOfCAs has a CA that was created by a clock two hours behind.
func TestOrderOfCAs(t *testing.T) {
	first, second := mustCA(t, names, epoch0), mustCA(t, names, epoch0.Add(-2*time.Hour))
	roots := []*x509.Certificate{first.Certificate(), second.Certificate()}
	follows := Authority{Pair: second, Previous: first.Certificate()}
	tests := map[string]struct {
		known          []Authority
		oldest, newest Pair
	}{
		"unknown":                               {nil, second, first},
		"it is stored":                          {[]Authority{follows, {}}, first, second},
		"remembered":                            {[]Authority{{Pair: first}, follows}, first, second},
		"it follows one that is not among them": {[]Authority{{Pair: first, Previous: mustCA(t, names, epoch0).Certificate()}}, second, first},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := oldest(roots, tc.known...); !got.Equal(tc.oldest.Certificate()) {
				t.Errorf("the oldest is %s, want %s", Serial(got), Serial(tc.oldest.Certificate()))
			}
			if got := newest(roots, tc.known...); !got.Equal(tc.newest.Certificate()) {
				t.Errorf("the newest is %s, want %s", Serial(got), Serial(tc.newest.Certificate()))
			}
		})
	}
}

// TestNothingStoredButReplicasServe has a new leader that finds both Secrets
// deleted. The replicas keep what they serve.
func TestNothingStoredButReplicasServe(t *testing.T) {
	old, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	for name, tc := range map[string]struct {
		serves int64
		want   []Kind
	}{
		"replicas serve": {1, []Kind{CreateCA, PublishBundle}},
		"no replica":     {0, []Kind{CreateCA, IssueLeaf}},
	} {
		t.Run(name, func(t *testing.T) {
			got, kinds := runUntilWait(t, State{}, names, config(), func(State) Observed {
				o := steadyObserved(old, epoch0)
				o.Replicas = []Replica{{Name: "a", Epoch: tc.serves}, {Name: "new"}}
				return o
			})
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Error(diff)
			}
			if got.CA.Epoch != 2 || tc.serves > 0 && got.Serving.Bundle.Issuer(old.Serving.Pair.Certificate()) == nil {
				t.Errorf("epoch %d; the root of the served leaf must stay", got.CA.Epoch)
			}
		})
	}
}

// TestLossInTheMiddle: a bundle has room for two roots, so a CA that is lost
// during a rotation is replaced when all replicas need the same one.
func TestLossInTheMiddle(t *testing.T) {
	s, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	for range 2 { // up to the new leaf
		o := steadyObserved(s, epoch0)
		o.Request = "please"
		var err error
		if s, err = Apply(s, Next(s, o, names, config()), o, names, config(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	root := s.CA.Pair.Certificate()
	s.CA = Authority{}
	o := steadyObserved(s, epoch0)
	o.Replicas = append(o.Replicas, Replica{Name: "b", Epoch: 1})
	if a := Next(s, o, names, config()); a.Kind != Wait {
		t.Errorf("while a replica is behind: %+v", a)
	}
	s, kinds := runUntilSteady(t, s, names, config(), epoch0)
	if diff := cmp.Diff([]Kind{CreateCA, PublishBundle}, kinds); diff != "" || !s.CA.Previous.Equal(root) {
		t.Errorf("afterwards: %s", diff)
	}
}

// TestClocks checks that a wrong clock ends no trust and replaces no valid
// certificate.
func TestClocks(t *testing.T) {
	fresh, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	tests := map[string]struct {
		local, server time.Duration
		want          []Kind
	}{
		"ahead by 40 days":               {40 * day, 0, nil},
		"ahead by 70 days":               {70 * day, 0, []Kind{IssueLeaf}},
		"ahead by ten years":             {3650 * day, 0, []Kind{IssueLeaf}},
		"behind by two hours":            {-2 * time.Hour, 0, []Kind{IssueLeaf}},
		"at the beginning of time":       {-20000 * day, 0, []Kind{IssueLeaf}},
		"API server ahead by ten years":  {0, 3650 * day, []Kind{IssueLeaf}},
		"API server behind by 2 hours":   {0, -2 * time.Hour, []Kind{IssueLeaf}},
		"API server behind by 5 minutes": {0, -5 * time.Minute, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clocks := Clocks{Local: epoch0.Add(tc.local), Server: epoch0.Add(tc.server)}
			got, kinds := runUntilWait(t, fresh, names, config(), func(s State) Observed {
				o := steadyObserved(s, epoch0)
				o.Clocks, o.Request = clocks, "please"
				if clocks.Agree() {
					o.Request = ""
				}
				return o
			})
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Error(diff)
			}
			checkSteady(t, got, names, epoch0)
			for _, now := range []time.Time{clocks.Local, clocks.Server} {
				leaf, ca := got.Serving.Pair.Certificate(), got.CA.Pair.Certificate()
				if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) && !now.After(ca.NotAfter) {
					t.Errorf("the leaf is no good at %s", now)
				}
			}
		})
	}
}

func TestLeafThatCannotWaitForTheOverlap(t *testing.T) {
	s, _ := runUntilSteady(t, State{}, names, config(), epoch0)
	now := s.Serving.Pair.Certificate().NotAfter.Add(-10 * time.Minute)
	s.CA = Authority{}
	s, kinds := runUntilSteady(t, s, names, config(), now)
	if diff := cmp.Diff([]Kind{CreateCA, IssueLeaf, Retire, PublishBundle}, kinds); diff != "" {
		t.Error(diff)
	}
}

// TestNextFromRandomStates mixes parts of several histories and checks that Next
// always reaches Wait with a valid leaf and never changes its input.
func TestNextFromRandomStates(t *testing.T) {
	seed := mathrand.Uint64()
	t.Logf("seed %d", seed)
	r := mathrand.New(mathrand.NewPCG(seed, 0))
	nameSets := []Names{
		names,
		{DNS: names.DNS},
		{IPs: names.IPs},
		{DNS: []string{"a.example", "b.example"}, IPs: []net.IP{net.ParseIP("fd00::1"), names.IPs[0]}},
	}
	configs := []Config{
		config(),
		Config{CALifetime: time.Hour, LeafLifetime: 10 * time.Minute, Overlap: time.Minute}.WithDefaults(),
		Config{CALifetime: 30 * day, CARenewAfter: 20 * day, LeafLifetime: 10 * day, LeafRenewAfter: day}.WithDefaults(),
	}
	var pool []State
	for range 12 {
		at := epoch0.Add(time.Duration(r.Int64N(int64(4 * 365 * day))))
		s, _ := runUntilSteady(t, State{}, nameSets[r.IntN(len(nameSets))], configs[r.IntN(len(configs))], at)
		pool = append(pool, State{}, s)
	}
	pick := func() State { return pool[r.IntN(len(pool))] }
	for range 1500 {
		s := State{CA: pick().CA, Serving: pick().Serving}
		if r.IntN(3) == 0 {
			s.CA.Previous = pick().CA.Pair.Certificate()
		}
		if r.IntN(3) == 0 {
			s.Serving.Bundle = pick().Serving.Bundle
		}
		if r.IntN(3) == 0 {
			s.CA.Epoch, s.Serving.Epoch, s.Serving.TrustEpoch = r.Int64N(4), r.Int64N(4), r.Int64N(4)
		}
		n, c := nameSets[r.IntN(len(nameSets))], configs[r.IntN(len(configs))]
		now := epoch0.Add(time.Duration(r.Int64N(int64(8*365*day))) - 365*day)
		before := s
		after, _ := runUntilSteady(t, s, n, c, now)
		after, _ = runUntilWait(t, after, n, c, func(s State) Observed {
			o := steadyObserved(s, now)
			o.Published.For = c.Overlap
			return o
		})
		if s.CA.Pair.Certificate() != before.CA.Pair.Certificate() || !s.Serving.Bundle.Equal(before.Serving.Bundle) {
			t.Fatal("the state that was given has changed")
		}
		checkSteady(t, after, n, now)
		want := before.CA.Epoch
		if !before.isCAPublished(steadyObserved(before, now)) { // else the epoch of the leaf was edited
			want = max(want, before.Serving.Epoch)
		}
		if after.CA.Epoch < want {
			t.Errorf("the epoch went back from %d to %d", want, after.CA.Epoch)
		}
		if t.Failed() {
			t.Fatalf("from %+v for %v at %s", s, n, now)
		}
		pool[r.IntN(len(pool))] = after
	}
}

// TestYears runs one installation for years, looking when Next asks for
// it, and checks that a bundle published at any moment before a change accepts
// the leaf after it.
func TestYears(t *testing.T) {
	for name, c := range map[string]Config{
		"default": config(),
		"short":   Config{CALifetime: 90 * day, LeafLifetime: 5 * day}.WithDefaults(),
	} {
		t.Run(name, func(t *testing.T) {
			const years = 4
			now := epoch0
			// All API servers have the published bundle: the previous path is dropped.
			rest := func(s State, now time.Time) (State, []Kind) {
				return runUntilWait(t, s, names, c, func(s State) Observed { return steadyObservedFor(s, now, c.Overlap) })
			}
			s, _ := rest(State{}, now)
			var changes, cas int
			for end := epoch0.Add(years * 365 * day); now.Before(end); {
				now = Next(s, steadyObservedFor(s, now, c.Overlap), names, c).At
				after, kinds := rest(s, now)
				checkSteady(t, after, names, now)
				if err := after.Serving.Pair.Check(s.Serving.Bundle, names, now); err != nil {
					t.Fatalf("%v at %s: the new leaf under the old bundle: %v", kinds, now, err)
				}
				for _, k := range kinds {
					changes++
					if k == CreateCA {
						cas++
					}
				}
				s = after
			}
			if want := int(years * 365 * day / c.CARenewAfter); cas != want {
				t.Errorf("%d CAs in %d years, want %d", cas, years, want)
			}
			if most := 7*cas + int(years*365*day/c.LeafRenewAfter); changes > most {
				t.Errorf("%d changes in %d years, want at most %d", changes, years, most)
			}
		})
	}
}

// TestNextAt checks Action.At for each reason to call Next again.
func TestNextAt(t *testing.T) {
	c := config()
	young, _ := runUntilSteady(t, State{}, names, c, epoch0)
	aging, _ := runUntilSteady(t, young, names, c, epoch0.Add(defaultCALifetime/2-day))
	busy := young
	busy.CA.Previous = mustCA(t, names, epoch0).Certificate()
	busy, _ = runUntilWait(t, busy, names, c, func(s State) Observed {
		o := steadyObserved(s, epoch0)
		o.Replicas = nil
		return o
	})
	tests := map[string]struct {
		state State
		now   time.Time
		want  time.Time
	}{
		"renewal of the leaf":    {young, epoch0, epoch0.Add(60 * day)},
		"renewal of the CA":      {aging, epoch0.Add(defaultCALifetime/2 - day), epoch0.Add(defaultCALifetime / 2)},
		"others have to do work": {busy, epoch0, epoch0.Add(2 * time.Second)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := steadyObserved(tc.state, tc.now)
			if name == "others have to do work" {
				o.Replicas = nil
			}
			a := Next(tc.state, o, names, c)
			if off := a.At.Sub(tc.want).Abs(); a.Kind != Wait || off > time.Second {
				t.Errorf("Next = %+v, want to wait until %s", a, tc.want)
			}
		})
	}
}

func TestEpochDoesNotOverflow(t *testing.T) {
	s := State{CA: Authority{Epoch: MaxEpoch}}
	got, err := Apply(s, Action{Kind: CreateCA}, steadyObserved(s, epoch0), names, config(), rand.Reader)
	if err != nil || got.CA.Epoch != MaxEpoch {
		t.Errorf("epoch = %d, error = %v; want %d", got.CA.Epoch, err, int64(MaxEpoch))
	}
}

func TestApplyUnknown(t *testing.T) {
	if _, err := Apply(State{}, Action{Kind: "Dance"}, Observed{}, names, config(), rand.Reader); err == nil {
		t.Error("an unknown action is carried out")
	}
}

func TestMinimumLeft(t *testing.T) {
	for life, want := range map[time.Duration]time.Duration{
		90 * day:         day,
		10 * day:         day,
		5 * day:          12 * time.Hour,
		10 * time.Minute: time.Minute,
	} {
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: epoch0.Add(-time.Hour), NotAfter: epoch0.Add(life)}
		if got := config().MinimumLeft(c); got != want {
			t.Errorf("MinimumLeft(%s) = %s, want %s", life, got, want)
		}
	}
}
