package integration

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// answer is what the API server says to a request, without the names of the
// engine that decided.
type answer struct {
	Code     int32 // 0: allowed
	Reason   metav1.StatusReason
	Message  string
	Warnings []string
	Failures []string // in the audit log
}

// asker sends requests and keeps the warnings.
type asker struct {
	client.Client
	mu       sync.Mutex
	warnings []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (a *asker) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, text)
}

func (c *cluster) asker(t *testing.T) *asker {
	t.Helper()
	a := &asker{}
	config := rest.CopyConfig(c.config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, a
	var err error
	a.Client, err = client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	return a
}

var (
	engine   = regexp.MustCompile(`(?s)^.*?(?:WebhookPolicy|ValidatingAdmissionPolicy|MutatingAdmissionPolicy) '`)
	mutation = regexp.MustCompile(`spec\.mutations\[\d+\]: `) // only Ostiary says which
	// aboutObject is the object that a warning of Ostiary ends with.
	aboutObject = regexp.MustCompile(` \((a )?\S+( in)?( \S+)?\)$`)
)

func plain(message string) string {
	return mutation.ReplaceAllString(engine.ReplaceAllString(message, "policy '"), "")
}

// ask sends a dry run. The failures are left to the audit log's reader.
func (a *asker) ask(t *testing.T, object client.Object) answer {
	t.Helper()
	a.mu.Lock()
	a.warnings = nil
	a.mu.Unlock()
	err := a.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	var out answer
	for _, w := range a.warnings {
		out.Warnings = append(out.Warnings, plain(aboutObject.ReplaceAllString(w, "")))
	}
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		out.Code, out.Reason, out.Message = status.Status().Code, status.Status().Reason, plain(status.Status().Message)
	case err != nil:
		t.Fatalf("asking: %v", err)
	}
	return out
}

// failures are the failed validations that the audit log has of the last
// request for an object since a mark.
func (l *auditLog) failures(t *testing.T, since int64, object client.Object) []string {
	t.Helper()
	l.mark(t)
	events, _ := l.read(t, since)
	var out []string
	for _, e := range events {
		if e.ObjectRef.Name != object.GetName() || e.ObjectRef.Namespace != object.GetNamespace() {
			continue
		}
		out = nil
		for key, value := range e.Annotations {
			if !strings.HasSuffix(key, "/validation_failure") {
				continue
			}
			var list []struct {
				Message string `json:"message"`
			}
			must(t, json.Unmarshal([]byte(value), &list))
			for _, f := range list {
				out = append(out, f.Message)
			}
		}
	}
	return out
}

// native gives the API server the same policy in its own kinds, for another
// namespace.
func (c *cluster) native(t *testing.T, p *v1alpha1.WebhookPolicy, namespace string) {
	t.Helper()
	constraints := p.Spec.MatchConstraints.DeepCopy()
	constraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	meta := metav1.ObjectMeta{Name: p.Name}
	binding := p.Spec.Bindings[0]
	if p.Spec.Mutates() {
		c.create(t, &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: p.Spec.ParamKind, MatchConstraints: constraints, MatchConditions: p.Spec.MatchConditions, Variables: p.Spec.Variables,
			Mutations: p.Spec.Mutations, FailurePolicy: p.Spec.FailurePolicy,
			ReinvocationPolicy: ptr.Deref(p.Spec.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
		}})
		c.create(t, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, ParamRef: binding.ParamRef,
			}})
		return
	}
	c.create(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: p.Spec.ParamKind, MatchConstraints: constraints, MatchConditions: p.Spec.MatchConditions, Variables: p.Spec.Variables,
			Validations: p.Spec.NativeValidations(), FailurePolicy: p.Spec.FailurePolicy,
		}})
	c.create(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: p.Name, ParamRef: binding.ParamRef, ValidationActions: binding.ValidationActions,
		}})
}
