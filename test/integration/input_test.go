package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// manifest is a policy as a person writes it.
const manifest = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  validations:
  - {expression: '%s', message: bad is not good}
%s`

// Bad input that the API server refuses.
func TestPolicyRefusedByTheAPIServer(t *testing.T) {
	c := install(t)
	c.manager(t)
	var bindings strings.Builder
	bindings.WriteString("  bindings:\n")
	for i := range 101 {
		fmt.Fprintf(&bindings, "  - {name: b%d, validationActions: [Deny]}\n", i)
	}
	tests := map[string]struct {
		more, want string
	}{
		"unknown field": {more: "  validation: []\n", want: `unknown field "spec.validation"`},
		"101 bindings":  {more: bindings.String(), want: "spec.bindings: Too many: 101: must have at most 100 items"},
		"an action that is none": {
			more: "  bindings:\n  - {name: b, validationActions: [Refuse]}\n",
			want: `spec.bindings[0].validationActions[0]: Unsupported value: "Refuse"`,
		},
		"a timeout that is zero":  {more: "  timeoutSeconds: 0\n", want: "spec.timeoutSeconds"},
		"a field of another type": {more: "  failurePolicy: [Fail]\n", want: "spec.failurePolicy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, errOut, err := c.kubectl(t.Context(), fmt.Sprintf(manifest, "refused", "nowhere", "true", tt.more), "apply", "-f", "-")
			if err == nil || !strings.Contains(errOut, tt.want) {
				t.Errorf("kubectl ended with %v and said %q, want %q", err, errOut, tt.want)
			}
		})
	}
}

// Bad input that the compiler refuses: the author learns where, and no other policy is affected.
func TestPolicyThatDoesNotCompile(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	tests := map[string]struct {
		expression string
		want       []string
	}{
		"syntax error": {expression: "object.metadata.name ==", want: []string{"spec.validations[0].expression", "<input>:1:24", "Syntax error"}},
		"type error":   {expression: "size(object.data) + 1", want: []string{"spec.validations[0].expression", "must evaluate to bool"}},
		"unknown name": {
			expression: "objekt.data.size() > 0",
			want:       []string{"spec.validations[0].expression", "<input>:1:1", "undeclared reference to 'objekt'"},
		},
	}
	namespace := c.namespace(t, nil)
	i := 0
	for name, tt := range tests {
		i++
		broken, neighbour := fmt.Sprintf("broken-%d", i), fmt.Sprintf("neighbour-%d", i)
		t.Run(name, func(t *testing.T) {
			both := fmt.Sprintf(manifest, broken, namespace, tt.expression, "") + "---\n" + fmt.Sprintf(manifest, neighbour,
				namespace, strings.ReplaceAll(onlyGood, `'`, `"`), "")
			if _, errOut, err := c.kubectl(t.Context(), both, "apply", "-f", "-"); err != nil {
				t.Fatalf("kubectl: %v: %s", err, errOut)
			}
			t.Cleanup(func() { c.discard(broken, neighbour) })
			p := c.awaitCondition(t, broken, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
			for _, want := range tt.want {
				if got := condition(p, v1alpha1.ConditionAccepted).Message; !strings.Contains(got, want) {
					t.Errorf("message %q, want %q", got, want)
				}
			}
			if got := condition(p, v1alpha1.ConditionRegistered).Status; got != metav1.ConditionFalse {
				t.Errorf("Registered is %s", got)
			}
			c.awaitReady(t, neighbour)
			c.awaitDenied(t, namespace, neighbour)
			must(t, c.probe(t.Context(), namespace, good))
			if err := c.probe(t.Context(), namespace, bad); strings.Contains(err.Error(), broken) {
				t.Errorf("%v names a policy that was never enforced", err)
			}
		})
	}
}

// A slip of the pen does not switch a policy off.
func TestEnforcedPolicyThatIsBroken(t *testing.T) {
	c := install(t)
	c.reviewing(t, false)
	tests := map[string]struct {
		failing       string
		wantRefusal   bool
		wantRefusedOf string
	}{
		"fail":   {failing: "Fail", wantRefusal: true},
		"ignore": {failing: "Ignore"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t, nil)
			policy := "slip-" + name
			c.enforce(t, newPolicy(policy, namespace, failing(failurePolicy(tt.failing))), newPolicy("beside-"+policy, namespace))
			c.awaitDenied(t, namespace, policy)
			c.awaitDenied(t, namespace, "beside-"+policy)

			c.change(t, policy, saying("objekt.data.size() > 0"))
			p := c.awaitCondition(t, policy, v1alpha1.ConditionAccepted, metav1.ConditionFalse)
			if got := condition(p, v1alpha1.ConditionRegistered).Status; got != metav1.ConditionTrue {
				t.Errorf("Registered is %s", got)
			}
			err := c.probe(t.Context(), namespace, good)
			if tt.wantRefusal {
				if !deniedBy(err, policy) || !strings.Contains(err.Error(), "undeclared reference to 'objekt'") {
					t.Errorf("got %v, want a denial with the compiler's message", err)
				}
			} else {
				must(t, err)
			}
			if err := c.probe(t.Context(), namespace, bad); !deniedBy(err, "beside-"+policy) {
				t.Errorf("the policy beside it: got %v, want a denial", err)
			}

			c.change(t, policy, saying(onlyGood))
			c.awaitReady(t, policy)
			must(t, c.probe(t.Context(), namespace, good))
			c.awaitDenied(t, namespace, policy)
		})
	}
}

// Bad input at the port: any client that can connect may send anything.
func TestBadReviews(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("reviews", namespace))
	c.awaitDenied(t, namespace, "reviews")
	port := c.caller(t, c.carrier(t, "reviews"))
	fine := review(t, "v1", namespace, bad)
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	tests := map[string]struct {
		method, contentType string
		body                []byte
		wantCode            int
		want                string
	}{
		"30 MB": {
			body:     bytes.Replace(fine, []byte(`"verdict":"bad"`), []byte(`"verdict":"`+strings.Repeat("x", 30<<20)+`"`), 1),
			wantCode: http.StatusRequestEntityTooLarge,
		},
		"GET": {method: http.MethodGet, wantCode: http.StatusMethodNotAllowed, want: "the method must be POST"},
		"text/plain": {
			contentType: "text/plain",
			body:        fine,
			wantCode:    http.StatusUnsupportedMediaType,
			want:        "the content type must be application/json",
		},
		"truncated": {body: fine[:len(fine)/2], wantCode: http.StatusBadRequest},
		"empty":     {wantCode: http.StatusBadRequest, want: "the body is empty"},
		"no JSON":   {body: noise, wantCode: http.StatusBadRequest, want: "invalid JSON"},
		"no API server sends it": {
			body:     bytes.Replace(fine, []byte(`"operation":"CREATE"`), []byte(`"operation":"DELETE"`), 1),
			wantCode: http.StatusBadRequest,
			want:     "request.object must not be set",
		},
		"of another kind": {
			body:     bytes.Replace(fine, []byte(`"data":`), []byte(`"kind":"Secret","data":`), 1),
			wantCode: http.StatusBadRequest,
			want:     "kind contradicts request.kind",
		},
		"duplicate keys at the top": {
			body:     append(bytes.TrimSuffix(bytes.Clone(fine), []byte("}")), []byte(`,"kind":"AdmissionReview"}`)...),
			wantCode: http.StatusBadRequest,
			want:     "kind",
		},
		"keys of another case": {
			body:     bytes.Replace(fine, []byte(`"request":`), []byte(`"Request":`), 1),
			wantCode: http.StatusBadRequest,
			want:     "request is missing",
		},
		"no request": {
			body:     []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`),
			wantCode: http.StatusBadRequest,
			want:     "request is missing",
		},
		"another kind": {
			body:     bytes.Replace(fine, []byte(`"AdmissionReview"`), []byte(`"Pod"`), 1),
			wantCode: http.StatusBadRequest,
			want:     "kind must be AdmissionReview",
		},
		"another version": {
			body:     review(t, "v2", namespace, bad),
			wantCode: http.StatusBadRequest,
			want:     "apiVersion must be",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.method == "" {
				tt.method = http.MethodPost
			}
			if tt.contentType == "" {
				tt.contentType = "application/json"
			}
			resp, answer, err := port.do(t.Context(), tt.method, tt.contentType, tt.body)
			must(t, err)
			if resp.StatusCode != tt.wantCode || !strings.Contains(string(answer), tt.want) {
				t.Errorf("answered %d %q, want %d %q", resp.StatusCode, answer, tt.wantCode, tt.want)
			}
			if len(answer) > 2048 {
				t.Errorf("the answer has %d bytes", len(answer))
			}
			wantDenied(t, port, "v1", namespace)
		})
	}
	t.Run("v1beta1", func(t *testing.T) { wantDenied(t, port, "v1beta1", namespace) })
	t.Run("unknown group", func(t *testing.T) {
		_, err := (&caller{http: port.http, url: port.url + "-not"}).ask(t.Context(), fine)
		var status *statusError
		if !asStatus(err, &status) || status.code != http.StatusServiceUnavailable {
			t.Errorf("got %v, want 503", err)
		}
	})
}

// wantDenied checks that the server goes on, in the version that it is asked in.
func wantDenied(t *testing.T, port *caller, version, namespace string) {
	t.Helper()
	answer, err := port.ask(t.Context(), review(t, version, namespace, bad))
	must(t, err)
	if answer.APIVersion != "admission.k8s.io/"+version || answer.Kind != "AdmissionReview" ||
		answer.Response.UID != reviewUID || answer.Response.Allowed {
		text, _ := json.Marshal(answer)
		t.Errorf("answer %s, want a denial of %s in %s", text, reviewUID, version)
	}
	if answer.Response.Result == nil || !strings.Contains(answer.Response.Result.Message, "bad is not good") {
		t.Errorf("result %+v, want the policy's message", answer.Response.Result)
	}
	NewWithT(t).Expect(answer.Request).To(BeNil())
}

// Promise: no text of an object prevents reports. API servers read these writes as YAML,
// which does not allow all characters.
func TestTextThatYAMLDoesNotAllow(t *testing.T) {
	c := install(t)
	c.audited(t, "--report-values") // the report quotes the text
	namespace, text := c.namespace(t, nil), "\x7f\u0085\u009f\u2028\ufeff\ufffe\uffff"
	stored := configMap(namespace, bad)
	stored.Data["text"] = text
	must(t, c.Create(t.Context(), stored))

	c.enforce(t, newPolicy("any-text", namespace, onlyIf(`request.name != "`+text+`"`), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations[0].MessageExpression = `"it says " + object.data.text`
	}))
	reports, _ := c.reportClient(t)
	await(t).Eventually(func() (out []string, err error) {
		var list openreportsv1alpha1.ReportList
		err = reports.List(t.Context(), &list, client.InNamespace(namespace))
		for _, r := range list.Items {
			for _, result := range r.Results {
				out = append(out, result.Description)
			}
		}
		return out, err
	}).Should(ContainElement(ContainSubstring(text)))
}
