package policyvalidator

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
)

// TestRehearsalWarns checks what a client gets of a rehearsal, besides the other warnings.
func TestRehearsalWarns(t *testing.T) {
	const denial = "f: UPDATE of pods is denied for every object that was tried"
	const another = "f: UPDATE of pods can fail"
	const web7 = "1 of 8 existing Pods would be denied on their next change: shop/web-7"
	finding := func(texts ...string) Rehearsal {
		return func(context.Context, *v1alpha1.WebhookPolicy, Served, []string) []string { return texts }
	}
	const checked = "f: undefined field"
	tests := map[string]struct {
		rehearse  Rehearsal
		checks    []Check
		resources func() lists
		store     *store
		policy    *v1alpha1.WebhookPolicy
		want      []string
	}{
		"no finding":           {rehearse: finding()},
		"findings":             {rehearse: finding(denial, another), want: []string{denial, another}},
		"after other warnings": {rehearse: finding(another), policy: updating(slow), want: []string{tooSlow, another}},
		"a stored object refutes one": {
			rehearse: finding(denial, another),
			store:    &store{pods: 8},
			want:     []string{web7, another},
		},
		"all stored objects are denied": {
			rehearse: finding(denial),
			store:    &store{pods: 2},
			policy:   updating(saying("false")),
			want:     []string{"2 of 2 existing Pods would be denied on their next change: shop/web-0, shop/web-1", denial},
		},
		"it panics": {
			rehearse: func(context.Context, *v1alpha1.WebhookPolicy, Served, []string) []string { panic("a bug") },
			policy:   updating(slow),
			want:     []string{tooSlow},
		},
		"before the first discovery": {
			rehearse:  finding(denial),
			resources: unknown,
			want:      []string{"not rehearsed: the resources of the API server are not known yet"},
		},
		"no rehearsal": {},
		"after the checks": {
			rehearse: func(_ context.Context, _ *v1alpha1.WebhookPolicy, _ Served, found []string) []string {
				return []string{"found before: " + strings.Join(found, "; ")}
			},
			checks: []Check{func(context.Context, *v1alpha1.WebhookPolicy, Served) []string { return []string{checked} }},
			policy: updating(slow),
			want:   []string{checked, tooSlow, "found before: " + checked},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.resources == nil {
				tt.resources = servedPods
			}
			if tt.policy == nil {
				tt.policy = updating()
			}
			var impact *Impact
			if tt.store != nil {
				impact = newImpact(t, tt.store)
			}
			served, replicas := resources{ago: tt.resources, now: unknown}, func() int { return 2 }
			r := New(policy.NewCompiler, served, replicas, egress.Rule{}, logr.Discard(), impact, tt.checks...)
			r.Rehearse = tt.rehearse
			review := request(t, admissionv1.Create, tt.policy, nil)
			review.UserInfo.Username = "admin"
			response, err := r.Review(t.Context(), review)
			if err != nil || !response.Allowed {
				t.Fatalf("got %+v, %v; want it allowed", response, err)
			}
			if diff := gocmp.Diff(tt.want, response.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
