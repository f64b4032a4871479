package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// caller calls replicas as API servers do. An API server keeps the connections that it has for a
// webhook, so it may not call some replicas at all.
type caller struct {
	client *http.Client
	place  int
	path   string
}

// newCaller returns a caller of the webhook that validates in a place.
func (r *run) newCaller(i int) *caller {
	configs, err := r.configs(r.Context())
	must(r.T, err)
	for _, c := range configs {
		if registration.PhaseOf(c) == registration.PhaseValidate && slices.Contains(registration.Members(c), place(i)) {
			transport := &http.Transport{TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // nothing secret is sent
			}}
			r.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport, Timeout: requestTimeout}
			return &caller{client: client, place: i, path: *registration.Webhooks(c)[0].ClientConfig.Service.Path}
		}
	}
	r.Fatalf("no configuration is for policy %s", place(i))
	return nil
}

// call asks a replica about the creation of a ConfigMap. The text is what went wrong.
func (c *caller) call(ctx context.Context, m *member, q *request) (outcome, string) {
	q.code = 0
	review := reviewOf("CREATE", "", "ConfigMap", "configmaps", q.name, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": q.name, "namespace": place(c.place)},
	}, nil)
	if fields, ok := review["request"].(map[string]any); ok {
		fields["namespace"] = place(c.place)
	}
	body, err := json.Marshal(review)
	if err != nil {
		return failed, err.Error()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.webhook+c.path+"?timeout=5s", bytes.NewReader(body))
	if err != nil {
		return failed, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return failed, fmt.Sprintf("calling %s: %v", m.name, err)
	}
	defer resp.Body.Close()
	q.code = resp.StatusCode
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return failed, fmt.Sprintf("calling %s: %v", m.name, err)
	}
	return answerOf(m, resp.StatusCode, answer)
}

func answerOf(m *member, code int, answer []byte) (outcome, string) {
	var review admissionv1.AdmissionReview
	err := json.Unmarshal(answer, &review)
	switch {
	case code != http.StatusOK || err != nil || review.Response == nil:
		return failed, fmt.Sprintf("%s answered %d: %.200s", m.name, code, answer)
	case review.Response.Allowed:
		return allowed, "by " + m.name
	}
	return denied, ""
}
