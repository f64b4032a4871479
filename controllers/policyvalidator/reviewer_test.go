package policyvalidator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
)

type lists = map[schema.GroupVersion][]metav1.APIResource

// resources serve what they say, now and a moment ago.
type resources struct{ ago, now func() lists }

func (r resources) Served() lists                     { return r.ago() }
func (r resources) ServedNow(_ context.Context) lists { return r.now() }

func unknown() lists { return nil }

func newReviewer(r resources, replicas int) *Reviewer {
	return New(policy.NewCompiler, r, func() int { return replicas }, egress.Rule{}, logr.Discard(), nil)
}

func newPolicy(edits ...func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []v1alpha1.Validation{{Expression: "true"}},
		},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func broken(p *v1alpha1.WebhookPolicy)   { p.Spec.Validations[0].Expression = "object.metadata.name ==" }
func labelled(p *v1alpha1.WebhookPolicy) { p.Labels = map[string]string{"a": "b"} }
func finalized(p *v1alpha1.WebhookPolicy) {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	p.Finalizers = nil
}
func slow(p *v1alpha1.WebhookPolicy) { p.Spec.TimeoutSeconds = new(int32(30)) }

func request(t *testing.T, operation admissionv1.Operation, object, oldObject *v1alpha1.WebhookPolicy) *admissionv1.AdmissionRequest {
	t.Helper()
	raw := func(p *v1alpha1.WebhookPolicy) runtime.RawExtension {
		if p == nil {
			return runtime.RawExtension{}
		}
		out, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: out}
	}
	return &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: "WebhookPolicy"},
		Operation: operation, Object: raw(object), OldObject: raw(oldObject),
	}
}

const tooSlow = "spec.timeoutSeconds: requests wait up to 30 seconds while Ostiary does not answer, longer than many " +
	"clients do; choose 10 or less"

func TestReview(t *testing.T) {
	const syntax = `spec.validations[0].expression: Invalid value: "object.metadata.name ==": compilation failed: ERROR: ` +
		`<input>:1:24: Syntax error: mismatched input '<EOF>'`
	tests := map[string]struct {
		operation         admissionv1.Operation
		object, oldObject *v1alpha1.WebhookPolicy
		wantRefusal       string // prefix
		wantWarnings      []string
	}{
		"good":   {operation: admissionv1.Create, object: newPolicy()},
		"risky":  {operation: admissionv1.Create, object: newPolicy(slow), wantWarnings: []string{tooSlow}},
		"broken": {operation: admissionv1.Create, object: newPolicy(broken), wantRefusal: syntax},
		"changed to broken": {
			operation:   admissionv1.Update,
			object:      newPolicy(broken),
			oldObject:   newPolicy(),
			wantRefusal: syntax,
		},
		"broken in another way": {
			operation:   admissionv1.Update,
			object:      newPolicy(broken, slow),
			oldObject:   newPolicy(broken),
			wantRefusal: syntax,
		},
		"mended": {operation: admissionv1.Update, object: newPolicy(), oldObject: newPolicy(broken)},
		"changed to risky": {
			operation:    admissionv1.Update,
			object:       newPolicy(slow),
			oldObject:    newPolicy(),
			wantWarnings: []string{tooSlow},
		},
		"risky as before": {
			operation: admissionv1.Update,
			object:    newPolicy(slow, labelled),
			oldObject: newPolicy(slow),
		},
		"broken as before, with a label": {
			operation: admissionv1.Update,
			object:    newPolicy(broken, labelled),
			oldObject: newPolicy(broken),
		},
		"broken, let go of while deleted": {
			operation: admissionv1.Update,
			object:    newPolicy(broken, finalized),
			oldObject: newPolicy(broken),
		},
		"broken while it is being deleted": {
			operation: admissionv1.Update,
			object:    newPolicy(broken, slow, finalized),
			oldObject: newPolicy(broken),
		},
		"a deletion, which is never sent": {operation: admissionv1.Delete, oldObject: newPolicy(broken)},
	}
	r := newReviewer(resources{ago: unknown}, 0)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := r.Review(t.Context(), request(t, tt.operation, tt.object, tt.oldObject))
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed != (tt.wantRefusal == "") {
				t.Errorf("allowed is %t: %+v", got.Allowed, got.Result)
			}
			if diff := cmp.Diff(tt.wantWarnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if tt.wantRefusal == "" {
				return
			}
			s := got.Result
			if s.Code != http.StatusUnprocessableEntity || s.Reason != metav1.StatusReasonInvalid || s.Status != metav1.StatusFailure ||
				!strings.HasPrefix(s.Message, `WebhookPolicy.admission.ostiary.dev "p" is invalid: `+tt.wantRefusal) {
				t.Errorf("got %+v", s)
			}
			want := &metav1.StatusDetails{Name: "p", Group: v1alpha1.GroupName, Kind: "WebhookPolicy", Causes: []metav1.StatusCause{{
				Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.validations[0].expression", Message: s.Details.Causes[0].Message,
			}}}
			if diff := cmp.Diff(want, s.Details); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReviewOfSomethingElse(t *testing.T) {
	good := request(t, admissionv1.Create, newPolicy(), nil)
	other, status, garbage, nothing := *good, *good, *good, *good
	other.Kind.Kind = "Pod"
	status.SubResource = "status"
	garbage.Object.Raw = []byte(`{"spec": []}`)
	nothing.Object.Raw = nil
	for name, req := range map[string]*admissionv1.AdmissionRequest{
		"another kind":  &other,
		"a subresource": &status,
		"garbage":       &garbage,
		"nothing":       &nothing,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newReviewer(resources{ago: unknown}, 0).Review(t.Context(), req)
			var bad interface{ BadRequest() bool }
			if got != nil || !errors.As(err, &bad) || !bad.BadRequest() {
				t.Errorf("Review() = %v, %v; want a bad request", got, err)
			}
		})
	}
}

// What is not served is looked for again before anybody is warned: a kind may
// have been installed together with the policy for it.
func TestNewlyServedResource(t *testing.T) {
	core := schema.GroupVersion{Version: "v1"}
	without, with := lists{core: {{Name: "nodes"}}}, lists{core: {{Name: "nodes"}, {Name: "pods"}}}
	tests := map[string]struct {
		ago, now     lists
		wantAsked    bool
		wantWarnings int
	}{
		"known":            {ago: with},
		"new":              {ago: without, now: with, wantAsked: true},
		"not there":        {ago: without, now: without, wantAsked: true, wantWarnings: 1},
		"cannot be looked": {ago: without, now: nil, wantAsked: true},
		"unknown":          {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := false
			r := newReviewer(resources{ago: func() lists { return tt.ago }, now: func() lists { asked = true; return tt.now }}, 2)
			got, err := r.Review(t.Context(), request(t, admissionv1.Create, newPolicy(), nil))
			if err != nil || !got.Allowed || len(got.Warnings) != tt.wantWarnings || asked != tt.wantAsked {
				t.Errorf("Review() = %+v, %v; asked: %t", got, err, asked)
			}
		})
	}
}

// A compilation that takes too long holds its place, and nothing else.
func TestReviewIsBounded(t *testing.T) {
	entered, release := make(chan struct{}, 1000), make(chan struct{})
	r := newReviewer(resources{ago: func() lists { entered <- struct{}{}; <-release; return nil }}, 0)
	req := request(t, admissionv1.Create, newPolicy(), nil)
	impatient, cancel := context.WithCancel(t.Context())
	results := make(chan error, 1000)
	ask := func() {
		_, err := r.Review(impatient, req)
		results <- err
	}
	parallel, places := cap(r.compiling), cap(r.accepted)
	for range places {
		go ask()
	}
	g := NewWithT(t)
	g.Eventually(func() int { return len(r.accepted) }).WithTimeout(time.Minute).Should(Equal(places))
	g.Eventually(func() int { return len(entered) }).WithTimeout(time.Minute).Should(Equal(parallel))

	var busy interface{ RetryAfter() time.Duration }
	if _, err := r.Review(t.Context(), req); !errors.As(err, &busy) || busy.RetryAfter() <= 0 {
		t.Errorf("beyond the limit: %v, want another try", err)
	}
	cancel()
	for range places {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
	}
	if got := len(entered); got != parallel {
		t.Errorf("%d are compiled at a time, want %d", got, parallel)
	}
	if got := len(r.compiling); got != parallel {
		t.Errorf("%d places are taken by what is still compiled, want %d", got, parallel)
	}
	close(release)
	g.Eventually(func() int { return len(r.accepted) + len(r.compiling) }).WithTimeout(time.Minute).Should(BeZero())
	if got, err := r.Review(t.Context(), req); err != nil || !got.Allowed {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}

func TestReviewThatPanics(t *testing.T) {
	r := newReviewer(resources{ago: func() lists { panic("secret") }}, 0)
	for range cap(r.accepted) + 1 { // no place is lost
		got, err := r.Review(t.Context(), request(t, admissionv1.Create, newPolicy(), nil))
		if got != nil || err == nil || strings.Contains(err.Error(), "secret") {
			t.Fatalf("Review() = %v, %v", got, err)
		}
	}
}

func TestRefusalIsBounded(t *testing.T) {
	tests := map[string]struct {
		errors, size int
		wantCauses   int
		wantLast     string
	}{
		"many":  {errors: 100, size: 10, wantCauses: maxErrors + 1, wantLast: "80 more problems were left out"},
		"large": {errors: 15, size: 4000, wantCauses: 8, wantLast: "8 more problems were left out"},
		"one":   {errors: 1, size: 4000, wantCauses: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(func(p *v1alpha1.WebhookPolicy) {
				p.Spec.Validations = nil
				for i := range tt.errors {
					text := fmt.Sprintf("nonsense%d == '%s'", i, strings.Repeat("x", tt.size))
					p.Spec.Validations = append(p.Spec.Validations, v1alpha1.Validation{Expression: text})
				}
			})
			got, err := newReviewer(resources{ago: unknown}, 0).Review(t.Context(), request(t, admissionv1.Create, p, nil))
			if err != nil || got.Allowed {
				t.Fatalf("Review() = %v, %v", got, err)
			}
			causes := got.Result.Details.Causes
			if len(causes) != tt.wantCauses || len(got.Result.Message) > 2*maxErrorText {
				t.Errorf("%d causes, want %d; a message of %d bytes", len(causes), tt.wantCauses, len(got.Result.Message))
			}
			if last := causes[len(causes)-1].Message; tt.wantLast != "" && (last != tt.wantLast ||
				!strings.HasSuffix(got.Result.Message, tt.wantLast)) {
				t.Errorf("last cause %q", last)
			}
		})
	}
}
