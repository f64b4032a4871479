package doctor

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// now is the time of every check in these tests.
var now = time.Date(2026, time.June, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// authority is a CA, or a leaf with its key.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue returns a certificate that parent signs, or that signs itself.
func issue(t *testing.T, parent *authority, from, to time.Time, names ...string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: to,
		DNSNames: names, IsCA: len(names) == 0, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.certificate, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{certificate: certificate, key: key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replacer fills in the variables of the manifests.
func replacer(t *testing.T) *strings.Replacer {
	t.Helper()
	bundle := func(from, to time.Duration) string {
		return base64.StdEncoding.EncodeToString(issue(t, nil, now.Add(from), now.Add(to)).pem())
	}
	return strings.NewReplacer(
		"${valid}", bundle(-day, 3000*day), "${other}", bundle(-day, 3000*day), "${expired}", bundle(-400*day, -35*day),
		"${future}", bundle(day, 365*day), "${expiring}", bundle(-350*day, 15*day),
		"${now}", now.Add(-time.Second).Format(metav1.RFC3339Micro), "${hour-ago}", now.Add(-time.Hour).Format(time.RFC3339),
	)
}

// read adds the objects of a file to a dump.
func read(t *testing.T, d *Dump, file string, variables *strings.Replacer) {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(variables.Replace(string(content))), 4096)
	for {
		var u unstructured.Unstructured
		err := decoder.Decode(&u)
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		raw, err := u.MarshalJSON()
		must(t, err)
		must(t, d.Add(u.GroupVersionKind(), raw))
	}
}

func healthy(t *testing.T, variables *strings.Replacer) *Dump {
	t.Helper()
	resource := func(names ...string) []metav1.APIResource {
		var out []metav1.APIResource
		for _, name := range names {
			out = append(out, metav1.APIResource{Name: name})
		}
		return out
	}
	d := &Dump{
		Version: version.MustParse("v1.36.0"),
		Resources: map[schema.GroupVersion][]metav1.APIResource{
			{Version: "v1"}:                                 resource("pods", "nodes", "secrets", "configmaps"),
			{Group: "apps", Version: "v1"}:                  resource("deployments", "statefulsets"),
			{Group: "autoscaling", Version: "v1"}:           resource("horizontalpodautoscalers"),
			{Group: "autoscaling", Version: "v2"}:           resource("horizontalpodautoscalers"),
			{Group: "discovery.k8s.io", Version: "v1"}:      resource("endpointslices"),
			{Group: "authentication.k8s.io", Version: "v1"}: resource("tokenreviews"),
		},
	}
	read(t, d, "testdata/healthy.yaml", variables)
	return d
}

func TestHealthyClusterHasNoFindings(t *testing.T) {
	if got := Check(healthy(t, replacer(t)), now); len(got) > 0 {
		t.Errorf("got %s", text(got))
	}
}

// Each file in testdata/faults adds the fault that the check of its name finds.
func TestCheckFindsFaults(t *testing.T) {
	variables := replacer(t)
	files, err := filepath.Glob("testdata/faults/*.yaml")
	must(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			d := healthy(t, variables)
			read(t, d, file, variables)
			got := Check(d, now)
			if len(got) == 0 || slices.ContainsFunc(got, func(f Finding) bool { return f.Check != name }) {
				t.Errorf("got %s, want findings of %s only", text(got), name)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", text(got))
		})
	}
}

// text returns findings as the golden files have them.
func text(findings []Finding) string {
	var out bytes.Buffer
	for _, f := range findings {
		fmt.Fprintf(&out, "%s %s %s\n  webhook: %s\n  message: %s\n  fix: %s\n  link: %s\n", f.Severity, f.Object, f.Path, f.Webhook, f.Message, f.Fix, f.Link)
	}
	return out.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// TestOwnInstallation has no findings about what Ostiary itself does: its canary, and a replica
// without leader election.
func TestOwnInstallation(t *testing.T) {
	replicas := int32(1)
	labels := map[string]string{"app.kubernetes.io/name": "ostiary"}
	deployment := appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "ostiary", Namespace: "ostiary-system", Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Args: []string{"--leader-elect=false"}}}},
		}},
	}
	canary := registration.PhaseValidate.CanaryConfiguration()
	replica := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "ostiary-replica-ostiary-a", Namespace: "ostiary-system"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("ostiary-a"), LeaseDurationSeconds: new(int32(30)), RenewTime: &metav1.MicroTime{Time: now},
		},
	}
	d := &Dump{
		Leases: []coordinationv1.Lease{replica}, Deployments: []appsv1.Deployment{deployment}, Policies: []v1alpha1.WebhookPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Status:     v1alpha1.WebhookPolicyStatus{Conditions: []metav1.Condition{{Type: conditionReady, Status: metav1.ConditionTrue}}},
		}},
		Services: []corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Name: "ostiary", Namespace: "ostiary-system"},
			Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 443}}},
		}},
		Validating: []admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: canary, Labels: map[string]string{registration.LabelManagedBy: registration.ManagedBy}},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "canary.ostiary.dev", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{
					CABundle: issue(t, nil, now.Add(-day), now.Add(3000*day)).pem(),
					Service:  &admissionregistrationv1.ServiceReference{Namespace: "ostiary-system", Name: "ostiary"},
				},
			}},
		}},
	}
	if got := Check(d, now); len(got) > 0 {
		t.Errorf("got %s", text(got))
	}
	d.Validating[0].Name = "ostiary-validate-p"
	if got := Check(d, now); len(got) != 1 || got[0].Check != "fail-with-one-replica" {
		t.Errorf("another configuration: got %s, want fail-with-one-replica", text(got))
	}
}

// TestCanaryHasNoOrder has no findings about the order or the time limits of the canary, which API servers call for
// Ostiary's own dry-run requests only.
func TestCanaryHasNoOrder(t *testing.T) {
	configuration := func(name string, labels map[string]string, timeout int32) admissionregistrationv1.MutatingWebhookConfiguration {
		return admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: name + ".example.com", TimeoutSeconds: &timeout,
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://webhooks.example.com")},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					},
				}},
				FailurePolicy: new(admissionregistrationv1.Fail), AdmissionReviewVersions: []string{"v1"},
				SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			}},
		}
	}
	owned := map[string]string{registration.LabelManagedBy: registration.ManagedBy}
	both := []string{"order-dependent", "timeouts-exceed-request"}
	for name, tc := range map[string]struct {
		own, other string
		want       []string
	}{
		"a webhook before the canary": {own: registration.PhaseMutate.CanaryConfiguration(), other: "a"},
		"a webhook after the canary":  {own: registration.PhaseMutate.CanaryConfiguration(), other: "z"},
		"before another webhook":      {own: "ostiary-mutate-p", other: "a", want: both},
		"after another webhook":       {own: "ostiary-mutate-p", other: "z", want: both},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Dump{Mutating: []admissionregistrationv1.MutatingWebhookConfiguration{
				configuration(tc.own, owned, 10), configuration(tc.other, nil, 30),
			}}
			var got []string
			for _, f := range Check(d, now) {
				if f.Check != "timeout-long" { // of the other webhook
					got = append(got, f.Check)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoopback has one finding for all webhooks on the machines of API servers.
func TestLoopback(t *testing.T) {
	var d Dump
	for _, name := range []string{"a", "b", "c"} {
		address := "https://127.0.0.1:9443/" + name
		d.Validating = append(d.Validating, admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: name + ".example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &address},
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		})
	}
	got := Check(&d, now)
	const want = `host "127.0.0.1" is each API server's own machine, also for "b.example.com" of ValidatingWebhookConfiguration/b, ` +
		`"c.example.com" of ValidatingWebhookConfiguration/c`
	if len(got) != 1 || got[0].Message != want {
		t.Errorf("got %s, want one finding: %s", text(got), want)
	}
}

func TestHandshake(t *testing.T) {
	root := issue(t, nil, now.Add(-day), now.Add(3000*day))
	other := issue(t, nil, now.Add(-day), now.Add(3000*day))
	const name = "policy.webhooks.svc"
	leaf := func(from, to time.Duration, names ...string) Handshake {
		return Handshake{Pod: "policy-1", Chain: []*x509.Certificate{issue(t, root, now.Add(from), now.Add(to), names...).certificate}}
	}
	for name, tc := range map[string]struct {
		handshake Handshake
		bundle    *authority
		want      string
	}{
		"verifies":          {handshake: leaf(-day, 90*day, name), bundle: root},
		"does not connect":  {handshake: Handshake{Pod: "policy-1", Err: io.ErrUnexpectedEOF}, bundle: root, want: "handshake-failed"},
		"sends no chain":    {handshake: Handshake{Pod: "policy-1"}, bundle: root, want: "handshake-failed"},
		"another name":      {handshake: leaf(-day, 90*day, "policy.default.svc"), bundle: root, want: "certificate-name"},
		"has expired":       {handshake: leaf(-90*day, -day, name), bundle: root, want: "certificate-expired"},
		"expires":           {handshake: leaf(-89*day, day, name), bundle: root, want: "certificate-expires"},
		"another authority": {handshake: leaf(-day, 90*day, name), bundle: other, want: "bundle-does-not-verify"},
	} {
		t.Run(name, func(t *testing.T) {
			d := healthy(t, replacer(t))
			d.Mutating, d.Validating = nil, d.Validating[:1]
			d.Validating[0].Webhooks[0].ClientConfig.CABundle = tc.bundle.pem()
			d.Handshakes = map[Target]Handshake{{Namespace: "webhooks", Name: "policy", Port: 443}: tc.handshake}
			got := ""
			for _, f := range Check(d, now) {
				got += f.Check
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSelectorsThatExcludeEachOther(t *testing.T) {
	selector := func(s string) *metav1.LabelSelector {
		out, err := metav1.ParseToLabelSelector(s)
		must(t, err)
		return out
	}
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"empty":             {a: "", b: "a=1"},
		"other keys":        {a: "a=1", b: "b=2"},
		"equal":             {a: "a=1", b: "a=1"},
		"other values":      {a: "a=1", b: "a=2", want: true},
		"a common value":    {a: "a in (1,2)", b: "a in (2,3)"},
		"no common value":   {a: "a in (1,2)", b: "a in (3,4)", want: true},
		"excluded value":    {a: "a=1", b: "a notin (1,2)", want: true},
		"remaining value":   {a: "a in (1,3)", b: "a notin (1,2)"},
		"value and missing": {a: "a=1", b: "!a", want: true},
		"exists or missing": {a: "a", b: "!a", want: true},
		"missing twice":     {a: "!a", b: "!a"},
		"missing, excluded": {a: "!a", b: "a notin (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := disjoint(selector(tc.a), selector(tc.b)); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
			if got := disjoint(selector(tc.b), selector(tc.a)); got != tc.want {
				t.Errorf("in the other order: got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestCommonResource(t *testing.T) {
	for name, tc := range map[string]struct{ a, b, want string }{
		"equal":                    {"pods", "pods", "pods"},
		"different":                {"pods", "nodes", ""},
		"wildcard":                 {"*", "pods", "pods"},
		"no subresources":          {"*", "pods/status", ""},
		"every resource":           {"*/*", "pods", "pods"},
		"every subresource":        {"pods/*", "*/status", "pods/status"},
		"subresource and resource": {"pods/*", "pods", "pods"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := commonResource(tc.a, tc.b); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A dump without a kind says nothing about its objects.
func TestUnknownKindsCauseNoFindings(t *testing.T) {
	d := healthy(t, replacer(t))
	read(t, d, "testdata/faults/service-missing.yaml", replacer(t))
	d.Services, d.EndpointSlices, d.Deployments, d.Namespaces, d.Resources, d.Version = nil, nil, nil, nil, nil, nil
	for _, f := range Check(d, now) {
		if f.Check != "bundles-differ" { // of two calls of replacer
			t.Errorf("got %v", f)
		}
	}
}

func TestReviewsSinceKubernetes137(t *testing.T) {
	variables := replacer(t)
	for name, tc := range map[string]struct {
		file string
		want string
	}{
		"a rule that names them":   {file: "virtual-resources", want: "API servers since Kubernetes 1.37 call no webhook for tokenreviews.authentication.k8s.io"},
		"a rule that matches them": {file: "blocks-authorization"},
	} {
		t.Run(name, func(t *testing.T) {
			d := healthy(t, variables)
			d.Version = version.MustParse("v1.37.2")
			read(t, d, "testdata/faults/"+tc.file+".yaml", variables)
			got := ""
			for _, f := range Check(d, now) {
				got += f.Message
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Findings link to a section of docs/cli/doctor.md about their check.
func TestEveryCheckIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../../docs/cli/doctor.md")
	must(t, err)
	for _, source := range []string{"bundle.go", "service.go", "handshake.go", "needs.go", "cycles.go", "order.go", "settings.go", "managers.go", "ostiary.go"} {
		code, err := os.ReadFile(source)
		must(t, err)
		for _, found := range checkName.FindAllStringSubmatch(string(code), -1) {
			if name := found[1]; !strings.Contains(string(document), "\n### "+name+"\n") {
				t.Errorf("%s: docs/cli/doctor.md has no section %q", source, name)
			}
		}
	}
}

// checkName finds the name of a check where it is reported.
var checkName = regexp.MustCompile(`(?:Error, |Warning, |Info, |outage\(w, |check: )"([a-z-]+)"`)
