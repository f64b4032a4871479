package exceptions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

func TestState(t *testing.T) {
	const march = `"expirationTime":"2027-03-01T00:00:00Z"`
	created := time.Unix(1_800_000_000, 0)
	behind := versionskew.Peer{Name: "b", Report: versionskew.Report{Loaded: versionskew.Vector{versionskew.Exceptions: "999"}}}
	loaded, older := behind, behind
	loaded.Loaded = versionskew.Vector{versionskew.Exceptions: "1000"}
	older.Loaded, older.Unloaded = loaded.Loaded, "m/a,n/a"
	for name, tc := range map[string]struct {
		fields      string
		after       time.Duration // the creation
		unguarded   bool
		peers       []versionskew.Peer
		want        string
		wantMessage string
	}{
		"no end": {want: ReasonApplied, wantMessage: "every replica applies the exception, which has no end"},
		"an end": {fields: march, want: ReasonApplied, wantMessage: "every replica applies the exception until 2027-03-01T00:00:00Z"},
		"a day before the end": {
			fields: march,
			after:  44*24*time.Hour - 8*time.Hour,
			want:   ReasonEndsSoon,
			wantMessage: "every replica applies the exception until 2027-03-01T00:00:00Z, within a day: correct the objects, or create " +
				"another exception",
		},
		"the end":         {fields: march, after: 60 * 24 * time.Hour, want: "Expired"},
		"without a guard": {unguarded: true, want: ReasonNotGuarded},
		"an unknown field": {
			fields:      `"onlyIf":"x"`,
			want:        ReasonNotLoaded,
			wantMessage: versionskew.UnknownHere([]string{"spec.onlyIf"}),
		},
		"a replica that is behind": {
			peers:       []versionskew.Peer{behind},
			want:        ReasonNotLoaded,
			wantMessage: "waiting for replica b, which has not loaded it yet",
		},
		"a replica that is older": {
			peers:       []versionskew.Peer{loaded, older},
			want:        ReasonNotLoaded,
			wantMessage: "waiting for replica b, which does not know its fields",
		},
		"a replica that has loaded": {peers: []versionskew.Peer{loaded}, want: ReasonApplied},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, 10)
			fields := []string{tc.fields}
			if tc.fields == "" {
				fields = nil
			}
			s.putAll(t, raw("n", "a", 0, fields...))
			c := conditionsOf(s, created.Add(tc.after))
			c.guarded, c.peers = !tc.unguarded, versionskew.NewPeers(versionskew.CurrentVersion(), tc.peers)
			r := s.records()[0]
			active, reason, message := c.state(&r, r.loaded())
			if reason != tc.want || tc.wantMessage != "" && message != tc.wantMessage {
				t.Errorf("got %s: %q; want %s: %q", reason, message, tc.want, tc.wantMessage)
			}
			if isActive := reason == ReasonApplied || reason == ReasonEndsSoon; isActive != (active == metav1.ConditionTrue) {
				t.Errorf("Active is %s because of %s", active, reason)
			}
		})
	}
}

// conditionsOf are those of a store without other replicas, with a policy p that permits exceptions.
func conditionsOf(s *Store, now time.Time) *conditions {
	return &conditions{
		now: now, guarded: true, index: s.index.Load(), compiler: celengine.NewCompiler(celengine.LatestEngine),
		policies: map[string]*v1alpha1.WebhookPolicySpec{"p": {Exceptions: &v1alpha1.Exceptions{}}},
		peers:    versionskew.NewPeers(versionskew.CurrentVersion(), nil),
	}
}

// A status that is written is not written again, and keeps the time of its transition.
func TestStatusIsWrittenOnce(t *testing.T) {
	s := newTestStore(t, 10)
	s.putAll(t, raw("n", "a", 0))
	r := s.records()[0]
	first := status{record: &r, active: metav1.ConditionTrue, reason: ReasonApplied, message: "m", now: time.Unix(10, 0)}
	if !first.differs() {
		t.Fatal("the first status is not written")
	}
	fields := first.fields()
	s.wrote(&r, "1001", &fields)
	r = s.records()[0]
	if same := (status{record: &r, active: metav1.ConditionTrue, reason: ReasonApplied, message: "m", now: time.Unix(20, 0)}); same.differs() {
		t.Error("an equal status is written again")
	}
	other := status{record: &r, active: metav1.ConditionTrue, reason: ReasonApplied, message: "n", now: time.Unix(20, 0)}
	if since := other.fields().Conditions[0].LastTransitionTime.Unix(); !other.differs() || since != 10 {
		t.Errorf("differs: %t, since %d; want true and 10", other.differs(), since)
	}
	other.active = metav1.ConditionFalse
	if since := other.fields().Conditions[0].LastTransitionTime.Unix(); since != 20 {
		t.Errorf("since %d, want 20", since)
	}
}

// The uses of replicas are added up, whatever of them restarts, and those before the term of a leader
// count once.
func TestTally(t *testing.T) {
	key := exceptions.Key{Namespace: "n", Name: "a"}
	report := func(counts ...string) (out []replicas.Replica) {
		for i, text := range counts {
			out = append(out, replicas.Replica{Name: string(rune('a' + i)), ExceptionUses: text})
		}
		return out
	}
	var tl tally
	for _, live := range [][]replicas.Replica{
		report("n/a 10 1", "n/a 1 1"), // before the term
		report("n/a 12 2", "n/a 1 1"),
		report("n/a 12 2", ""),            // not used lately
		report("n/a 12 2", "n/a 3 5"),     // used again
		report("n/a 1 6", "n/a 3 5"),      // the first has restarted
		report("n/a 1 6", "n/a 3 5", "x"), // a later version
		report("n/a 1 6", "n/a 3 5", "n/a 7 9"),
	} {
		tl.add(live)
	}
	s := newTestStore(t, 10)
	s.putAll(t, raw("n", "a", 0))
	r := s.records()[0]
	r.status.used = 100
	st := status{record: &r, now: time.Unix(100, 0)}
	if !tl.update(&st) {
		t.Error("the uses are not written")
	}
	if diff := cmp.Diff([]int64{112, 9}, []int64{st.used, st.lastUsed.Unix()}); diff != "" {
		t.Errorf("used and lastUsed (-want +got):\n%s", diff)
	}
	tl.wrote(&st)
	if tl.update(&st); st.used != 100 {
		t.Errorf("%d uses are written twice", st.used-100)
	}
	tl.count(key, use{1, time.Unix(101, 0)})
	if st.now = st.now.Add(usesInterval / 2); tl.update(&st) {
		t.Error("uses are written twice in a minute")
	}
	if st.now = st.now.Add(usesInterval); !tl.update(&st) {
		t.Error("uses are not written after a minute")
	}
	tl.keep(nil)
	if len(tl.pending) > 0 {
		t.Error("uses of an exception that is gone are kept")
	}
}
