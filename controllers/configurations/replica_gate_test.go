package configurations

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

func stateOf(versions map[string]string) *policies.State {
	s := &policies.State{Entries: map[types.UID]*policies.Entry{}}
	for name, version := range versions {
		p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
		s.Entries[types.UID(name)] = &policies.Entry{Generation: &policies.Generation{Policy: p}}
	}
	return s
}

func reportOf(version string) replicas.Report {
	return replicas.Report{Report: versionskew.Report{Loaded: versionskew.Vector{versionskew.Policies: version}}}
}

func withMembers(members string) registration.Configuration {
	c := registration.NewConfiguration(registration.PhaseValidate)
	c.SetAnnotations(map[string]string{registration.AnnotationMembers: members})
	return c
}

func TestReplicaGate(t *testing.T) {
	loaded := func(name, version string) replicas.Replica {
		return replicas.Replica{Name: name, Report: reportOf(version)}
	}
	versions := map[string]string{"a": "9", "b": "10"}
	tests := map[string]struct {
		live        []replicas.Replica
		err         error
		members     string
		wantWaiting map[string]string
	}{
		"alone, and no Lease yet": {members: "a,b"},
		"alone":                   {live: []replicas.Replica{loaded("self", "")}, members: "a,b"},
		"all have loaded all":     {live: []replicas.Replica{loaded("x", "10"), loaded("y", "11")}, members: "a,b"},
		"one has yet to load one": {
			live:        []replicas.Replica{loaded("x", "10"), loaded("y", "9")},
			members:     "a,b",
			wantWaiting: map[string]string{"b": "waiting for replica y, which has not loaded it yet"},
		},
		"the other one is not in it": {live: []replicas.Replica{loaded("y", "9")}, members: "a"},
		"one has loaded nothing": {
			live:        []replicas.Replica{loaded("y", "")},
			members:     "a",
			wantWaiting: map[string]string{"a": "waiting for replica y, which has not loaded it yet"},
		},
		"one that reports nonsense": {
			live:        []replicas.Replica{loaded("y", "many")},
			members:     "a",
			wantWaiting: map[string]string{"a": "waiting for replica y, which has not loaded it yet"},
		},
		"a member that was deleted": {live: []replicas.Replica{loaded("y", "")}, members: "gone"},
		"replicas cannot be listed": {
			err:         errors.New("not read yet"),
			members:     "a",
			wantWaiting: map[string]string{"a": "not read yet"},
		},
		"nothing is to be loaded": {live: []replicas.Replica{loaded("y", "")}},
		"versions are no decimal text": {
			live:        []replicas.Replica{loaded("y", "9")},
			members:     "b",
			wantWaiting: map[string]string{"b": "waiting for replica y, which has not loaded it yet"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &ReplicaGate{Self: "self", Live: func(context.Context) ([]replicas.Replica, error) { return tt.live, tt.err }}
			changes := g.Changes(t.Context())
			s := g.Snapshot(t.Context(), stateOf(versions))
			if got := s.Blocks(withMembers(tt.members)); got != (len(tt.wantWaiting) > 0) {
				t.Errorf("blocked: %t", got)
			}
			again := g.Publish(s)
			got := map[string]string{}
			for _, name := range []string{"a", "b", "gone"} {
				if why := g.WaitReason(name); why != "" {
					got[name] = why
				}
			}
			if diff := cmp.Diff(tt.wantWaiting, got); diff != "" && len(got)+len(tt.wantWaiting) > 0 {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if notified := len(changes) > 0; notified != (len(got) > 0) || (again > 0) != notified {
				t.Errorf("notified %t, checks again after %s", notified, again)
			}
		})
	}
}

func TestNotReady(t *testing.T) {
	g := &ReplicaGate{Self: "self", Live: func(context.Context) ([]replicas.Replica, error) {
		return []replicas.Replica{{Name: "self"}, {Name: "x", Report: reportOf("11")}, {Name: "y", Report: reportOf("10")}}, nil
	}}
	for version, want := range map[string]string{"9": "", "10": "", "11": "waiting for replica y, which has not loaded it yet"} {
		if got := g.NotReady(t.Context(), stateOf(map[string]string{"a": version}).Entries["a"]); got != want {
			t.Errorf("version %s: %q, want %q", version, got, want)
		}
	}
	g.Live = func(context.Context) ([]replicas.Replica, error) { return nil, errors.New("not read yet") }
	if got := g.NotReady(t.Context(), stateOf(map[string]string{"a": "1"}).Entries["a"]); got != "not read yet" {
		t.Errorf("replicas cannot be listed: %q", got)
	}
}

// A configuration of a policy waits for replicas that do not know its fields, and for those that
// still answer with the generation before.
func TestReplicaGateWaitsForFields(t *testing.T) {
	state := stateOf(map[string]string{"a": "9", "b": "9"})
	state.Entries["a"].Policy.Spec.BreakGlass = true
	version := versionskew.CurrentVersion()
	older := versionskew.KnownFields()
	delete(older, "breakGlass")
	tests := map[string]struct {
		report    versionskew.Report
		wantWaits map[string]string
	}{
		"it knows the field": {report: versionskew.Report{Known: version.Text}},
		"it does not": {
			report:    versionskew.Report{Known: older.String()},
			wantWaits: map[string]string{"a": "waiting for replica x, which does not know spec.breakGlass"},
		},
		"it withholds the field": {
			report:    versionskew.Report{Known: version.Text, Withheld: "spec.breakGlass"},
			wantWaits: map[string]string{"a": "waiting for replica x, which has not loaded it yet"},
		},
		"it withholds another": {report: versionskew.Report{Known: version.Text, Withheld: "spec.audit"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.report.Loaded = versionskew.Vector{versionskew.Policies: "9"}
			g := &ReplicaGate{Self: "self", Version: version, Live: func(context.Context) ([]replicas.Replica, error) {
				return []replicas.Replica{{Name: "self"}, {Name: "x", Report: replicas.Report{Report: tt.report}}}, nil
			}}
			s := g.Snapshot(t.Context(), state)
			s.Blocks(withMembers("a,b"))
			if diff := cmp.Diff(tt.wantWaits, s.waiting); diff != "" && len(tt.wantWaits)+len(s.waiting) > 0 {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if got := g.NotReady(t.Context(), state.Entries["a"]); got != tt.wantWaits["a"] {
				t.Errorf("not ready: %q, want %q", got, tt.wantWaits["a"])
			}
		})
	}
}

// The leader does not know the registered generation, so it leaves the configuration as it is.
func TestReplicaGateBlocksPlaceholders(t *testing.T) {
	state := stateOf(map[string]string{"a": "9"})
	state.Entries["a"].Standing = policies.Standing{Choice: policies.ChoosePlaceholder, Skew: "waiting for an upgrade"}
	g := &ReplicaGate{Live: func(context.Context) ([]replicas.Replica, error) { return nil, nil }}
	s := g.Snapshot(t.Context(), state)
	if !s.Blocks(withMembers("a")) || s.waiting["a"] != "waiting for an upgrade" {
		t.Errorf("waiting: %v", s.waiting)
	}
}
