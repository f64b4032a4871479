package policyvalidator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
)

// store is an API server that serves lists of Pods.
type store struct {
	pods   int
	perSet int           // Pods of a StatefulSet; 0: they have no controller
	size   int           // bytes of a Pod, besides its metadata
	delay  time.Duration // before each page
	code   int           // instead of lists
	lists  atomic.Int64
}

// owner is the owner reference of a Pod, with its number.
func (s *store) owner(pod int) string {
	if s.perSet == 0 {
		return ""
	}
	return fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"set-%d","uid":"u",`+
		`"controller":true}]`, pod/s.perSet)
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lists.Add(1)
	select {
	case <-time.After(s.delay):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if s.code != 0 {
		w.WriteHeader(s.code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure,
			Message:  "no",
			Code:     int32(s.code),
			Reason:   map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound}[s.code],
		})
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to, next := min(from+limit, s.pods), ""
	if to < s.pods {
		next = strconv.Itoa(to)
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`, next)
	for i := from; i < to; i++ {
		if i > from {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `{"metadata":{"name":"web-%d","namespace":"shop","uid":"%d","labels":{"number":"%d"}%s},`+
			`"spec":{"a":%q}}`, i, i, i%10, s.owner(i), strings.Repeat("x", s.size))
	}
	fmt.Fprint(w, "]}")
}

func newImpact(t *testing.T, s *store) *Impact {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	impact, err := NewImpact(&rest.Config{Host: server.URL, QPS: -1}, "ostiary-system", nil,
		policy.Environment{Now: time.Now, Params: unreadParams{}, Lookups: unreadLookups{}, Authorizer: listers{}})
	if err != nil {
		t.Fatal(err)
	}
	impact.within = time.Hour
	return impact
}

// listers lets the user admin and the account of the audit list Pods.
type listers struct{}

func (listers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch name := a.GetUser().GetName(); {
	case name == "unknown":
		return authorizer.DecisionAllow, "", errors.New("no answer")
	case (name == "admin" || name == "system:serviceaccount:ostiary-system:ostiary-audit") && a.GetVerb() == "list" &&
		a.GetResource() == "pods" && a.GetNamespace() == "":
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// unreadParams are not read yet.
type unreadParams struct{}

func (unreadParams) Params(context.Context, *admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef,
	string) ([]runtime.Object, error) {
	return nil, fmt.Errorf("v1 ConfigMaps are not watched yet")
}

// unreadLookups are not read yet.
type unreadLookups struct{}

func (unreadLookups) Lookup(context.Context, *lookups.Program, lookups.Query) (lookups.Result, error) {
	return lookups.Result{}, fmt.Errorf("v1 Pods are not watched yet")
}

func servedPods() lists {
	return lists{schema.GroupVersion{Version: "v1"}: {
		{Name: "pods", Namespaced: true, Kind: "Pod", Verbs: []string{"get", "list", "create", "update"}},
		{Name: "pods/status", Namespaced: true, Kind: "Pod", Verbs: []string{"get", "update"}},
		{Name: "secrets", Namespaced: true, Kind: "Secret", Verbs: []string{"get", "list", "create", "update"}},
		{Name: "bindings", Namespaced: true, Kind: "Binding", Verbs: []string{"create"}},
	}}
}

// updating is a policy that denies Pods with the number 7.
func updating(edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	return newPolicy(append([]func(*v1alpha1.WebhookPolicy){func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
		p.Spec.Validations[0].Expression = `object.metadata.labels.number != "7"`
	}}, edits...)...)
}

// guarded is a policy that denies Pods that are new or change.
func guarded() *v1alpha1.WebhookPolicy {
	return updating(saying(`oldObject != null && object == oldObject`), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update,
		}
	})
}

func acting(action admissionregistrationv1.ValidationAction) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", ValidationActions: []admissionregistrationv1.ValidationAction{action}}}
	}
}

// rollingOut adds a rollout from Audit to Deny.
func rollingOut(isFinal bool) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		type actions = []admissionregistrationv1.ValidationAction
		p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{
			Steps: []v1alpha1.RolloutStep{{Name: "s", ValidationActions: actions{admissionregistrationv1.Audit}, MinDurationSeconds: 1}},
			Final: v1alpha1.RolloutFinal{ValidationActions: actions{admissionregistrationv1.Deny}},
		}}}
		if isFinal {
			p.Status.Bindings = []v1alpha1.BindingStatus{{Name: "b", Final: true, Token: "t"}}
		}
	}
}

func saying(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].Expression = expression }
}

func TestImpact(t *testing.T) {
	const limited = "not all existing objects were evaluated (Pods): the limit is 1h0m0s and 5000 objects"
	tests := map[string]struct {
		store     *store
		before    *v1alpha1.WebhookPolicy // nil: none
		after     *v1alpha1.WebhookPolicy
		author    string // admin by default
		within    time.Duration
		want      []string
		wantLists bool
	}{
		"some": {
			store: &store{pods: 512},
			after: updating(),
			want: []string{
				"51 of 512 existing Pods would be denied on their next change: shop/web-7, shop/web-17, shop/web-27, …",
			},
			wantLists: true,
		},
		"one": {
			store:     &store{pods: 8},
			after:     updating(),
			want:      []string{"1 of 8 existing Pods would be denied on their next change: shop/web-7"},
			wantLists: true,
		},
		"none":      {store: &store{pods: 7}, after: updating(), wantLists: true},
		"no object": {after: updating(), wantLists: true},
		"errors": {
			store:     &store{pods: 2},
			after:     updating(saying(`object.metadata.labels.missing == ""`)),
			want:      []string{"2 of 2 existing Pods would be denied on their next change: shop/web-0, shop/web-1"},
			wantLists: true,
		},
		"ignored errors": {
			store: &store{pods: 2},
			after: updating(saying(`object.metadata.labels.missing == ""`),
				func(p *v1alpha1.WebhookPolicy) { p.Spec.FailurePolicy = new(admissionregistrationv1.Ignore) }),
			wantLists: true,
		},
		"an author without permission": {
			store:  &store{pods: 8},
			after:  updating(),
			author: "jane",
			want:   []string{"existing objects were not evaluated (Pods): you may not list them in all namespaces"},
		},
		"no answer about the author": {
			store:  &store{pods: 8},
			after:  updating(),
			author: "unknown",
			want:   []string{"existing objects were not evaluated (Pods): you may not list them in all namespaces"},
		},
		"too many": {store: &store{pods: 6000}, after: updating(), wantLists: true, want: []string{
			"at least 500 of the first 5000 existing Pods would be denied on their next change: shop/web-7, shop/web-17, shop/web-27, …", limited,
		}},
		"large": {
			store: &store{pods: 30, size: 1 << 19},
			after: updating(),
			want: []string{
				"3 of 30 existing Pods would be denied on their next change: shop/web-7, shop/web-17, shop/web-27",
			},
			wantLists: true,
		},
		"too large": {
			store: &store{pods: 1, size: 9 << 20},
			after: updating(),
			want: []string{
				"existing objects were not evaluated: listing them failed: Pods: reading a list: an object has more than 8 MiB of JSON",
			},
			wantLists: true,
		},
		"too slow": {
			store:     &store{pods: 300, delay: time.Hour},
			after:     updating(),
			within:    impactWithin,
			want:      []string{strings.Replace(limited, "1h0m0s", "2s", 1)},
			wantLists: true,
		},
		"forbidden": {
			store:     &store{code: 403},
			after:     updating(),
			wantLists: true,
			want: []string{
				`existing objects were not evaluated (Pods): Ostiary may not list them: allow the verb list in a ClusterRole with ` +
					`the label admission.ostiary.dev/aggregate-to-audit: "true"`,
			},
		},
		"gone": {store: &store{code: 404}, after: updating(), wantLists: true},
		"an error": {
			store:     &store{code: 400},
			after:     updating(),
			want:      []string{"existing objects were not evaluated: listing them failed: Pods: no"},
			wantLists: true,
		},
		"only new Pods": {
			store: &store{pods: 2},
			after: newPolicy(saying("false")),
			want: []string{
				"2 of 2 existing Pods would be denied if they were created again, for example by a rollout: shop/web-0, shop/web-1",
			},
			wantLists: true,
		},
		"Pods of workloads": {store: &store{pods: 12, perSet: 3}, after: guarded(), wantLists: true, want: []string{
			"12 of 12 existing Pods would be denied if they were created again, for example by a rollout: shop/web-0, shop/web-1, shop/web-2, …",
			"new Pods of 4 existing workloads would be denied, for example at their next restart, scaling or drain: " +
				"StatefulSet shop/set-0, StatefulSet shop/set-1, StatefulSet shop/set-2, …",
		}},
		"changed Pods": {
			store: &store{pods: 2},
			after: guarded(),
			want: []string{
				"2 of 2 existing Pods would be denied if they were created again, for example by a rollout: shop/web-0, shop/web-1",
			},
			wantLists: true,
		},
		"the user decides": {
			store: &store{pods: 8},
			after: updating(saying(`request.userInfo.username != "system:anonymous"`)),
			want: []string{
				"existing objects were not evaluated: the policy cannot be evaluated on stored objects: " +
					"spec.validations[0].expression reads request.userInfo",
			},
		},
		"warning": {store: &store{pods: 8}, after: updating(acting(admissionregistrationv1.Warn))},
		"warning, by the user": {
			store: &store{pods: 8},
			after: updating(acting(admissionregistrationv1.Warn), saying(`request.userInfo.username != ""`)),
			want: []string{
				"existing objects that violate the policy are not counted: spec.validations[0].expression reads request.userInfo",
			},
		},
		"auditing Secrets": {after: updating(acting(admissionregistrationv1.Audit), func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"pods", "secrets"}
		}), want: []string{
			`existing objects that violate the policy are not counted (Secrets): Ostiary may not list them: allow the verb ` +
				`list in a ClusterRole with the label admission.ostiary.dev/aggregate-to-audit: "true"`,
		}},
		"another message": {
			store:  &store{pods: 8},
			before: updating(),
			after:  updating(slow, func(p *v1alpha1.WebhookPolicy) { p.Spec.Validations[0].Message = "m" }),
		},
		"another expression": {
			store:     &store{pods: 8},
			before:    updating(saying("true")),
			after:     updating(),
			want:      []string{"1 of 8 existing Pods would be denied on their next change: shop/web-7"},
			wantLists: true,
		},
		"denying now": {
			store:     &store{pods: 8},
			before:    updating(acting(admissionregistrationv1.Warn)),
			after:     updating(acting(admissionregistrationv1.Deny)),
			want:      []string{"1 of 8 existing Pods would be denied on their next change: shop/web-7"},
			wantLists: true,
		},
		"warning now": {store: &store{pods: 8}, before: updating(), after: updating(acting(admissionregistrationv1.Warn))},
		"a rollout at its final action": {
			store:     &store{pods: 8},
			before:    updating(saying("true"), rollingOut(true)),
			after:     updating(rollingOut(true)),
			want:      []string{"1 of 8 existing Pods would be denied on their next change: shop/web-7"},
			wantLists: true,
		},
		"a rollout in a step that audits": {store: &store{pods: 8}, after: updating(rollingOut(false))},
		"lookups": {
			store: &store{pods: 8},
			after: updating(acting(admissionregistrationv1.Deny), func(p *v1alpha1.WebhookPolicy) {
				p.Spec.Lookups = []v1alpha1.Lookup{{
					Name: "others", Resource: v1alpha1.LookupResource{Version: "v1", Resource: "pods"},
					StoredKeys: "[stored.metadata.name]", RequestKeys: "[object.metadata.name]",
				}}
				p.Spec.Validations[0].Expression = "lookups.others.size() == 0"
			}),
			want: []string{
				"existing objects were not evaluated: the lookups of the policy cannot be read yet: v1 Pods are not watched yet",
			},
		},
		"params": {store: &store{pods: 8},
			want: []string{
				"existing objects were not evaluated: the params of the policy cannot be read yet: v1 ConfigMaps are not watched yet",
			}, after: updating(func(p *v1alpha1.WebhookPolicy) {
				p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
				acting(admissionregistrationv1.Deny)(p)
				p.Spec.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{
					Name:                    "n",
					ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
				}
			})},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cmp.Or(tt.store, &store{})
			impact := newImpact(t, s)
			impact.within = cmp.Or(tt.within, impact.within)
			r := New(policy.NewCompiler, resources{ago: servedPods}, func() int { return 2 }, egress.Rule{}, logr.Discard(), impact)
			operation := admissionv1.Create
			if tt.before != nil {
				operation = admissionv1.Update
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			review := request(t, operation, tt.after, tt.before)
			review.UserInfo.Username = cmp.Or(tt.author, "admin")
			response, err := r.Review(ctx, review)
			if err != nil || !response.Allowed {
				t.Fatalf("got %+v, %v; want it allowed", response, err)
			}
			var got []string
			for _, w := range response.Warnings {
				if !strings.HasPrefix(w, "spec.") {
					got = append(got, w)
				}
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if lists := s.lists.Load(); (lists > 0) != tt.wantLists {
				t.Errorf("%d lists, want some: %t", lists, tt.wantLists)
			}
		})
	}
}

// TestOneImpactAtATime: while one policy is evaluated on stored objects, others are reviewed without waiting.
func TestOneImpactAtATime(t *testing.T) {
	s := &store{pods: 8}
	impact := newImpact(t, s)
	r := New(policy.NewCompiler, resources{ago: servedPods}, func() int { return 2 }, egress.Rule{}, logr.Discard(), impact)
	impact.busy.Store(true)
	review := request(t, admissionv1.Create, updating(), nil)
	review.UserInfo.Username = "admin"
	response, err := r.Review(t.Context(), review)
	if err != nil || !response.Allowed || len(response.Warnings) > 0 || s.lists.Load() > 0 {
		t.Errorf("got %+v, %v and %d lists; want no warning and no list", response, err, s.lists.Load())
	}
	impact.busy.Store(false)
	for range 2 {
		if response, err = r.Review(t.Context(), review); err != nil || len(response.Warnings) != 1 {
			t.Errorf("got %+v, %v; want one warning", response, err)
		}
	}
}

// TestImpactLeavesTimeToAnswer: the API server waits 5 s for a review, and less after its other parts.
func TestImpactLeavesTimeToAnswer(t *testing.T) {
	r := New(policy.NewCompiler, resources{ago: servedPods}, func() int { return 2 }, egress.Rule{}, logr.Discard(),
		newImpact(t, &store{pods: 8, delay: time.Hour}))
	ctx, cancel := context.WithTimeout(t.Context(), impactMargin+100*time.Millisecond)
	defer cancel()
	review := request(t, admissionv1.Create, updating(), nil)
	review.UserInfo.Username = "admin"
	response, err := r.Review(ctx, review)
	if err != nil && ctx.Err() == nil || err == nil && !response.Allowed {
		t.Errorf("got %+v, %v; want it allowed", response, err)
	}
}

func TestPlural(t *testing.T) {
	for kind, name := range map[string]string{
		"Pods":            "Pod pods",
		"NetworkPolicies": "NetworkPolicy networkpolicies",
		"Ingresses":       "Ingress ingresses",
		"Endpoints":       "Endpoints endpoints",
	} {
		singular, plural, _ := strings.Cut(name, " ")
		r := resource{GroupVersionResource: schema.GroupVersionResource{Resource: plural}, Kind: schema.GroupVersionKind{Kind: singular}}
		if got := r.plural(); got != kind {
			t.Errorf("got %q, want %q", got, kind)
		}
	}
}
