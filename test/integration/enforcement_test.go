package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// The engines of the comparison, as the label that selects who decides.
const (
	engineLabel = "engine"
	native      = "native"
	ours        = "ostiary"
	caseLabel   = "case"
)

// sameCase is a policy, said once for both engines. It is asked about a
// ConfigMap with data {"verdict": "bad"}.
type sameCase struct {
	validation      v1alpha1.Validation
	variables       []admissionregistrationv1.Variable
	matchConditions []admissionregistrationv1.MatchCondition
	failurePolicy   admissionregistrationv1.FailurePolicyType
	actions         []admissionregistrationv1.ValidationAction

	// What comes of it, so that two engines that do nothing are not taken for equal.
	wantCode     int32 // 0: it passes
	wantWarnings int
	wantAudit    bool
}

func sameCases() map[string]sameCase {
	deny := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	warn := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	audit := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
	says := func(message string, reason metav1.StatusReason) v1alpha1.Validation {
		return v1alpha1.Validation{Expression: onlyGood, Message: message, Reason: &reason}
	}
	broken := v1alpha1.Validation{Expression: `object.data.missing == "x"`}
	return map[string]sameCase{
		"default-reason":  {validation: v1alpha1.Validation{Expression: onlyGood, Message: "bad is not good"}, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"invalid":         {validation: says("bad is not good", metav1.StatusReasonInvalid), actions: deny, wantCode: http.StatusUnprocessableEntity},
		"forbidden":       {validation: says("bad is forbidden", metav1.StatusReasonForbidden), actions: deny, wantCode: http.StatusForbidden},
		"too-large":       {validation: says("too much of it", metav1.StatusReasonRequestEntityTooLarge), actions: deny, wantCode: http.StatusRequestEntityTooLarge},
		"no-message":      {validation: v1alpha1.Validation{Expression: onlyGood}, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"with-expression": {validation: v1alpha1.Validation{Expression: onlyGood, Message: "plain", MessageExpression: `"not " + object.data.verdict + " for " + request.userInfo.username`}, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"bad-message":     {validation: v1alpha1.Validation{Expression: onlyGood, Message: "plain", MessageExpression: `string(object.data.missing)`}, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"with-variable": {
			variables:  []admissionregistrationv1.Variable{{Name: "verdict", Expression: "object.data.verdict"}},
			validation: v1alpha1.Validation{Expression: `variables.verdict != "bad"`, MessageExpression: `"verdict " + variables.verdict`},
			actions:    deny, wantCode: http.StatusUnprocessableEntity,
		},
		"namespace":      {validation: v1alpha1.Validation{Expression: `namespaceObject.metadata.labels["verdict"] != "bad"`, Message: "a bad namespace"}, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"error-fail":     {validation: broken, actions: deny, wantCode: http.StatusUnprocessableEntity},
		"error-ignore":   {validation: broken, failurePolicy: admissionregistrationv1.Ignore, actions: deny},
		"not-matched":    {validation: says("no", metav1.StatusReasonForbidden), matchConditions: []admissionregistrationv1.MatchCondition{{Name: "no", Expression: `object.data.verdict != "bad"`}}, actions: deny},
		"matched":        {validation: says("yes", metav1.StatusReasonForbidden), matchConditions: []admissionregistrationv1.MatchCondition{{Name: "yes", Expression: `object.data.verdict == "bad"`}}, actions: deny, wantCode: http.StatusForbidden},
		"warn":           {validation: says("bad, but so what", metav1.StatusReasonForbidden), actions: warn, wantWarnings: 1},
		"audit":          {validation: says("bad, for the record", metav1.StatusReasonForbidden), actions: audit, wantAudit: true},
		"deny-and-audit": {validation: says("bad, twice", metav1.StatusReasonForbidden), actions: append(slices.Clone(deny), audit...), wantCode: http.StatusForbidden, wantAudit: true},
		"warn-and-audit": {validation: says("bad, twice", metav1.StatusReasonForbidden), actions: append(slices.Clone(warn), audit...), wantWarnings: 1, wantAudit: true},
		"quotes":         {validation: says("say \"no\" to <bad> 'things' — ünïcode", metav1.StatusReasonForbidden), actions: append(slices.Clone(warn), audit...), wantWarnings: 1, wantAudit: true},
	}
}

func (s sameCase) match(name, engine string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{engineLabel: engine}},
		ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{caseLabel: name}},
		ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{rule("", "configmaps", admissionregistrationv1.Create)},
	}
}

func (s sameCase) failure() *admissionregistrationv1.FailurePolicyType {
	if s.failurePolicy == "" {
		return nil
	}
	return ptr.To(s.failurePolicy)
}

// policies are the case in both forms, under one name.
func (s sameCase) policies(name string) (*v1alpha1.WebhookPolicy, []client.Object) {
	policy := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WebhookPolicySpec{
		MatchConstraints: s.match(name, ours),
		MatchConditions:  s.matchConditions,
		Variables:        s.variables,
		Validations:      []v1alpha1.Validation{s.validation},
		FailurePolicy:    s.failure(),
		Bindings:         []v1alpha1.Binding{{Name: name, ValidationActions: s.actions}},
	}}
	return policy, []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: s.match(name, native),
			MatchConditions:  s.matchConditions,
			Variables:        s.variables,
			Validations:      []admissionregistrationv1.Validation{s.validation.Native()},
			FailurePolicy:    s.failure(),
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: s.actions,
		}},
	}
}

// outcome is what a client and an auditor see of one request.
type outcome struct {
	Code     int32
	Reason   metav1.StatusReason
	Message  string
	Details  *metav1.StatusDetails
	Warnings []string
	Audit    string // annotation validation_failure
}

// Promise: same answer as Kubernetes.
func TestSameAnswerAsKubernetes(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespaces := map[string]string{}
	for _, engine := range []string{native, ours} {
		namespaces[engine] = c.namespace(t, map[string]string{engineLabel: engine, "verdict": bad})
	}
	cases := sameCases()
	for name, tt := range cases {
		policy, natives := tt.policies(name)
		c.apply(t, policy)
		for _, object := range natives {
			must(t, c.Create(t.Context(), object))
			t.Cleanup(func() { _ = c.Delete(t.Context(), object) })
		}
	}
	for name := range cases {
		c.awaitReady(t, name)
	}
	// The engines begin at their own time: first those cases that show that they have.
	effects := func(name string) bool {
		tt := cases[name]
		return tt.wantCode != 0 || tt.wantWarnings > 0 || tt.wantAudit
	}
	for _, visible := range []bool{true, false} {
		for name, tt := range cases {
			if effects(name) != visible {
				continue
			}
			t.Run(name, func(t *testing.T) {
				got := map[string]outcome{}
				for engine, namespace := range namespaces {
					await(t).Eventually(func() error {
						got[engine] = c.outcome(t, namespace, name)
						return tt.check(got[engine])
					}).Should(Succeed(), "%s", engine)
				}
				if diff := cmp.Diff(got[native], got[ours]); diff != "" {
					t.Errorf("the native engine (-) and Ostiary (+):\n%s", diff)
				}
			})
		}
	}
}

func (s sameCase) check(got outcome) error {
	if got.Code != s.wantCode || len(got.Warnings) != s.wantWarnings || (got.Audit != "") != s.wantAudit {
		return fmt.Errorf("got %+v, want code %d, %d warnings, audit annotation: %t", got, s.wantCode, s.wantWarnings, s.wantAudit)
	}
	return nil
}

func (c *cluster) outcome(t *testing.T, namespace, name string) outcome {
	t.Helper()
	warnings := &recorder{}
	config := rest.CopyConfig(c.config)
	config.WarningHandler = warnings
	asker, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	start := c.audit.mark(t)
	object := configMap(namespace, bad)
	object.Labels = map[string]string{caseLabel: name}
	err = asker.Create(t.Context(), object, client.DryRunAll)
	out := outcome{Audit: c.audit.failure(t, start, namespace)}
	for _, w := range warnings.texts {
		out.Warnings = append(out.Warnings, fromPolicy(aboutObject.ReplaceAllString(w, "")))
	}
	if err == nil {
		return out
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	s := status.Status()
	out.Code, out.Reason, out.Message, out.Details = s.Code, s.Reason, fromPolicy(s.Message), s.Details
	if out.Details != nil {
		for i := range out.Details.Causes {
			out.Details.Causes[i].Message = fromPolicy(out.Details.Causes[i].Message)
			out.Details.Causes[i].Field = "" // Ostiary names the object, so that kubectl prints the cause well
		}
	}
	return out
}

// fromPolicy is a message without what differs by engine: what stands before
// the policy's name.
func fromPolicy(message string) string {
	if _, rest, ok := strings.Cut(message, "Policy '"); ok {
		return "Policy '" + rest
	}
	return message
}

// failure is the annotation of the first request in a namespace since a mark.
func (l *auditLog) failure(t *testing.T, since int64, namespace string) string {
	t.Helper()
	l.mark(t)
	events, _ := l.read(t, since)
	for _, e := range events {
		if e.ObjectRef.Namespace != namespace || e.ObjectRef.Name != "probe" {
			continue
		}
		for key, value := range e.Annotations {
			if strings.HasSuffix(key, "/validation_failure") {
				return value
			}
		}
	}
	return ""
}

// recorder keeps the warnings that a client gets.
type recorder struct {
	mu    sync.Mutex
	texts []string
}

func (r *recorder) HandleWarningHeader(_ int, _, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, text)
}

// What a person sees at the terminal.
func TestKubectlShowsDenialsAndWarnings(t *testing.T) {
	c := install(t)
	c.manager(t)
	refused, warned := c.namespace(t, nil), c.namespace(t, nil)
	c.enforce(t,
		newPolicy("kubectl-deny", refused),
		newPolicy("kubectl-warn", warned, acting(admissionregistrationv1.Warn)),
	)
	tests := map[string]struct {
		namespace, want string
		wantErr         bool
	}{
		"deny": {namespace: refused, wantErr: true, want: "denied the request: WebhookPolicy 'kubectl-deny' denied request: bad is not good"},
		"warn": {namespace: warned, want: "Warning: Validation failed for WebhookPolicy 'kubectl-warn' with binding 'all': " +
			"bad is not good (ConfigMap " + warned + "/probe)\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			await(t).Eventually(func() error {
				_, errOut, err := c.kubectl(t.Context(), "", "create", "configmap", "probe", "-n", tt.namespace, "--from-literal=verdict=bad", "--dry-run=server")
				if (err != nil) != tt.wantErr || !strings.Contains(errOut, tt.want) {
					return fmt.Errorf("kubectl ended with %w and said %q, want %q", err, errOut, tt.want)
				}
				return nil
			}).Should(Succeed())
		})
	}
}

// A request that several policies refuse hears of all of them, in order.
func TestEveryDenialIsNamed(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	names := []string{"denials-a", "denials-b", "denials-c"}
	for _, name := range names {
		c.enforce(t, newPolicy(name, namespace))
	}
	for _, name := range names {
		c.awaitDenied(t, namespace, name)
	}
	err := c.probe(t.Context(), namespace, bad)
	at := 0
	for _, name := range names {
		i := strings.Index(err.Error()[at:], "WebhookPolicy '"+name+"'")
		if i < 0 {
			t.Fatalf("%q does not name %s after those before it", err, name)
		}
		at += i
	}
	must(t, c.probe(t.Context(), namespace, good))
	must(t, c.probe(t.Context(), corev1.NamespaceDefault, bad))
}
