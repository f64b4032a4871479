package pki

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNext(t *testing.T) {
	fresh, kinds := settle(t, State{}, names, config(), epoch0)
	if diff := cmp.Diff([]Kind{CreateCA, IssueLeaf}, kinds); diff != "" {
		t.Fatalf("from nothing: %s", diff)
	}
	second := mustCA(t, names, epoch0)
	with := func(change func(*State)) State { s := fresh; change(&s); return s }
	more := Names{DNS: append([]string{"ostiary.example.org"}, names.DNS...), IPs: names.IPs}
	fewer := Names{DNS: names.DNS}

	tests := map[string]struct {
		state State
		names Names
		now   time.Time
		want  []Kind
	}{
		"fresh":                     {fresh, names, epoch0, nil},
		"names reordered":           {fresh, Names{DNS: names.DNS, IPs: append(names.IPs, names.IPs...)}, epoch0, nil},
		"just before day 60":        {fresh, names, epoch0.Add(60*day - time.Second), nil},
		"day 60":                    {fresh, names, epoch0.Add(60 * day), []Kind{IssueLeaf}},
		"leaf expired":              {fresh, names, epoch0.Add(100 * day), []Kind{IssueLeaf}},
		"clock behind":              {fresh, names, epoch0.Add(-30 * time.Minute), nil},
		"clock far behind":          {fresh, names, epoch0.Add(-2 * time.Hour), []Kind{CreateCA, IssueLeaf}},
		"half of CA life":           {fresh, names, epoch0.Add(defaultCALifetime / 2), []Kind{CreateCA, IssueLeaf}},
		"CA expired":                {fresh, names, epoch0.Add(defaultCALifetime + time.Second), []Kind{CreateCA, IssueLeaf}},
		"leaf missing":              {with(func(s *State) { s.Serving.Pair = Pair{} }), names, epoch0, []Kind{IssueLeaf}},
		"serving missing":           {with(func(s *State) { s.Serving = Serving{} }), names, epoch0, []Kind{IssueLeaf}},
		"bundle missing":            {with(func(s *State) { s.Serving.Bundle = Bundle{} }), names, epoch0, []Kind{PublishBundle}},
		"bundle with a stranger":    {with(func(s *State) { s.Serving.Bundle = mustBundle(t, s.CA.Pair, second) }), names, epoch0, []Kind{PublishBundle}},
		"epoch of serving missing":  {with(func(s *State) { s.Serving.Epoch = 0 }), names, epoch0, []Kind{PublishBundle}},
		"CA missing":                {with(func(s *State) { s.CA = Authority{} }), names, epoch0, []Kind{CreateCA, PublishBundle}},
		"CA restored from a copy":   {with(func(s *State) { s.CA.Epoch, s.Serving.Epoch = 1, 2 }), names, epoch0, []Kind{CreateCA, PublishBundle}},
		"CA replaced by a stranger": {with(func(s *State) { s.CA.Pair = second }), names, epoch0, []Kind{IssueLeaf}},
		"a leaf in the CA's place":  {with(func(s *State) { s.CA.Pair = s.Serving.Pair }), names, epoch0, []Kind{CreateCA, PublishBundle}},
		"a name more":               {fresh, more, epoch0, []Kind{CreateCA, IssueLeaf}},
		"a name less":               {fresh, fewer, epoch0, []Kind{IssueLeaf}},
		"highest epoch":             {with(func(s *State) { s.CA, s.Serving.Epoch = Authority{}, MaxEpoch }), names, epoch0, []Kind{CreateCA, PublishBundle}},
		"previous is a leaf":        {with(func(s *State) { s.CA.Previous = s.Serving.Pair.Certificate() }), names, epoch0, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, kinds := settle(t, tc.state, tc.names, config(), tc.now)
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			checkSettled(t, got, tc.names, tc.now)
		})
	}
}

// checkSettled states what holds whenever there is nothing to do.
func checkSettled(t *testing.T, s State, n Names, now time.Time) {
	t.Helper()
	if err := s.Serving.Pair.Check(s.Serving.Bundle, n, now); err != nil {
		t.Errorf("the leaf does not verify under the published bundle: %v", err)
	}
	if count := len(s.Serving.Bundle.roots); count < 1 || count > 2 {
		t.Errorf("the bundle holds %d roots", count)
	}
	if _, err := ParseBundle(s.Serving.Bundle.PEM()); err != nil {
		t.Errorf("the published bundle is not one that replicas accept: %v", err)
	}
	if s.CA.Epoch < s.Serving.Epoch {
		t.Errorf("the CA has epoch %d, what is served has %d", s.CA.Epoch, s.Serving.Epoch)
	}
	if left := s.Serving.Pair.Certificate().NotAfter.Sub(now); left < MinimumLeft(s.Serving.Pair.Certificate()) {
		t.Errorf("the leaf has %s left, too little to be ready", left)
	}
}

// TestTrustBeforeUse follows a replacement of the CA step by step: the old
// leaf is served until the new CA has been in the bundle for the overlap, and
// stays acceptable to an API server that never saw the new bundle.
func TestTrustBeforeUse(t *testing.T) {
	for name, lose := range map[string]func(*State){
		"half of its life": func(*State) {},
		"lost":             func(s *State) { s.CA = Authority{} },
	} {
		t.Run(name, func(t *testing.T) {
			now := epoch0
			s, _ := settle(t, State{}, names, config(), now)
			if name == "half of its life" {
				now = epoch0.Add(defaultCALifetime/2 - time.Hour)
				s, _ = settle(t, s, names, config(), now)
				now = now.Add(time.Hour)
			}
			before := s.Serving
			lose(&s)

			s, kinds := settle(t, s, names, config(), now)
			if diff := cmp.Diff([]Kind{CreateCA, PublishBundle}, kinds); diff != "" {
				t.Fatalf("at the replacement: %s", diff)
			}
			if s.Serving.Pair.Certificate() != before.Pair.Certificate() {
				t.Fatal("the leaf was changed at once")
			}
			if s.Serving.Epoch != before.Epoch || s.CA.Epoch != before.Epoch+1 {
				t.Errorf("epochs = %d served, %d of the CA; want %d and %d", s.Serving.Epoch, s.CA.Epoch, before.Epoch, before.Epoch+1)
			}
			if a := Next(s, names, config(), now); !a.At.Equal(now.Add(15 * time.Minute)) {
				t.Errorf("the next step is at %s, want 15 minutes after %s", a.At, now)
			}
			if err := s.Serving.Pair.Check(before.Bundle, names, now); err != nil {
				t.Errorf("under the old bundle: %v", err)
			}

			overlap := s.Serving.Bundle
			now = now.Add(15 * time.Minute)
			s, kinds = settle(t, s, names, config(), now)
			if diff := cmp.Diff([]Kind{IssueLeaf}, kinds); diff != "" {
				t.Fatalf("after the overlap: %s", diff)
			}
			if err := s.Serving.Pair.Check(overlap, names, now); err != nil {
				t.Errorf("under the bundle of the overlap: %v", err)
			}
			if !s.Serving.Bundle.Equal(overlap) || s.Serving.Epoch != s.CA.Epoch {
				t.Error("the switch of the leaf changed the bundle or forgot the epoch")
			}

			now = s.CA.Previous.NotAfter.Add(time.Second)
			s, _ = settle(t, s, names, config(), now)
			if s.Serving.Bundle.Issuer(s.Serving.Pair.Certificate()) == nil || len(s.Serving.Bundle.roots) > 2 {
				t.Error("the bundle is wrong after the old CA expired")
			}
		})
	}
}

func TestLeafThatCannotWaitForTheOverlap(t *testing.T) {
	s, _ := settle(t, State{}, names, config(), epoch0)
	now := s.Serving.Pair.Certificate().NotAfter.Add(-10 * time.Minute)
	s.CA = Authority{}
	s, kinds := settle(t, s, names, config(), now)
	if diff := cmp.Diff([]Kind{CreateCA, IssueLeaf}, kinds); diff != "" {
		t.Error(diff)
	}
	if len(s.Serving.Bundle.roots) != 2 {
		t.Error("replicas that still serve the old leaf are not trusted any more")
	}
}

// TestNextFromRandomStates builds states that mix parts of several histories,
// some of them useless, and checks that Next always comes to rest, never stays
// at rest with a leaf that is not good, and never changes what it was given.
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
		s, _ := settle(t, State{}, nameSets[r.IntN(len(nameSets))], configs[r.IntN(len(configs))], at)
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
			s.CA.Epoch, s.Serving.Epoch = r.Int64N(4), r.Int64N(4)
		}
		n, c := nameSets[r.IntN(len(nameSets))], configs[r.IntN(len(configs))]
		now := epoch0.Add(time.Duration(r.Int64N(int64(8*365*day))) - 365*day)
		before := s
		after, _ := settle(t, s, n, c, now)
		if s.CA.Pair.Certificate() != before.CA.Pair.Certificate() || !s.Serving.Bundle.Equal(before.Serving.Bundle) {
			t.Fatal("the state that was given has changed")
		}
		checkSettled(t, after, n, now)
		if want := max(before.CA.Epoch, before.Serving.Epoch); after.CA.Epoch < want {
			t.Errorf("the epoch went back from %d to %d", want, after.CA.Epoch)
		}
		if t.Failed() {
			t.Fatalf("from %+v for %v at %s", s, n, now)
		}
		pool[r.IntN(len(pool))] = after
	}
}

// TestYears runs one installation for ten years, looking when Next asks for
// it, and checks that a bundle published at any moment before a change accepts
// the leaf after it.
func TestYears(t *testing.T) {
	for name, c := range map[string]Config{
		"default": config(),
		"short":   Config{CALifetime: 90 * day, LeafLifetime: 5 * day}.WithDefaults(),
	} {
		t.Run(name, func(t *testing.T) {
			now := epoch0
			s, _ := settle(t, State{}, names, c, now)
			var changes, cas int
			for end := epoch0.Add(10 * 365 * day); now.Before(end); {
				now = Next(s, names, c, now).At
				after, kinds := settle(t, s, names, c, now)
				checkSettled(t, after, names, now)
				if err := after.Serving.Pair.Check(s.Serving.Bundle, names, now); err != nil {
					t.Fatalf("%v at %s: the new leaf under the old bundle: %v", kinds, now, err)
				}
				if err := s.Serving.Pair.Check(after.Serving.Bundle, names, now); err != nil {
					t.Fatalf("%v at %s: the old leaf under the new bundle: %v", kinds, now, err)
				}
				for _, k := range kinds {
					changes++
					if k == CreateCA {
						cas++
					}
				}
				s = after
			}
			if want := int(10 * 365 * day / c.CARenewAfter); cas != want {
				t.Errorf("%d CAs in ten years, want %d", cas, want)
			}
			if most := 4*cas + int(10*365*day/c.LeafRenewAfter); changes > most {
				t.Errorf("%d changes in ten years, want at most %d", changes, most)
			}
		})
	}
}

// TestNextAt checks the moment that Next asks for, when each of the reasons to
// wake comes first.
func TestNextAt(t *testing.T) {
	c := config()
	young := func() State { s, _ := settle(t, State{}, names, c, epoch0); return s }
	short := c
	short.CALifetime, short.CARenewAfter, short.LeafLifetime, short.LeafRenewAfter = 10*day, 5*day, 5*day, 4*day
	expiring, err := newCA(names, short, epoch0.Add(-9*day), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	withPrevious := young()
	withPrevious.CA.Previous = expiring.Certificate()
	withPrevious, _ = settle(t, withPrevious, names, c, epoch0)
	aging, _ := settle(t, young(), names, c, epoch0.Add(defaultCALifetime/2-day))
	shortLeaf := young()
	if shortLeaf.Serving.Pair, err = newLeaf(shortLeaf.CA.Pair, names, short, epoch0, rand.Reader); err != nil {
		t.Fatal(err)
	}

	tests := map[string]struct {
		state State
		now   time.Time
		want  time.Time
	}{
		"renewal of the leaf":          {young(), epoch0, epoch0.Add(60 * day)},
		"renewal of the CA":            {aging, epoch0.Add(defaultCALifetime/2 - day), epoch0.Add(defaultCALifetime / 2)},
		"end of the previous CA":       {withPrevious, epoch0, epoch0.Add(day + time.Second)},
		"leaf shorter than configured": {shortLeaf, epoch0, epoch0.Add(5 * day * 2 / 3)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := Next(tc.state, names, c, tc.now)
			if off := a.At.Sub(tc.want).Abs(); a.Kind != Wait || off > time.Second {
				t.Errorf("Next = %+v, want to wait until %s", a, tc.want)
			}
		})
	}
}

func TestEpochDoesNotOverflow(t *testing.T) {
	s := State{CA: Authority{Epoch: MaxEpoch}}
	got, err := Apply(s, Action{Kind: CreateCA}, names, config(), epoch0, rand.Reader)
	if err != nil || got.CA.Epoch != MaxEpoch {
		t.Errorf("epoch = %d, error = %v; want %d", got.CA.Epoch, err, int64(MaxEpoch))
	}
}

func TestApplyUnknown(t *testing.T) {
	if _, err := Apply(State{}, Action{Kind: "Dance"}, names, config(), epoch0, rand.Reader); err == nil {
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
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: epoch0.Add(-backdate), NotAfter: epoch0.Add(life)}
		if got := MinimumLeft(c); got != want {
			t.Errorf("MinimumLeft(%s) = %s, want %s", life, got, want)
		}
	}
}
