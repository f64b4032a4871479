package policies

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// fieldsWithout returns all known fields but one.
func fieldsWithout(t *testing.T, name string) versionskew.Fields {
	t.Helper()
	fields := versionskew.KnownFields()
	if _, known := fields[name]; !known {
		t.Fatalf("no field %s", name)
	}
	delete(fields, name)
	return fields
}

// besides makes other replicas with some fields run beside the loader.
func besides(l *Loader, others map[string]versionskew.Fields) {
	l.Version = versionskew.CurrentVersion()
	l.Peers = func(context.Context) (versionskew.Peers, error) {
		var peers []versionskew.Peer
		for name, fields := range others {
			peers = append(peers, versionskew.Peer{Name: name, Report: versionskew.Report{Known: fields.String()}})
		}
		return versionskew.NewPeers(l.Version, peers), nil
	}
}

// An upgrade: a policy is changed to use a field while an older replica runs, until that ends.
func TestFieldThatAnotherReplicaDoesNotKnow(t *testing.T) {
	l := newLoader(t)
	first := newPolicy("p", 1, "true")
	changed := newPolicy("p", 2, "true")
	changed.Spec.BreakGlass = true
	added := newPolicy("added", 1, "true")
	added.Spec.BreakGlass = true
	state := load(l, load(l, nil, first), first)

	besides(l, map[string]versionskew.Fields{"new": versionskew.KnownFields(), "old": fieldsWithout(t, "breakGlass")})
	const want = "waiting for replica old, which does not know spec.breakGlass"
	state = load(l, state, changed, added, newPolicy("other", 1, "true"))
	e := state.Entries["uid-p"]
	if e.EffectiveGeneration() != 1 || e.Skew != want {
		t.Errorf("generation %d is registered, because %q; want generation 1, because %q", e.EffectiveGeneration(), e.Skew, want)
	}
	if e := state.Entries["uid-added"]; e.Planned() || e.Skew != want {
		t.Errorf("the new policy is planned: %t, because %q", e.Planned(), e.Skew)
	}
	if !state.Entries["uid-other"].Planned() {
		t.Error("a policy without the field is not planned")
	}
	if state.withheld != "spec.breakGlass" || state.peerInterval() == 0 {
		t.Errorf("withholds %q, and looks again after %s", state.withheld, state.peerInterval())
	}

	besides(l, nil)
	state = load(l, state, changed, added)
	if e := state.Entries["uid-p"]; e.EffectiveGeneration() != 2 || e.Skew != "" || !state.Entries["uid-added"].Planned() {
		t.Errorf("generation %d is registered after the upgrade, because %q", e.EffectiveGeneration(), e.Skew)
	}
	if state.withheld != "" || state.peerInterval() != 0 {
		t.Errorf("withholds %q, and looks again after %s", state.withheld, state.peerInterval())
	}
}

// A replica that does not know a field answers with the generation before. If it has started
// since, failurePolicy decides: the policy could mean something else without the field.
func TestFieldThatThisReplicaDoesNotKnow(t *testing.T) {
	for name, restarted := range map[string]bool{"it knows the generation before": false, "it has started since": true} {
		t.Run(name, func(t *testing.T) {
			l := newLoader(t)
			first := newPolicy("p", 1, "true")
			state := load(l, load(l, nil, first), first)
			if restarted {
				l = newLoader(t)
			}
			changed := newPolicy("p", 2, "1 +") // what an unknown field may replace is no error of the author
			changed.UnknownFields = []string{"spec.future"}
			state = load(l, state, changed)
			e := state.Entries["uid-p"]
			if e.EffectiveGeneration() != 1 || e.IsPlaceholder() != restarted || !e.Accepted() {
				t.Fatalf("generation %d is registered, placeholder %t, accepted %t", e.EffectiveGeneration(), e.IsPlaceholder(), e.Accepted())
			}
			got, err := l.Store.Evaluate(t.Context(), groupOf(state, registration.PhaseValidate, "p"), podCreation())
			if err != nil || got.Allowed == restarted ||
				restarted && !strings.Contains(got.Result.Message, "this replica of Ostiary does not know the field") {
				t.Errorf("answer %+v, %v", got, err)
			}
		})
	}
}

// Without Leases there are no other replicas to wait for, and the leader registers nothing.
func TestUnknownPeers(t *testing.T) {
	l := newLoader(t)
	l.Peers = func(context.Context) (versionskew.Peers, error) { return versionskew.Peers{}, context.DeadlineExceeded }
	if e := load(l, nil, newPolicy("p", 1, "true")).Entries["uid-p"]; !e.Planned() {
		t.Error("the policy is not planned")
	}
}

// Each load of another replica is a report, and only those of another version are a reason to load.
func TestPeersChanged(t *testing.T) {
	l := newLoader(t)
	reports := make(chan struct{})
	l.ReportsChanged = func(context.Context) <-chan struct{} { return reports }
	own := versionskew.CurrentVersion()
	var known atomic.Value // of the other replica
	known.Store(own.Text)
	l.Peers = func(context.Context) (versionskew.Peers, error) {
		report := versionskew.Report{Known: known.Load().(string)}
		return versionskew.NewPeers(own, []versionskew.Peer{{Name: "b", Report: report}}), nil
	}
	changed := l.peersChanged(t.Context())
	reports <- struct{}{}
	reports <- struct{}{} // the first one has been compared
	if len(changed) > 0 {
		t.Error("an equal replica is a reason to load")
	}
	known.Store(fieldsWithout(t, "audit").String())
	reports <- struct{}{}
	<-changed
}

func TestPolicyDecoder(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := policyCodecs{serializer.NewCodecFactory(scheme).WithoutConversion(), versionskew.KnownFields()}
	var decoder runtime.Decoder
	for _, info := range codecs.SupportedMediaTypes() {
		if decoder != nil {
			t.Fatal("more than one media type")
		}
		decoder = codecs.DecoderToVersion(info.Serializer, v1alpha1.GroupVersion)
	}
	const (
		header = `"apiVersion":"admission.ostiary.dev/v1alpha1",`
		known  = `{` + header + `"kind":"WebhookPolicy","metadata":{"name":"a"},"spec":{"ratchet":true}}`
		future = `{` + header + `"kind":"WebhookPolicy","metadata":{"name":"b"},"spec":{"ratchet":true,"future":{"x":1}}}`
	)
	unknown := func(o runtime.Object) (out [][]string) {
		switch o := o.(type) {
		case *v1alpha1.WebhookPolicy:
			return [][]string{o.UnknownFields}
		case *v1alpha1.WebhookPolicyList:
			for _, p := range o.Items {
				out = append(out, p.UnknownFields)
			}
		}
		return out
	}
	for text, want := range map[string][][]string{
		known:  {nil},
		future: {{"spec.future"}},
		`{` + header + `"kind":"WebhookPolicyList","items":[` + known + `,` + future + `]}`: {nil, {"spec.future"}},
	} {
		got, _, err := decoder.Decode([]byte(text), nil, nil)
		if diff := cmp.Diff(want, unknown(got)); err != nil || diff != "" {
			t.Errorf("%s: error %v, unknown fields (-want +got):\n%s", text, err, diff)
		}
	}
	if _, _, err := decoder.Decode([]byte(`{`+header+`"kind":"WebhookPolicy","spec":1}`), nil, nil); err == nil {
		t.Error("an invalid policy is decoded")
	}
	// The names of unknown fields are no part of the API.
	encoded, err := json.Marshal(v1alpha1.WebhookPolicy{UnknownFields: []string{"spec.future"}})
	if err != nil || strings.Contains(string(encoded), "future") {
		t.Errorf("encoded as %s, %v", encoded, err)
	}
}

// An API server sends a generation without a new field to a watch that is older than the
// definition, and with the field to the next watch. No event says so, but the next report finds it.
func TestUnknownFieldIsFoundLater(t *testing.T) {
	l := newLoader(t)
	l.cached = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	misread := newPolicy("p", 2, "true")
	misread.ResourceVersion = "9"
	state := load(l, load(l, nil, misread), misread)
	read := *misread.DeepCopy()
	read.UnknownFields = []string{"spec.future"}
	if err := l.cached.Add(&read); err != nil {
		t.Fatal(err)
	}
	notified := l.notLoaded.Subscribe(t.Context())
	if l.Report(); len(notified) == 0 {
		t.Fatal("the report does not find the field")
	}
	state = load(l, state, read)
	if e := state.Entries["uid-p"]; !e.IsPlaceholder() {
		t.Errorf("choice %d, want that failurePolicy decides: this replica has no generation without the field", e.Choice)
	}
	<-notified
	if l.Report(); len(notified) > 0 {
		t.Error("the policy is loaded, and the report finds something")
	}
	// The definition of an earlier version drops the field, and the policy means something else.
	state = load(l, state, misread)
	if e := state.Entries["uid-p"]; !e.IsPlaceholder() {
		t.Errorf("choice %d after the field has disappeared", e.Choice)
	}
}
