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
)

func stateOf(versions map[string]string) *policies.State {
	s := &policies.State{Entries: map[types.UID]*policies.Entry{}}
	for name, version := range versions {
		s.Entries[types.UID(name)] = &policies.Entry{Policy: &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}}
	}
	return s
}

func naming(members string) registration.Configuration {
	c := registration.NewConfiguration(registration.PhaseValidate)
	c.SetAnnotations(map[string]string{registration.AnnotationMembers: members})
	return c
}

func TestGate(t *testing.T) {
	loaded := func(name, version string) replicas.Replica {
		return replicas.Replica{Name: name, Report: replicas.Report{Policies: version}}
	}
	versions := map[string]string{"a": "9", "b": "10"}
	tests := map[string]struct {
		live        []replicas.Replica
		err         error
		members     string
		wantWaiting map[string]string
	}{
		"alone, and no Lease yet":      {members: "a,b"},
		"alone":                        {live: []replicas.Replica{loaded("self", "")}, members: "a,b"},
		"all have loaded all":          {live: []replicas.Replica{loaded("x", "10"), loaded("y", "11")}, members: "a,b"},
		"one has yet to load one":      {live: []replicas.Replica{loaded("x", "10"), loaded("y", "9")}, members: "a,b", wantWaiting: map[string]string{"b": "waiting for replica y, which has not loaded it yet"}},
		"the other one is not in it":   {live: []replicas.Replica{loaded("y", "9")}, members: "a"},
		"one has loaded nothing":       {live: []replicas.Replica{loaded("y", "")}, members: "a", wantWaiting: map[string]string{"a": "waiting for replica y, which has not loaded it yet"}},
		"one that reports nonsense":    {live: []replicas.Replica{loaded("y", "many")}, members: "a", wantWaiting: map[string]string{"a": "waiting for replica y, which has not loaded it yet"}},
		"a member that was deleted":    {live: []replicas.Replica{loaded("y", "")}, members: "gone"},
		"nobody knows who is alive":    {err: errors.New("not read yet"), members: "a", wantWaiting: map[string]string{"a": "not read yet"}},
		"nothing is to be loaded":      {live: []replicas.Replica{loaded("y", "")}},
		"versions are no decimal text": {live: []replicas.Replica{loaded("y", "9")}, members: "b", wantWaiting: map[string]string{"b": "waiting for replica y, which has not loaded it yet"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := &Gate{Self: "self", Live: func(context.Context) ([]replicas.Replica, error) { return tt.live, tt.err }}
			heard := g.Changes(t.Context())
			o := g.open(t.Context(), stateOf(versions))
			if got := o.keeps(naming(tt.members)); got != (len(tt.wantWaiting) > 0) {
				t.Errorf("kept back: %t", got)
			}
			again := g.close(o)
			got := map[string]string{}
			for _, name := range []string{"a", "b", "gone"} {
				if why := g.Waiting(name); why != "" {
					got[name] = why
				}
			}
			if diff := cmp.Diff(tt.wantWaiting, got); diff != "" && len(got)+len(tt.wantWaiting) > 0 {
				t.Errorf("waiting (-want +got):\n%s", diff)
			}
			if told := len(heard) > 0; told != (len(got) > 0) || (again > 0) != told {
				t.Errorf("told %t, looks again after %s", told, again)
			}
		})
	}
}

func TestWithoutAGate(t *testing.T) {
	var g *Gate
	o := g.open(t.Context(), stateOf(map[string]string{"a": "9"}))
	if o.keeps(naming("a")) || g.close(o) != 0 {
		t.Error("kept back by no gate")
	}
}

func TestGateTellsWhoLags(t *testing.T) {
	g := &Gate{Self: "self", Live: func(context.Context) ([]replicas.Replica, error) {
		return []replicas.Replica{{Name: "self"}, {Name: "x", Report: replicas.Report{Policies: "11"}}, {Name: "y", Report: replicas.Report{Policies: "10"}}}, nil
	}}
	for version, want := range map[string]string{"9": "", "10": "", "11": "waiting for replica y, which has not loaded it yet"} {
		if got := g.Lags(t.Context(), version); got != want {
			t.Errorf("version %s: %q, want %q", version, got, want)
		}
	}
	g.Live = func(context.Context) ([]replicas.Replica, error) { return nil, errors.New("not read yet") }
	if got := g.Lags(t.Context(), "1"); got != "not read yet" {
		t.Errorf("nobody knows who is alive: %q", got)
	}
}
