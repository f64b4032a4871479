package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An object has one converter: the kinds of sources do not overlap.
func TestSourcesAreDisjoint(t *testing.T) {
	all := append(Sources(), ToNative()...)
	for i, s := range all {
		if s.Title == "" || len(s.Kinds) == 0 || s.Convert == nil {
			t.Errorf("source %d is incomplete: %+v", i, s)
		}
		for j := range all {
			for _, kind := range s.Kinds {
				if i != j && all[j].Owns(kind) {
					t.Errorf("%s and %s both own %s", s.Title, all[j].Title, kind)
				}
			}
		}
	}
}

func TestOwns(t *testing.T) {
	tests := map[string]struct {
		kind schema.GroupKind
		want string // a part of the title; empty is none
	}{
		"a native policy": {
			kind: schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"},
			want: "MutatingAdmissionPolicies",
		},
		"a webhook configuration": {
			kind: schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"},
		},
		"a constraint of any kind": {
			kind: schema.GroupKind{Group: "constraints.gatekeeper.sh", Kind: "K8sTeam"},
			want: "Gatekeeper",
		},
		"a template": {
			kind: schema.GroupKind{Group: "templates.gatekeeper.sh", Kind: "ConstraintTemplate"},
			want: "Gatekeeper",
		},
		"another kind of the group": {kind: schema.GroupKind{Group: "templates.gatekeeper.sh", Kind: "Other"}},
		"a policy of Kyverno": {
			kind: schema.GroupKind{Group: "kyverno.io", Kind: "ClusterPolicy"},
			want: "ClusterPolicies",
		},
		"a policy of Kyverno in CEL": {
			kind: schema.GroupKind{Group: "policies.kyverno.io", Kind: "ValidatingPolicy"},
			want: "in CEL",
		},
		"a kind without a converter": {kind: schema.GroupKind{Kind: "Pod"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range Sources() {
				if s.Owns(test.kind) {
					got = append(got, s.Title)
				}
			}
			title := strings.Join(got, ", ")
			if len(got) > 1 || (title == "") != (test.want == "") || !strings.Contains(title, test.want) {
				t.Errorf("got %q, want %q", title, test.want)
			}
		})
	}
}

// The pages about migrating describe every source by its group.
func TestSourcesAreDocumented(t *testing.T) {
	pages, err := filepath.Glob("../../docs/migration/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	var text strings.Builder
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	for _, s := range Sources() {
		for _, kind := range s.Kinds {
			if !strings.Contains(text.String(), kind.Group) {
				t.Errorf("docs/migration does not name the group %s of %s", kind.Group, s.Title)
			}
		}
	}
}
