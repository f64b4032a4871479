//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Namespaces of the samples' users: one of production, and one that is nothing special.
const (
	production = "e2e-production"
	plain      = "e2e-plain"
	developer  = "e2e-developer"
)

// sampleCase is a request that a sample answers.
type sampleCase struct {
	name       string
	args       []string // of kubectl; stdin is "-"
	stdin      string
	wantErr    string // "" means that it is allowed
	wantStdout []string
	wantStderr string
}

func sampleCases() []sampleCase {
	as := []string{"--as=" + developer, "--dry-run=server"}
	pod := func(namespace string, more ...string) []string {
		return append(append([]string{"-n", namespace, "run", "web", "-o", "yaml"}, as...), more...)
	}
	deployment := func(name, namespace, labels string, replicas int) string {
		return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s, namespace: %s, labels: {%s}}, spec: {replicas: %d,
selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x, team: shop}}, spec: {containers: [{name: x, image: "example.com/x:1"}]}}}}`,
			name, namespace, labels, replicas)
	}
	create := append([]string{"create", "-f", "-"}, as...)
	return []sampleCase{
		{name: "a pod without a team", args: pod(plain, "--image=example.com/x:1"), wantErr: "add the label team"},
		{name: "a pod with a team", args: pod(plain, "--image=example.com/x:1", "--labels=team=shop"), wantStdout: []string{"team: shop"}},
		{
			name:       "an image that is not pinned",
			args:       pod(plain, "--image=example.com/x", "--labels=team=shop"),
			wantStdout: []string{"team: shop"},
			wantStderr: "pin the image",
		},
		{
			name:       "a pod of production",
			args:       pod(production, "--image=example.com/x:1"),
			wantStdout: []string{"team: shop", "type: RuntimeDefault", "key: example.com/spot"},
		},
		{
			name:    "a pod of another team",
			args:    pod(production, "--image=example.com/x:1", "--labels=team=search"),
			wantErr: "set the label team to shop",
		},
		{name: "too many replicas", args: create, stdin: deployment("x", plain, "team: shop", 6), wantErr: "at most 5 replicas"},
		{name: "as many replicas in production", args: create, stdin: deployment("x", production, "team: shop", 6)},
		{
			name:    "a team that is not listed",
			args:    create,
			stdin:   deployment("x", production, "team: other", 1),
			wantErr: "choose one of shop,search",
		},
		{
			name:       "a privileged pod is let pass, and noted",
			args:       pod(plain, "--image=example.com/x:1", "--labels=team=shop", "--privileged"),
			wantStdout: []string{"privileged: true"},
		},
		{
			name:    "deleting what is protected",
			args:    []string{"-n", plain, "delete", "pvc", "protected", "--as=" + developer},
			wantErr: "remove its label example.com/protected first",
		},
	}
}

// testSamples applies all of config/samples, and then what the documents show;
// each policy becomes Ready, and those of config/samples show what they do.
func (w *world) testSamples(t *testing.T) {
	w.makeNamespace(t, plain, nil)
	w.makeNamespace(t, production, map[string]string{"tier": "prod", "team": "shop", "example.com/spot": "allowed"})
	w.makeDeveloper(t)
	w.hostChecks(t)
	files := w.applySamples(t)
	t.Log(w.do(t, "", "get", "whp", "-o", "wide"))
	for _, tt := range sampleCases() {
		t.Run(tt.name, func(t *testing.T) { w.testSample(t, tt) })
	}
	t.Run("what they note is in the audit log", w.testNotes)
	t.Run("deleted", func(t *testing.T) {
		for _, file := range files {
			w.do(t, "", "delete", "--ignore-not-found", "-f", file)
		}
		eventually(t, func() error {
			r := w.try(t, "", "-n", plain, "run", "web", "--image=example.com/x:1", "--dry-run=server", "--as="+developer)
			return r.err
		})
	})
	t.Run("the policies of the documents are Ready", w.testExamples)
}

// testExamples applies what the documents show, all at once, and no backend: that
// is tested with its webhook.
func (w *world) testExamples(t *testing.T) {
	w.letParamsBeRead(t)
	w.letLookupsBeRead(t)
	var all strings.Builder
	names := map[string]bool{}
	for _, e := range examples(t, "README.md", "docs/policies/*.md", "docs/plugins/*.md", "docs/design/*.md", "docs/operations/*.md") {
		if e.Spec.Backend != nil {
			continue
		}
		if names[e.Name] {
			t.Errorf("two policies of the documents have the name %s", e.Name)
		}
		names[e.Name] = true
		all.WriteString(e.text)
	}
	if len(names) < 20 {
		t.Errorf("%d policies in the documents: this shows nothing", len(names))
	}
	w.do(t, `{apiVersion: v1, kind: Secret, metadata: {name: ostiary-image-policy, namespace: `+namespace+
		`}, stringData: {kubeconfig: '{current-context: a, contexts: [{name: a, context: {cluster: a}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}'}}`, "apply", "-f", "-")
	w.do(t, all.String(), "apply", "-f", "-")
	w.awaitAllReady(t)
	t.Log(w.do(t, "", "get", "whp", "-o", "wide"))
	t.Run("PodSecurity reads the Pods of a namespace whose level rises", w.testPodsAreRead)
	w.do(t, all.String(), "delete", "-f", "-")
	w.do(t, "", "delete", "clusterrole", paramsRole, lookupsRole)
}

// testPodsAreRead finds the request in the audit log: the API server's own plugin
// warns in the same words.
func (w *world) testPodsAreRead(t *testing.T) {
	eventually(t, func() error {
		w.do(t, "", "label", "namespace", plain, "pod-security.kubernetes.io/enforce=restricted", "--dry-run=server")
		asked := newRequestLog(account, nil)
		w.audited(t, asked.see)
		if !asked.used[permission{resource: "pods", verb: "list"}] {
			return fmt.Errorf("Ostiary has not listed Pods")
		}
		return nil
	})
}

// makeDeveloper lets a user do what developers do, and makes what is protected.
func (w *world) makeDeveloper(t *testing.T) {
	t.Helper()
	for _, namespace := range []string{plain, production} {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "developers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: developer}},
		}
		if _, err := w.client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.do(t, `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: protected, namespace: `+plain+
		`, labels: {example.com/protected: "true"}},
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}`, "create", "-f", "-")
}

// applySamples returns when all of them are enforced.
func (w *world) applySamples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(sample("[0-9]*.yaml"))
	if err != nil || len(files) < 11 {
		t.Fatalf("samples %q, %v", files, err)
	}
	if w.checks == "" {
		files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "-external-webhook.yaml") })
	}
	w.letParamsBeRead(t)
	for _, file := range files {
		w.do(t, "", "apply", "-f", file)
	}
	w.awaitAllReady(t)
	return files
}

const (
	paramsRole  = "ostiary-params-configmaps"
	lookupsRole = "ostiary-lookups-documents"
)

// letParamsBeRead returns when Kubernetes has copied the permission.
func (w *world) letParamsBeRead(t *testing.T) {
	t.Helper()
	w.do(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: `+paramsRole+
		`, labels: {admission.ostiary.dev/aggregate-to-params: "true"}},
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]}`, "apply", "-f", "-")
	eventually(t, func() error {
		return w.try(t, "", "auth", "can-i", "list", "configmaps", "-A", "--as="+account+"-params").err
	})
}

// letLookupsBeRead permits what the lookups of the documents read. Their policies wait for it.
func (w *world) letLookupsBeRead(t *testing.T) {
	t.Helper()
	w.do(t, `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: `+lookupsRole+
		`, labels: {admission.ostiary.dev/aggregate-to-lookups: "true"}},
rules: [{apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [list, watch]},
{apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [list, watch]}]}`, "apply", "-f", "-")
}

func (w *world) awaitAllReady(t *testing.T) {
	t.Helper()
	if r := w.try(t, "", "wait", "--for=condition=Ready", "--timeout=180s", "whp", "--all"); r.err != nil {
		t.Fatalf("not every policy is Ready: %s\n%s", r, w.try(t, "", "describe", "whp"))
	}
}

// testSample tries until the answer is right: API servers learn of a webhook a
// moment after it was written.
func (w *world) testSample(t *testing.T, tt sampleCase) {
	eventually(t, func() error {
		r := w.try(t, tt.stdin, tt.args...)
		switch {
		case tt.wantErr == "" && r.err != nil:
			return fmt.Errorf("it was refused: %s", r)
		case tt.wantErr != "" && (r.err == nil || !strings.Contains(r.stderr, tt.wantErr)):
			return fmt.Errorf("%s\nwant it refused, with %q", r, tt.wantErr)
		case !strings.Contains(r.stderr, tt.wantStderr):
			return fmt.Errorf("%s\nwant %q", r, tt.wantStderr)
		}
		for _, want := range tt.wantStdout {
			if !strings.Contains(r.stdout, want) {
				return fmt.Errorf("%s\nwant %q", r, want)
			}
		}
		return nil
	})
}

// testNotes finds the audit annotations of the samples' policies.
func (w *world) testNotes(t *testing.T) {
	want := map[string]string{
		"record-images.images": "example.com/x:1",
		"privileged":           "run the containers without securityContext.privileged",
	}
	eventually(t, func() error { // the log is written behind
		missing := map[string]string{}
		for key, value := range want {
			missing[key] = value
		}
		w.audited(t, func(e auditEvent) {
			for key, value := range e.Annotations {
				for part, text := range missing {
					if strings.Contains(key+value, part) && strings.Contains(value, text) {
						delete(missing, part)
					}
				}
			}
		})
		if len(missing) > 0 {
			return fmt.Errorf("no annotations %v", missing)
		}
		return nil
	})
}

// testMetrics reads the metrics of a replica, as Prometheus does and as a client without rights.
func (w *world) testMetrics(t *testing.T) {
	w.do(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: e2e-scraper, namespace: `+guardedHere+`}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: e2e-scraper}, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: e2e-scraper},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-scraper},
subjects: [{kind: ServiceAccount, name: e2e-scraper, namespace: `+guardedHere+`}]}`, "apply", "-f", "-")
	t.Cleanup(func() {
		run(context.Background(), "", w.kubectl, "delete", "clusterrole/e2e-scraper", "clusterrolebinding/e2e-scraper")
	})
	token := strings.TrimSpace(w.do(t, "", "-n", guardedHere, "create", "token", "e2e-scraper"))
	for name, tt := range map[string]struct {
		token string
		want  int
		holds string
	}{
		"a permitted one": {token: token, want: http.StatusOK, holds: "ostiary_"},
		"without":         {want: http.StatusUnauthorized},
		"a wrong token":   {token: "x", want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, func() error {
				url := w.forward(t, w.pods(t)[0].Name, "8443") // which ends with the first connection that is reset
				status, body, err := get(t, url+"/metrics", tt.token)
				if err == nil && (status != tt.want || !strings.Contains(body, tt.holds)) {
					err = fmt.Errorf("status %d, want %d with %q:\n%.500s", status, tt.want, tt.holds, body)
				}
				return err
			})
		})
	}
}

// forward has kubectl forward a port of a pod for the length of the test.
func (w *world) forward(t *testing.T, pod, port string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), w.kubectl, "-n", namespace, "port-forward", "pod/"+pod, ":"+port)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := make([]byte, 1024)
	n, err := out.Read(line)
	found := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindString(string(line[:n]))
	if found == "" {
		t.Fatalf("kubectl port-forward printed %q, %v", line[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return "https://" + found
}

func get(t *testing.T, url, token string) (int, string, error) {
	t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // it is the way through the API server that is private here
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	return response.StatusCode, string(body), err
}
