package versionskew

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/config/crd"
)

func TestVector(t *testing.T) {
	tests := map[string]struct {
		have, want string
		reached    bool
	}{
		"equal":                {have: "9", want: "9", reached: true},
		"later":                {have: "10", want: "9", reached: true},
		"earlier":              {have: "9", want: "10"},
		"nothing loaded":       {want: "9"},
		"nothing wanted":       {have: "9", reached: true},
		"not a decimal number": {have: "many", want: "9"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			have, want := Vector{Policies: tc.have}, Vector{Policies: tc.want}
			if got := have.Reached(want); got != tc.reached {
				t.Errorf("%v has reached %v: %t, want %t", have, want, got, tc.reached)
			}
		})
	}
	if got := (Vector{}.With(Policies, "9").With(Policies, "10").With(Policies, "8")); got != (Vector{Policies: "10"}) {
		t.Errorf("got %v, want the latest version", got)
	}
}

// The names are parts of annotations.
func TestResources(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Resources() {
		if names[r.String()] || strings.ToLower(r.String()) != r.String() || r.String() == "" {
			t.Errorf("resource %d has the name %q", r, r)
		}
		names[r.String()] = true
	}
}

// The fields of the Go types are those of the CustomResourceDefinitions, which API servers accept.
func TestKnownFields(t *testing.T) {
	if diff := cmp.Diff(definedFields(t, crd.WebhookPolicyExceptions), KnownExceptionFields().String()); diff != "" {
		t.Errorf("fields of exceptions (-definition +types):\n%s", diff)
	}
	assertNoMapOfObjects(t, reflect.TypeFor[v1alpha1.WebhookPolicyExceptionSpec](), "spec")
	got := KnownFields().String()
	if diff := cmp.Diff(definedFields(t, crd.WebhookPolicies), got); diff != "" {
		t.Errorf("fields (-definition +types):\n%s", diff)
	}
	assertNoMapOfObjects(t, reflect.TypeFor[v1alpha1.WebhookPolicySpec](), "spec")
	if n := len(got); n > maxText/8 {
		t.Errorf("the fields take %d bytes in a Lease", n)
	}
}

func definedFields(t *testing.T, text []byte) string {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Fields().String()
}

// Maps are values for Fields, so the fields of objects in them would not be compared.
func assertNoMapOfObjects(t *testing.T, of reflect.Type, path string) {
	t.Helper()
	of = elementOf(of)
	if of.Kind() == reflect.Map && elementOf(of.Elem()).Kind() == reflect.Struct {
		t.Errorf("%s is a map of objects", path)
	}
	if of.Kind() != reflect.Struct || decodesItself(of) {
		return
	}
	for i := range of.NumField() {
		assertNoMapOfObjects(t, of.Field(i).Type, path+"."+of.Field(i).Name)
	}
}

func TestUnknownFields(t *testing.T) {
	known := func(text string) Fields {
		f, err := ParseFields(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	all := KnownFields().String()
	spec := v1alpha1.WebhookPolicySpec{
		Ratchet:     true,
		Validations: []v1alpha1.Validation{{Expression: "true"}, {Expression: "true", Ratchet: ptr.To(false)}},
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"future": "x"}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Rule: admissionregistrationv1.Rule{Resources: []string{"pods"}},
			}}},
		},
	}
	tests := map[string]struct {
		fields string
		want   []string
	}{
		"all are known":    {fields: all},
		"nothing is known": {want: []string{"spec.matchConstraints", "spec.ratchet", "spec.validations"}},
		"a field of an element": {
			fields: strings.Replace(all, ",validations(expression,message,messageExpression,name,ratchet,",
				",validations(expression,message,messageExpression,name,", 1),
			want: []string{"spec.validations.ratchet"},
		},
		"a field of an inline": {
			fields: strings.ReplaceAll(all, "resources,", ""),
			want:   []string{"spec.matchConstraints.resourceRules.resources"},
		},
		"a field that is not set": {fields: strings.Replace(all, "breakGlass,", "", 1)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.fields == all && name != "all are known" {
				t.Fatal("no field is removed")
			}
			got := known(tc.fields).Unknown(&spec)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unknown fields (-want +got):\n%s", diff)
			}
			object, err := json.Marshal(v1alpha1.WebhookPolicy{Spec: spec})
			if err != nil {
				t.Fatal(err)
			}
			fromJSON, err := known(tc.fields).UnknownInJSON(object)
			if diff := cmp.Diff(got, fromJSON); err != nil || diff != "" {
				t.Errorf("error %v; unknown fields in JSON (-Go +JSON):\n%s", err, diff)
			}
		})
	}
}

// Decoding with Go's types drops exactly what UnknownInJSON names.
func TestUnknownInJSON(t *testing.T) {
	for object, want := range map[string][]string{
		`{"metadata":{"future":1},"spec":{"future":{"a":1},"validations":[{"expression":"true","later":[1]}],"ratchet":true},"status":{"x":1}}`: {
			"spec.future", "spec.validations.later",
		},
		`{"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"future":"x"}}},"plugin":{"config":{"future":1}}}}`: nil,
		`{"spec":null}`: nil,
		`{}`:            nil,
	} {
		got, err := KnownFields().UnknownInJSON([]byte(object))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, fields (-want +got):\n%s", object, err, diff)
		}
	}
	for _, object := range []string{``, `[`, `{"spec":`, `{"spec":{"validations":[`, `{"spec":{"ratchet":}}`} {
		if got, err := KnownFields().UnknownInJSON([]byte(object)); err == nil {
			t.Errorf("%s: got %v, want an error", object, got)
		}
	}
}

// Every field that any policy can set is known.
func TestKnownFieldsOfAnyPolicy(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 2).MaxDepth(12)
	fill.Funcs(func(out *metav1.Time, _ randfill.Continue) { *out = metav1.Time{} })
	fill.Funcs(func(out *runtime.RawExtension, _ randfill.Continue) { *out = runtime.RawExtension{Raw: []byte(`{}`)} })
	fields := KnownFields()
	for range 200 {
		var spec v1alpha1.WebhookPolicySpec
		fill.Fill(&spec)
		if unknown := fields.Unknown(&spec); len(unknown) > 0 {
			t.Fatalf("unknown fields %v", unknown)
		}
	}
}

func TestFieldsRoundTrip(t *testing.T) {
	for _, text := range []string{"", "a", "a,b", "a(b),c", "a(b(c,d),e),f", KnownFields().String()} {
		got, err := ParseFields(text)
		if err != nil || got.String() != text {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"(", ")", "a(", "a(b", "a)", ",a", "a,,b", strings.Repeat("a(", 100), strings.Repeat("a", maxText+1)} {
		if got, err := ParseFields(text); err == nil {
			t.Errorf("%.20q: got %v, want an error", text, got)
		}
	}
}

func TestMissing(t *testing.T) {
	all, some := Fields{"a": nil, "b": {"c": nil, "d": nil}}, Fields{"b": {"c": nil}}
	if got, want := some.Missing(all), []string{"spec.a", "spec.b.d"}; !reflect.DeepEqual(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	if got := all.Missing(some); len(got) > 0 {
		t.Errorf("missing %v, want none", got)
	}
}

func TestPeers(t *testing.T) {
	own := CurrentVersion()
	older := KnownFields()
	delete(older, "ratchet")
	spec := v1alpha1.WebhookPolicySpec{Ratchet: true}
	want := Requirement{Loaded: Vector{Policies: "9"}, Spec: &spec}
	tests := map[string]struct {
		peers       []Peer
		wantMissing string
		wantUnknown []string
	}{
		"none":  {},
		"equal": {peers: []Peer{{Name: "a", Report: Report{Known: own.Text, Loaded: Vector{Policies: "9"}}}}},
		"behind": {
			peers:       []Peer{{Name: "a", Report: Report{Known: own.Text}}},
			wantMissing: "waiting for replica a, which has not loaded it yet",
		},
		"older": {
			peers:       []Peer{{Name: "a", Report: Report{Known: older.String()}}},
			wantMissing: "waiting for replica a, which does not know spec.ratchet",
			wantUnknown: []string{"spec.ratchet"},
		},
		"older than all": {
			peers:       []Peer{{Name: "a"}},
			wantMissing: "waiting for replica a, which is too old to report the fields that it knows",
			wantUnknown: []string{"spec.ratchet"},
		},
		"unreadable": {
			peers:       []Peer{{Name: "a", Report: Report{Known: "("}}},
			wantMissing: "waiting for replica a, which does not know spec.ratchet",
			wantUnknown: []string{"spec.ratchet"},
		},
		"newer": {peers: []Peer{{Name: "a", Report: Report{Known: own.Text + ",zzz", Loaded: Vector{Policies: "9"}}}}},
		"withholding": {
			peers: []Peer{
				{Name: "a", Report: Report{Known: own.Text, Withheld: "spec.audit,spec.ratchet", Loaded: Vector{Policies: "9"}}},
			},
			wantMissing: "waiting for replica a, which has not loaded it yet",
		},
		"withholding more": {peers: []Peer{{Name: "a", Report: Report{Known: own.Text, Withheld: "spec.audit", Loaded: Vector{Policies: "9"}}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			peers := NewPeers(own, tc.peers)
			if got := peers.Missing(want); got != tc.wantMissing {
				t.Errorf("missing %q, want %q", got, tc.wantMissing)
			}
			got, why := peers.Unknown(&spec)
			if diff := cmp.Diff(tc.wantUnknown, got); diff != "" || why == "" && len(got) > 0 {
				t.Errorf("reason %q, unknown fields (-want +got):\n%s", why, diff)
			}
		})
	}
}

func TestMissingException(t *testing.T) {
	peer := func(loaded string, unloaded ...string) Peer {
		p := Peer{Name: "a", Report: Report{Loaded: Vector{Exceptions: loaded}}}
		p.SetUnloaded(unloaded)
		return p
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("n/e%04d", i)
	}
	const notLoaded, unknown = "waiting for replica a, which has not loaded it yet", "waiting for replica a, which does not know its fields"
	for name, tc := range map[string]struct {
		peer Peer
		want string
	}{
		"loaded":                     {peer: peer("9")},
		"behind":                     {peer: peer("8"), want: notLoaded},
		"too old to know exceptions": {peer: peer(""), want: notLoaded},
		"another one is not applied": {peer: peer("9", "m/e", "n/f")},
		"it is not applied":          {peer: peer("9", "n/f", "n/e"), want: unknown},
		"too many to name":           {peer: peer("9", many...), want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if n := len(tc.peer.Unloaded); n > maxNames+len(moreNames) {
				t.Errorf("%d bytes in a Lease", n)
			}
			if got := NewPeers(CurrentVersion(), []Peer{tc.peer}).MissingException("n/e", Vector{Exceptions: "9"}); got != tc.want {
				t.Errorf("missing %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMissingLookup(t *testing.T) {
	peer := func(unready ...string) Peer {
		p := Peer{Name: "a"}
		p.SetUnready(unready)
		return p
	}
	const notReady = "waiting for replica a, which cannot use it yet"
	for name, tc := range map[string]struct {
		peer Peer
		want string
	}{
		"ready":                 {peer: peer()},
		"another one is not":    {peer: peer("b")},
		"not ready":             {peer: peer("b", "a1"), want: notReady},
		"too many to name":      {peer: peer(strings.Split(strings.Repeat("xxxxxxx,", 1000), ",")...), want: notReady},
		"a name with the start": {peer: peer("a12")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewPeers(CurrentVersion(), []Peer{tc.peer}).MissingLookup("a1"); got != tc.want {
				t.Errorf("missing %q, want %q", got, tc.want)
			}
		})
	}
}

// A replica of another version that starts or ends changes what is known; a report of a load does not.
func TestKnownOfPeers(t *testing.T) {
	own := CurrentVersion()
	equal := NewPeers(own, []Peer{{Name: "a", Report: Report{Known: own.Text}}})
	loaded := NewPeers(own, []Peer{{Name: "a", Report: Report{Known: own.Text, Loaded: Vector{Policies: "9"}}}})
	other := NewPeers(own, []Peer{{Name: "a", Report: Report{Known: "ratchet"}}})
	if equal.Known() != loaded.Known() || equal.Known() == other.Known() {
		t.Errorf("known: %q, %q and %q", equal.Known(), loaded.Known(), other.Known())
	}
}

func TestDoesNotKnow(t *testing.T) {
	if got, want := doesNotKnow([]string{"a", "b", "c", "d", "e"}), "does not know a, b, c and 2 other fields"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
