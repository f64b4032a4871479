package pki

import (
	"bytes"
	"crypto/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPaths(t *testing.T) {
	path := func(b byte) string {
		p, err := newPath(bytes.NewReader(bytes.Repeat([]byte{b}, pathBytes)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b, c, d, e := path(1), path(2), path(3), path(4), path(5)
	all := []Replica{{Name: "a", Epoch: 2}, {Name: "b", Epoch: 2}}
	steady := Publication{Current: true, For: config().Overlap}
	state := func(own string, stored ...string) State {
		return State{CA: Authority{Path: own, Epoch: 2}, Serving: Serving{Paths: stored, Epoch: 2, TrustEpoch: 2}}
	}
	rotating := state(b, a, b)
	rotating.CA.Previous = mustCA(t, names, epoch0).Certificate()
	for name, tc := range map[string]struct {
		state    State
		observed Observed
		want     []string
	}{
		"the first": {state: state(a), observed: Observed{}, want: []string{a}},
		"steady": {
			state:    state(a, a),
			observed: Observed{Replicas: all, Published: steady},
			want:     []string{a},
		},
		"the next is accepted first": {
			state:    state(b, a),
			observed: Observed{Replicas: all, Published: steady},
			want:     []string{a, b},
		},
		"not registered during a rotation": {
			state:    rotating,
			observed: Observed{Replicas: all, Published: steady},
			want:     []string{a, b},
		},
		"not known to a replica": {
			state:    state(b, a, b),
			observed: Observed{Replicas: append([]Replica{{Epoch: 1}}, all...)},
			want:     []string{a, b},
		},
		"no replica is known": {state: state(b, a, b), observed: Observed{}, want: []string{a, b}},
		"registered":          {state: state(b, a, b), observed: Observed{Replicas: all}, want: []string{b, a}},
		"the one before is kept": {
			state:    state(b, b, a),
			observed: Observed{Replicas: all, Published: Publication{Current: true, For: config().Overlap - time.Second}},
			want:     []string{b, a},
		},
		"not every configuration has it": {
			state:    state(b, b, a),
			observed: Observed{Replicas: all, Published: Publication{For: time.Hour}},
			want:     []string{b, a},
		},
		"the one before is dropped": {
			state:    state(b, b, a),
			observed: Observed{Replicas: all, Published: steady},
			want:     []string{b},
		},
		"the Secret is lost": {
			state:    state(b),
			observed: Observed{Memory: State{Serving: Serving{Paths: []string{b, a}}}},
			want:     []string{b, a},
		},
		"the Secret and the memory are lost": {
			state:    state(b),
			observed: Observed{Published: Publication{Paths: []string{a}}},
			want:     []string{a, b},
		},
		"everything is lost, two are in use": {
			state:    state(c),
			observed: Observed{Published: Publication{Paths: []string{a, b}}},
			want:     []string{a, b, c},
		},
		"the Secret is restored from a copy": {
			state:    state(c, a),
			observed: Observed{Published: Publication{Paths: []string{c}}},
			want:     []string{c},
		},
		"several are kept": {
			state:    state(c, a, b, c),
			observed: Observed{Replicas: all},
			want:     []string{c, a, b},
		},
		"several are dropped": {
			state:    state(c, a, b, c),
			observed: Observed{Published: steady},
			want:     []string{a, c},
		},
		"the CA was lost again and again": {state: state(e, a, b, c, d), observed: Observed{}, want: []string{a, b, c, d}},
		"and there is room again": {
			state:    state(e, a, b, c, d),
			observed: Observed{Published: steady},
			want:     []string{a, e},
		},
		"one of several paths is edited": {
			state:    state(a, a),
			observed: Observed{Published: Publication{Paths: []string{a, b}}},
			want:     []string{a},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.state.paths(tc.observed, config())); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAccepts(t *testing.T) {
	p, err := newPath(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if len(p) != 32 || CheckPath(p) != nil {
		t.Errorf("path of %d characters: %v, want 32 and no error", len(p), CheckPath(p))
	}
	for _, wrong := range []string{"", p[1:], p + "a", "A" + p[1:], " " + p[1:]} {
		if CheckPath(wrong) == nil {
			t.Errorf("%q counts as a path", wrong)
		}
		if (Serving{Paths: []string{p}}).Accepts(wrong) {
			t.Errorf("%q is accepted", wrong)
		}
	}
	if !(Serving{Paths: []string{"other", p}}).Accepts(p) || (Serving{}).Accepts("") {
		t.Error("the second path is not accepted, or nothing is")
	}
}
