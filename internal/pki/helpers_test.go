package pki

import (
	"crypto/rand"
	"crypto/x509"
	"net"
	"testing"
	"time"
)

var (
	epoch0 = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	names  = Names{
		DNS: []string{"ostiary-webhook.ostiary-system.svc"},
		IPs: []net.IP{net.ParseIP("127.0.0.1")},
	}
)

func config() Config { return Config{}.WithDefaults() }

// at is a time that all clocks agree on.
func clocksAt(now time.Time) Clocks { return Clocks{Local: now, Server: now} }

// steadyObserved is an observation in which the stored state has reached every
// replica and configuration.
func steadyObserved(s State, now time.Time) Observed {
	return Observed{
		Clocks:    clocksAt(now),
		Published: Publication{Roots: s.Serving.Bundle.roots, Epoch: s.Serving.TrustEpoch, Current: true},
		Replicas:  []Replica{{Name: "a", Epoch: s.Serving.Epoch}},
	}
}

// steadyObservedFor is steadyObserved with a given age of the publication.
func steadyObservedFor(s State, now time.Time, published time.Duration) Observed {
	o := steadyObserved(s, now)
	o.Published.For = published
	return o
}

func mustCA(t *testing.T, n Names, now time.Time) Pair {
	t.Helper()
	ca, err := newCA(n, config(), clocksAt(now), rand.Reader)
	if err != nil {
		t.Fatalf("creating a CA: %v", err)
	}
	return ca
}

func mustLeaf(t *testing.T, ca Pair, n Names, now time.Time) Pair {
	t.Helper()
	leaf, err := newLeaf(Authority{Pair: ca}, n, config(), clocksAt(now), rand.Reader)
	if err != nil {
		t.Fatalf("issuing a leaf: %v", err)
	}
	return leaf
}

func mustBundle(t *testing.T, pairs ...Pair) Bundle {
	t.Helper()
	var roots []*x509.Certificate
	for _, p := range pairs {
		roots = append(roots, p.Certificate())
	}
	b, err := NewBundle(roots...)
	if err != nil {
		t.Fatalf("making a bundle: %v", err)
	}
	return b
}

// runUntilWait applies the actions of Next until it returns Wait. It fails if that
// takes too many steps.
func runUntilWait(t *testing.T, s State, n Names, c Config, observe func(State) Observed) (State, []Kind) {
	t.Helper()
	var done []Kind
	for {
		o := observe(s)
		a := Next(s, o, n, c)
		if a.Kind == Wait {
			if !a.At.After(o.Clocks.Now()) {
				t.Fatalf("Next waits until %s, which is not after %s", a.At, o.Clocks.Now())
			}
			return s, done
		}
		if len(done) == 6 {
			t.Fatalf("no rest after %v; next is %+v", done, a)
		}
		var err error
		if s, err = Apply(s, a, o, n, c, rand.Reader); err != nil {
			t.Fatalf("applying %+v: %v", a, err)
		}
		done = append(done, a.Kind)
	}
}

func runUntilSteady(t *testing.T, s State, n Names, c Config, now time.Time) (State, []Kind) {
	t.Helper()
	return runUntilWait(t, s, n, c, func(s State) Observed { return steadyObserved(s, now) })
}
