package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const treeDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trees.decoding.test}
spec:
  group: decoding.test
  names: {kind: Tree, plural: trees}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// Paths of the collections that the bodies are sent to.
const (
	revisionsPath  = "/apis/apps/v1/namespaces/%s/controllerrevisions"
	treesPath      = "/apis/decoding.test/v1/namespaces/%s/trees"
	configMapsPath = "/api/v1/namespaces/%s/configmaps"
)

// revision is a ControllerRevision, whose data the API server keeps as it is sent.
func revision(data string) string {
	return `{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"sent"},"revision":1,"data":` + data + `}`
}

// tree is a custom resource, nested as deep as given.
func tree(depth int) string {
	return `{"apiVersion":"decoding.test/v1","kind":"Tree","metadata":{"name":"sent"},"data":{"verdict":"bad"},"x":` +
		strings.Repeat(`[`, depth-1) + strings.Repeat(`]`, depth-1) + `}`
}

// padded is a ConfigMap of almost the largest size that is valid, of characters that are escaped: six bytes for each.
func padded(verdict string) string {
	pad := strings.Repeat("<", 250<<10)
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sent","annotations":{"pad":"` + pad +
		`"}},"data":{"verdict":"` + verdict + `","pad":"` + pad + pad + pad + pad + `"}}`
}

// send sends a body to the API server as it is.
func (c *cluster) send(t *testing.T, method, path, body string) (code int, answer string) {
	t.Helper()
	sender, err := rest.HTTPClientFor(c.config)
	must(t, err)
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, c.config.Host+path, strings.NewReader(body))
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := sender.Do(request)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	if len(text) > 2048 {
		text = text[:2048]
	}
	return response.StatusCode, string(bytes.ToValidUTF8(text, []byte("?")))
}

// decoding applies a policy for all that the bodies are of.
func (c *cluster) decoding(t *testing.T, namespace string, failurePolicy admissionregistrationv1.FailurePolicyType) (name string) {
	t.Helper()
	name = "decoding-" + strings.ToLower(string(failurePolicy))
	all := func(p *v1alpha1.WebhookPolicy) {
		every := []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		}
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("", "configmaps", every...), rule("apps", "controllerrevisions", every...), rule("decoding.test", "trees", every...),
		}
		p.Spec.Validations[0].Expression = `request.operation == "DELETE" ? oldObject != null : !has(object.data.verdict) || object.data.verdict != "bad"`
	}
	c.enforce(t, newPolicy(name, namespace, all, failing(failurePolicy), within(30)))
	c.awaitDenied(t, namespace, name)
	return name
}

func (c *cluster) defineTrees(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { _, _, _ = c.kubectl(context.Background(), treeDefinition, "delete", "-f", "-") })
	if _, errOut, err := c.kubectl(t.Context(), treeDefinition, "apply", "-f", "-"); err != nil {
		t.Fatalf("kubectl: %v: %s", err, errOut)
	}
	if _, errOut, err := c.kubectl(t.Context(), "", "wait", "--for=condition=Established", "--timeout=60s",
		"crd/trees.decoding.test"); err != nil {
		t.Fatalf("kubectl: %v: %s", err, errOut)
	}
}

// Whatever the API server accepts is decided, whatever failurePolicy says: no body evades a policy.
func TestBodiesOfEveryShapeAreDecided(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.defineTrees(t)
	bodies := map[string]struct{ path, body string }{
		"duplicate members": {revisionsPath, revision(`{"verdict":"good","verdict":"bad"}`)},
		"invalid UTF-8":     {revisionsPath, revision("{\"verdict\":\"bad\",\"x\":\"\xff\"}")},
		"lone surrogate":    {revisionsPath, revision(`{"verdict":"bad","x":"\ud800"}`)},
		"9,999 deep":        {treesPath, tree(9_999)},
		"10,000 deep":       {treesPath, tree(10_000)},
		"padded":            {configMapsPath, padded(bad)},
	}
	for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		namespace := c.namespace(t, nil)
		policy := c.decoding(t, namespace, failurePolicy)
		for name, sent := range bodies {
			t.Run(string(failurePolicy)+"/"+name, func(t *testing.T) {
				code, answer := c.send(t, http.MethodPost, fmt.Sprintf(sent.path, namespace), sent.body)
				if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "WebhookPolicy '"+policy+"'") ||
					!strings.Contains(answer, "bad is not good") {
					t.Errorf("answered %d %s, want a denial by the policy", code, answer)
				}
			})
		}
		t.Run(string(failurePolicy)+"/padded, updated", func(t *testing.T) {
			path := fmt.Sprintf(configMapsPath, namespace)
			if code, answer := c.send(t, http.MethodPost, path, padded(good)); code != http.StatusCreated {
				t.Fatalf("create: answered %d %s", code, answer)
			}
			if code, answer := c.send(t, http.MethodPut, path+"/sent", padded(bad)); code != http.StatusUnprocessableEntity ||
				!strings.Contains(answer, "bad is not good") {
				t.Errorf("update: answered %d %s, want a denial by the policy", code, answer)
			}
			if code, answer := c.send(t, http.MethodPut, path+"/sent", padded("fine")); code != http.StatusOK {
				t.Errorf("update: answered %d %s, want it allowed", code, answer)
			}
			if code, answer := c.send(t, http.MethodDelete, path+"/sent", ""); code != http.StatusOK {
				t.Errorf("delete: answered %d %s, want it allowed", code, answer)
			}
		})
	}
}

// What cannot be decoded is denied by bindings that deny, reported by the others, and can always be deleted.
func TestUnreadableObjects(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.defineTrees(t)
	// It takes eighty times as much memory as it has bytes, more than one request may have.
	const depth = 90
	nested := strings.Repeat(`{"":`, depth) + `0` + strings.Repeat(`}`, depth)
	costly := "[" + strings.TrimSuffix(strings.Repeat(nested+",", 1_400_000/(len(nested)+1)), ",") + "]"
	unreadable, notRead := revision(`{"verdict":`+costly+`}`), revision(`{"verdict":"bad","x":`+costly+`}`)
	for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		t.Run(string(failurePolicy), func(t *testing.T) {
			namespace := c.namespace(t, nil)
			path := fmt.Sprintf(revisionsPath, namespace)
			if code, answer := c.send(t, http.MethodPost, path, unreadable); code != http.StatusCreated {
				t.Fatalf("create without a policy: answered %d %s", code, answer)
			}
			policy := c.decoding(t, namespace, failurePolicy)
			code, answer := c.send(t, http.MethodPost, path, strings.Replace(unreadable, "sent", "another", 1))
			if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "WebhookPolicy '"+policy+"' denied request: unreadable object") {
				t.Errorf("create: answered %d %s, want a denial", code, answer)
			}
			code, answer = c.send(t, http.MethodPost, path, strings.Replace(notRead, "sent", "another", 1))
			if code != http.StatusUnprocessableEntity || !strings.Contains(answer, "bad is not good") {
				t.Errorf("create with a costly part that is not read: answered %d %s, want the decision of the policy", code, answer)
			}
			must(t, c.kube(t, "delete", "namespace", namespace, "--wait=false"))
			await(t).Eventually(func() int {
				code, _ := c.send(t, http.MethodGet, "/api/v1/namespaces/"+namespace, "")
				return code
			}).Should(Equal(http.StatusNotFound), "the namespace does not terminate")
		})
	}
}

func (c *cluster) kube(t *testing.T, args ...string) error {
	t.Helper()
	_, errOut, err := c.kubectl(t.Context(), "", args...)
	if err != nil {
		return fmt.Errorf("kubectl: %w: %s", err, errOut)
	}
	return nil
}
