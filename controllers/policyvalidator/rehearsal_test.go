package policyvalidator

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
)

// TestRehearsalWarns checks what a client gets of a rehearsal, besides the other warnings.
func TestRehearsalWarns(t *testing.T) {
	denial := advice.Warning{Field: "f", Text: "UPDATE of pods is denied for every object that was tried", Kind: advice.DeniesAll}
	another := advice.Warning{Field: "f", Text: "UPDATE of pods can fail"}
	const web7 = "1 of 8 existing Pods would be denied on their next change: shop/web-7"
	finding := func(found ...advice.Warning) Rehearsal {
		return func(context.Context, *v1alpha1.WebhookPolicy, Served, []advice.Warning) []advice.Warning {
			return found
		}
	}
	checked := advice.Warning{Field: "f", Text: "undefined field"}
	tests := map[string]struct {
		rehearse  Rehearsal
		checks    []Check
		resources func() lists
		store     *store
		policy    *v1alpha1.WebhookPolicy
		want      []string
	}{
		"no finding":           {rehearse: finding()},
		"findings":             {rehearse: finding(denial, another), want: []string{denial.String(), another.String()}},
		"after other warnings": {rehearse: finding(another), policy: updating(slow), want: []string{tooSlow, another.String()}},
		"a stored object refutes one": {
			rehearse: finding(denial, another),
			store:    &store{pods: 8},
			want:     []string{web7, another.String()},
		},
		"all stored objects are denied": {
			rehearse: finding(denial),
			store:    &store{pods: 2},
			policy:   updating(saying("false")),
			want: []string{
				"2 of 2 existing Pods would be denied on their next change: shop/web-0, shop/web-1", denial.String(),
			},
		},
		"it panics": {
			rehearse: func(context.Context, *v1alpha1.WebhookPolicy, Served, []advice.Warning) []advice.Warning {
				panic("a bug")
			},
			policy: updating(slow),
			want:   []string{tooSlow},
		},
		"before the first discovery": {
			rehearse:  finding(denial),
			resources: unknown,
			want:      []string{"not rehearsed: the resources of the API server are not known yet"},
		},
		"no rehearsal": {},
		"after the checks": {
			rehearse: func(_ context.Context, _ *v1alpha1.WebhookPolicy, _ Served, found []advice.Warning) []advice.Warning {
				return []advice.Warning{{Text: "found before: " + strings.Join(advice.Texts(found), "; ")}}
			},
			checks: []Check{func(context.Context, *v1alpha1.WebhookPolicy, Served) []advice.Warning {
				return []advice.Warning{checked}
			}},
			policy: updating(slow),
			want:   []string{checked.String(), tooSlow, "found before: " + checked.String()},
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
