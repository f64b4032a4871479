package policies

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func TestStateHolds(t *testing.T) {
	loaded := func(uid types.UID, generation int64, version string) *Entry {
		return &Entry{Generation: &Generation{Policy: &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: string(uid), UID: uid, Generation: generation, ResourceVersion: version,
		}}}}
	}
	tests := map[string]struct {
		entries map[types.UID]*Entry
		want    string
	}{
		"all of them":                {entries: map[types.UID]*Entry{"a": loaded("a", 2, "8")}},
		"a generation that is newer": {entries: map[types.UID]*Entry{"a": loaded("a", 3, "11")}},
		"an older generation": {
			entries: map[types.UID]*Entry{"a": loaded("a", 1, "8")},
			want:    "generation 2 of policy a has not been loaded yet",
		},
		"nothing": {want: "generation 2 of policy a has not been loaded yet"},
		"one that was deleted": {
			entries: map[types.UID]*Entry{"a": loaded("a", 2, "8"), "b": loaded("b", 1, "9")},
			want:    "policy b was deleted and is still loaded",
		},
		"one that was created since": {entries: map[types.UID]*Entry{"a": loaded("a", 2, "8"), "b": loaded("b", 1, "11")}},
		"another one with the same name": {
			entries: map[types.UID]*Entry{"z": loaded("z", 2, "8")},
			want:    "generation 2 of policy a has not been loaded yet",
		},
		"one that has come with the list": {
			entries: map[types.UID]*Entry{"a": loaded("a", 2, "8"), "b": loaded("b", 1, "10")},
			want:    "policy b was deleted and is still loaded",
		},
		"one whose version is not decimal": {entries: map[types.UID]*Entry{"a": loaded("a", 2, "8"), "b": loaded("b", 1, "x")}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			list := &metav1.PartialObjectMetadataList{
				ListMeta: metav1.ListMeta{ResourceVersion: "10"},
				Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Generation: 2}}},
			}
			got := ""
			if err := (&State{Entries: tt.entries}).holds(list); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// paged returns a page of names for each token.
type paged struct {
	client.Reader
	pages map[string]metav1.PartialObjectMetadataList
}

func (p paged) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	page := p.pages[o.Continue]
	page.DeepCopyInto(list.(*metav1.PartialObjectMetadataList))
	return nil
}

func TestCurrentReadsAllPages(t *testing.T) {
	page := func(next, name string) metav1.PartialObjectMetadataList {
		return metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{ResourceVersion: "10", Continue: next},
			Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}}},
		}
	}
	l := newLoader(t)
	load(l, nil, newPolicy("a", 1, "true"))
	live := paged{pages: map[string]metav1.PartialObjectMetadataList{"": page("next", "a"), "next": page("", "b")}}
	const want = "generation 1 of policy b has not been loaded yet"
	if err := l.Current(t.Context(), live); err == nil || err.Error() != want {
		t.Errorf("Current() = %v, want %s", err, want)
	}
	load(l, nil, newPolicy("a", 1, "true"), newPolicy("b", 1, "true"))
	if err := l.Current(t.Context(), live); err != nil {
		t.Errorf("Current() = %v, want no error", err)
	}
	names, err := existingPolicies(t.Context(), live)
	if err != nil || len(names) != 2 {
		t.Errorf("existingPolicies() = %v, %v, want a and b", names, err)
	}
}
