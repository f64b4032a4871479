package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// testMonitoring has a real Prometheus scrape the managers and the API server
// under load, as an installation would, and runs every query of the alerts and
// of the dashboard: each has to give data.
func testMonitoring(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	t.Cleanup(working.Wait)
	t.Cleanup(cancel)
	w.loadPolicies(t)
	for _, work := range []func(context.Context){w.load, w.contest} {
		working.Go(func() { work(ctx) })
	}
	prometheus := w.prometheus(t)
	for name, query := range queries(t) {
		t.Run(name, func(t *testing.T) {
			await(t).Eventually(func() error { return hasData(t.Context(), prometheus, query) }).Should(Succeed())
		})
	}
	t.Run("every metric is documented", func(t *testing.T) { testDocumented(t, prometheus) })
	if *record != "" {
		recordPicture(t, prometheus)
	}
}

// loadPolicies makes policies of every outcome.
func (w *world) loadPolicies(t *testing.T) {
	policies := []*v1alpha1.WebhookPolicy{
		denying("denies"), denying("fails"), denying("warns"), denying("allows"), denying("contested"), denying("mutates"),
		denying("unreachable-closed"), denying("unreachable-open"), denying("looks-up"), denying("looks-up-limits"),
	}
	by := map[string]*v1alpha1.WebhookPolicySpec{}
	for _, p := range policies {
		by[p.Name] = &p.Spec
	}
	by["allows"].Validations[0].Expression = "object.metadata.labels.size() < 100"
	by["fails"].Validations[0].Expression = `object.data.missing == "x"`
	by["fails"].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	by["warns"].Bindings = []v1alpha1.Binding{
		{Name: "all", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}},
	}
	for policy, resource := range map[string]string{
		"looks-up":        "services",
		"looks-up-limits": "limitranges", // which Ostiary may not list
	} {
		by[policy].Lookups = []v1alpha1.Lookup{{
			Name: "same", Resource: v1alpha1.LookupResource{Version: "v1", Resource: resource},
			StoredKeys: "[stored.metadata.name]", RequestKeys: "[object.metadata.name]",
		}}
	}
	by["mutates"].Validations = nil
	by["mutates"].Mutations = []admissionregistrationv1.Mutation{{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"seen": "yes"}}}`},
	}}
	meta := metav1.ObjectMeta{Name: "lookups-of-services"}
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "ostiary-lookups"}},
		},
	} {
		must(t, w.Create(t.Context(), object))
		t.Cleanup(func() { _ = w.Delete(context.Background(), object) })
	}
	serving := &corev1.Secret{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ostiary-serving"}, serving))
	for name, failurePolicy := range map[string]admissionregistrationv1.FailurePolicyType{
		"unreachable-closed": admissionregistrationv1.Fail, "unreachable-open": admissionregistrationv1.Ignore,
	} {
		spec := by[name]
		spec.Validations, spec.FailurePolicy = nil, ptr.To(failurePolicy)
		spec.Backend = &v1alpha1.Backend{
			Type: v1alpha1.BackendValidating, URL: "https://" + cptest.FreeAddress() + "/", CABundle: serving.Data["ca.crt"],
			SideEffects: admissionregistrationv1.SideEffectClassNone, AdmissionReviewVersions: []string{"v1"},
		}
	}
	for _, p := range policies {
		must(t, w.Create(t.Context(), p))
		t.Cleanup(func() { _ = w.Delete(context.Background(), p) })
	}
}

// load asks for what each policy is for, again and again.
func (w *world) load(ctx context.Context) {
	var askers sync.WaitGroup
	for _, policy := range []string{"denies", "fails", "warns", "allows", "mutates", "unreachable-closed", "unreachable-open"} {
		askers.Go(func() {
			for ctx.Err() == nil {
				_ = w.ask(ctx, policy) // what comes of it is in the metrics
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	askers.Wait()
}

// contest undoes what Ostiary repairs.
func (w *world) contest(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, 100*time.Millisecond)
		policy := &v1alpha1.WebhookPolicy{}
		if err := w.Get(ctx, client.ObjectKey{Name: "contested"}, policy); err != nil || len(policy.Status.Webhooks) == 0 {
			continue
		}
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := w.Get(ctx, client.ObjectKey{
			Name: policy.Status.Webhooks[0].Configuration,
		}, config); err != nil || *config.Webhooks[0].FailurePolicy == admissionregistrationv1.Ignore {
			continue
		}
		config.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
		_ = w.Update(ctx, config, client.FieldOwner("other"))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// prometheus runs one with the permissions that an installation gives it, and
// returns its address.
func (w *world) prometheus(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	must(t, w.Create(t.Context(), account))
	// As docs/operations/monitoring.md says.
	if _, stderr, err := kubectl(t, "create", "clusterrolebinding", "ostiary-metrics-prometheus",
		"--clusterrole=ostiary-metrics-reader", "--serviceaccount=default:prometheus"); err != nil {
		t.Fatal(stderr)
	}
	token := &authenticationv1.TokenRequest{}
	must(t, w.SubResource("token").Create(t.Context(), account, token))
	serving := &corev1.Secret{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "ostiary-serving"}, serving))
	api, err := url.Parse(plane.Config().Host)
	must(t, err)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: ostiary
  scheme: https
  authorization: {credentials_file: token}
  tls_config: {ca_file: ostiary.crt}
  static_configs: [{targets: ["%s"]}]
- job_name: apiserver
  scheme: https
  scrape_interval: 5s
  scrape_timeout: 5s
  authorization: {credentials_file: token}
  tls_config: {ca_file: apiserver.crt}
  static_configs: [{targets: ["%s"]}]
`, strings.Join(w.metrics, `", "`), api.Host)
	for name, content := range map[string]string{
		"prometheus.yml": config, "token": token.Status.Token, "ostiary.crt": string(serving.Data["ca.crt"]),
		"apiserver.crt": string(plane.Config().CAData),
	} {
		must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	address := cptest.FreeAddress()
	running, err := plane.Run(t.Context(), controlplane.Program{
		Name: "prometheus", Path: binary(t, "prometheus"),
		Args: func([]int) []string {
			return []string{
				"--config.file=" + filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path=" + filepath.Join(folder, "data"),
				"--web.listen-address=" + address,
			}
		},
		Probes: func([]int) []string { return []string{"http://" + address + "/-/ready"} },
	})
	must(t, err)
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	return address
}

// binary is a program of Prometheus.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", "prometheus", name))
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make prometheus", err)
	}
	return path
}

// interval is what Grafana would set for these scrapes.
const interval = "15s"

// queries are those of every panel and of every alert. A comparison gives
// nothing where all is well, so its truth is asked for instead, and absent gives
// nothing where there is something.
func queries(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	comparison := regexp.MustCompile(` (==|<|>) ([0-9.]+)`)
	absent := regexp.MustCompile(`absent\(([a-z_]+(\{[^}]*\})?)\)`)
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			if strings.Contains(rule.Expr, "ostiary_certificate_source_") {
				continue // these metrics are absent, since Ostiary issues its own certificates here
			}
			out["alert "+rule.Alert] = comparison.ReplaceAllString(absent.ReplaceAllString(rule.Expr, "$1"), " $1 bool $2")
		}
	}
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			out["panel "+p.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", interval)
		}
	}
	if len(out) < 40 {
		t.Fatalf("there are %d queries", len(out))
	}
	return out
}

type answer struct {
	Status, Error string
	Data          struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
			Values [][2]any
		}
	}
}

func ask(ctx context.Context, address, path string, values url.Values) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path+"?"+values.Encode(), nil)
	if err != nil {
		return answer{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	var out answer
	if err := json.Unmarshal(body, &out); err != nil {
		return answer{}, fmt.Errorf("%w in %s", err, body)
	}
	if out.Status != "success" {
		return answer{}, errors.New(out.Error)
	}
	return out, nil
}

func hasData(ctx context.Context, address, query string) error {
	got, err := ask(ctx, address, "/api/v1/query", url.Values{"query": {query}})
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	for _, series := range got.Data.Result {
		text, _ := series.Value[1].(string)
		if n, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(n) {
			return nil
		}
	}
	return fmt.Errorf("%s: no data in %d series", query, len(got.Data.Result))
}

// testDocumented holds what is scraped against docs/reference/metrics.md, which is written
// from the code without running it.
func testDocumented(t *testing.T, address string) {
	document, err := os.ReadFile(root + "/docs/reference/metrics.md")
	must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+address+`/api/v1/targets/metadata?match_target={job="ostiary"}`, nil)
	must(t, err)
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	defer response.Body.Close()
	var found struct {
		Data []struct{ Metric, Type, Help string }
	}
	must(t, json.NewDecoder(response.Body).Decode(&found))
	seen := map[string]bool{}
	for _, m := range found.Data {
		if !strings.HasPrefix(m.Metric, "ostiary_") || seen[m.Metric] {
			continue
		}
		seen[m.Metric] = true
		if !strings.Contains(string(document), "| `"+m.Metric+"` | "+m.Type+" |") {
			t.Errorf("docs/reference/metrics.md has no %s of type %s", m.Metric, m.Type)
		}
	}
	if len(seen) < 25 {
		t.Errorf("%d metrics were scraped", len(seen))
	}
}

// recordPicture waits until there are some minutes of data, and writes them.
func recordPicture(t *testing.T, address string) {
	pause(t.Context(), 2*time.Minute)
	out := map[string]answer{}
	now := time.Now()
	for _, p := range dashboard(t).Panels {
		for _, target := range p.Targets {
			got, err := ask(t.Context(), address, "/api/v1/query_range", url.Values{
				"query": {strings.ReplaceAll(target.Expr, "$__rate_interval", interval)}, "step": {"2"},
				"start": {strconv.FormatInt(now.Add(-2*time.Minute).Unix(), 10)}, "end": {strconv.FormatInt(now.Unix(), 10)},
			})
			must(t, err)
			out[p.Title+"|"+target.LegendFormat] = got
		}
	}
	raw, err := json.Marshal(out)
	must(t, err)
	must(t, os.WriteFile(*record, raw, 0o600))
}
