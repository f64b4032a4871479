package status

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/lookups"
	definitions "github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// knownLookups are the states of lookups by their resources.
type knownLookups struct {
	events.Broadcaster
	states map[string]lookups.State
}

func (k *knownLookups) State(d definitions.Definition) lookups.State { return k.states[d.Resource] }

func TestLookups(t *testing.T) {
	lookup := func(name string) v1alpha1.Lookup {
		return v1alpha1.Lookup{Name: name, Resource: v1alpha1.LookupResource{Version: "v1", Resource: name}, StoredKeys: "[]"}
	}
	a, b := lookup("a"), lookup("b")
	objects := ptr.To[int64]
	for name, tc := range map[string]struct {
		states     map[string]lookups.State
		unready    string // lookup of the other replica
		unknown    bool   // the other replicas are not known
		want       string
		wantStatus []v1alpha1.LookupStatus
	}{
		"all are loaded": {
			states:     map[string]lookups.State{"a": {Objects: 3}, "b": {Objects: 0}},
			want:       "True Complete: every replica has read the objects of every lookup",
			wantStatus: []v1alpha1.LookupStatus{{Name: "a", Objects: objects(3)}, {Name: "b", Objects: objects(0)}},
		},
		"one is being listed": {
			states: map[string]lookups.State{"a": {Objects: 3}, "b": {Loading: true}},
			want:   "False Pending: lookup b: the objects are being listed",
			wantStatus: []v1alpha1.LookupStatus{
				{Name: "a", Objects: objects(3)}, {Name: "b", Message: "the objects are being listed"},
			},
		},
		"a problem comes first": {
			states: map[string]lookups.State{"a": {Loading: true}, "b": {Problem: "create a role"}},
			want:   "False LookupsNotReady: lookup b: create a role",
			wantStatus: []v1alpha1.LookupStatus{
				{Name: "a", Message: "the objects are being listed"}, {Name: "b", Message: "create a role", Objects: objects(0)},
			},
		},
		"objects are left out": {
			states: map[string]lookups.State{"a": {Objects: 9, LeftOut: 2, Example: "n/x: storedKeys: no such key"}},
			want:   "True Complete: every replica has read the objects of every lookup",
			wantStatus: []v1alpha1.LookupStatus{
				{
					Name: "a", Objects: objects(9), LeftOut: 2,
					Message: "left out because storedKeys or value fail: 2 objects, such as n/x: storedKeys: no such key",
				},
				{Name: "b", Objects: objects(0)},
			},
		},
		"another replica has not loaded one": {
			unready:    "b",
			want:       "False WaitingForReplicas: lookup b: waiting for replica other, which cannot use it yet",
			wantStatus: []v1alpha1.LookupStatus{{Name: "a", Objects: objects(0)}, {Name: "b", Objects: objects(0)}},
		},
		"the replicas are not known": {
			unknown:    true,
			want:       "False WaitingForReplicas: not read yet",
			wantStatus: []v1alpha1.LookupStatus{{Name: "a", Objects: objects(0)}, {Name: "b", Objects: objects(0)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy()
			p.Spec.Lookups = []v1alpha1.Lookup{a, b}
			peers := func(context.Context) (versionskew.Peers, error) {
				if tc.unknown {
					return versionskew.Peers{}, errors.New("not read yet")
				}
				other := versionskew.Peer{Name: "other"}
				if tc.unready != "" {
					of := lookup(tc.unready)
					other.SetUnready([]string{lookups.Name(definitions.DefinitionOf(&of))})
				}
				return versionskew.NewPeers(versionskew.CurrentVersion(), []versionskew.Peer{other}), nil
			}
			known := &knownLookups{states: tc.states}
			source := Lookups(known, peers, known.Subscribe)
			var in inputs
			source.observe(t.Context(), p, &in)
			got := declaration{kind: v1alpha1.ConditionLookupsReady, rules: in.lookups.rules()}.condition()
			if text := string(got.Status) + " " + got.Reason + ": " + got.Message; text != tc.want {
				t.Errorf("got %s, want %s", text, tc.want)
			}
			if diff := cmp.Diff(tc.wantStatus, in.lookups.statuses); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing reads the lookups of a policy that is not accepted, so they have no condition, and do not delay its status.
func TestLookupsOfAPolicyThatIsNotAccepted(t *testing.T) {
	in := inputs{lookups: lookupsInput{loading: "x", statuses: []v1alpha1.LookupStatus{{Name: "a"}}}}
	p := newPolicy()
	status := observe(p, nil, in, &stages{}, metav1.Now())
	if c := find(status, v1alpha1.ConditionLookupsReady); c.Status != metav1.ConditionUnknown || len(status.Lookups) > 0 {
		t.Errorf("condition %+v, lookups %+v", c, status.Lookups)
	}
}
