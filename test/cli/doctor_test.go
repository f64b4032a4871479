// Package cli tests kubectl-ostiary on a real API server.
package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	doctorData = "../../internal/cli/doctor/testdata/"
	// minFaults is the number of faults that the doctor has to find on a real API server.
	minFaults = 20
)

// The doctor finds each planted fault on a real API server, and nothing without them.
// Without controllers, nothing else writes the objects.
func TestDoctorFindsPlantedFaults(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: variables(t)}
	p.plant(t, p.read(t, doctorData+"healthy.yaml"))
	if got := examine(t, cp.Config()); len(got) > 0 {
		t.Fatalf("a healthy cluster: got %v, want no findings", got)
	}
	files, err := filepath.Glob(doctorData + "faults/*.yaml")
	must(t, err)
	found := 0
	for _, file := range files {
		check := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if why := notOnThisServer(t, cp.Config(), check); why != "" {
			t.Logf("without %s: %s", check, why)
			continue
		}
		t.Run(check, func(t *testing.T) {
			objects := p.read(t, file)
			t.Cleanup(func() { p.remove(t, objects) })
			p.plant(t, objects)
			got := examine(t, cp.Config())
			if len(got) == 0 || slices.ContainsFunc(got, func(name string) bool { return name != check }) {
				t.Errorf("got %v, want %s only", got, check)
				return
			}
			found++
		})
	}
	if found < minFaults {
		t.Errorf("found %d faults, want at least %d", found, minFaults)
	}
	if got := examine(t, cp.Config()); len(got) > 0 {
		t.Errorf("without the faults: got %v, want no findings", got)
	}
}

// notOnThisServer says why a fault cannot be planted.
func notOnThisServer(t *testing.T, config *rest.Config, check string) string {
	t.Helper()
	switch check {
	case "side-effects":
		return "API servers refuse it since Kubernetes 1.22"
	case "policy-not-effective":
		return "it needs the status that Ostiary writes"
	case "blocks-authorization":
		dump, err := cluster.Fetch(t.Context(), config, func(err error) { t.Error(err) })
		must(t, err)
		if dump.Version.AtLeast(version.MajorMinor(1, 37)) {
			return "API servers send no reviews since Kubernetes 1.37"
		}
	}
	return ""
}

// examine returns the names of the checks that find something.
func examine(t *testing.T, config *rest.Config) []string {
	t.Helper()
	dump, err := cluster.Fetch(t.Context(), config, func(err error) { t.Error(err) })
	must(t, err)
	var out []string
	for _, f := range doctor.Check(dump, time.Now()) {
		t.Logf("%s %s %s: %s", f.Check, f.Object, f.Path, f.Message)
		out = append(out, f.Check)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// variables are the variables of the manifests.
func variables(t *testing.T) *strings.Replacer {
	t.Helper()
	const day = 24 * time.Hour
	now := time.Now()
	bundle := func(from, to time.Duration) string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(from), NotAfter: now.Add(to), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		must(t, err)
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return strings.NewReplacer(
		"${valid}", bundle(-day, 3000*day), "${other}", bundle(-day, 3000*day), "${expired}", bundle(-400*day, -35*day),
		"${future}", bundle(day, 365*day), "${expiring}", bundle(-350*day, 15*day),
		"${now}", now.Add(time.Hour).Format(metav1.RFC3339Micro), "${hour-ago}", now.Add(-time.Hour).Format(time.RFC3339),
	)
}

// planter writes the objects of manifests.
type planter struct {
	client    dynamic.Interface
	variables *strings.Replacer
}

func (p planter) read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	return p.parse(t, string(content))
}

func (p planter) parse(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(p.variables.Replace(manifest)), 4096)
	var out []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		out = append(out, u)
	}
}

func (p planter) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	return p.client.Resource(plural).Namespace(u.GetNamespace())
}

// plant applies objects in the name of each field manager that they name. It changes them
// until they have their generation.
func (p planter) plant(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		managers, generation := []string{"test"}, u.GetGeneration()
		if fields := u.GetManagedFields(); len(fields) > 0 {
			managers = nil
			for _, f := range fields {
				managers = append(managers, f.Manager)
			}
		}
		applied := u.DeepCopy()
		for _, field := range []string{"managedFields", "generation", "creationTimestamp"} {
			unstructured.RemoveNestedField(applied.Object, "metadata", field)
		}
		for _, manager := range managers {
			// The API server can still call a webhook of the fault before.
			NewWithT(t).Eventually(func() error {
				_, err := p.resource(u).Apply(t.Context(), u.GetName(), applied, metav1.ApplyOptions{FieldManager: manager})
				return err
			}).WithTimeout(time.Minute).Should(Succeed())
		}
		if generation > 1 {
			p.change(t, u, managers[0], generation)
		}
	}
}

// change changes the timeout of a webhook until the configuration has a generation.
func (p planter) change(t *testing.T, u *unstructured.Unstructured, manager string, generation int64) {
	t.Helper()
	for i := int64(0); ; i++ {
		have, err := p.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		must(t, err)
		if have.GetGeneration() >= generation {
			return
		}
		webhooks, _, err := unstructured.NestedSlice(have.Object, "webhooks")
		must(t, err)
		must(t, unstructured.SetNestedField(webhooks[0].(map[string]any), 3+i%2, "timeoutSeconds"))
		must(t, unstructured.SetNestedSlice(have.Object, webhooks, "webhooks"))
		_, err = p.resource(u).Update(t.Context(), have, metav1.UpdateOptions{FieldManager: manager})
		must(t, err)
	}
}

// remove deletes objects, webhook configurations first: they can block others until every
// API server has forgotten them. Namespaces stay.
func (p planter) remove(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, u := range slices.Backward(objects) {
		if u.GetKind() == "Namespace" {
			continue
		}
		NewWithT(t).Eventually(func() error {
			err := p.resource(u).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}).WithTimeout(time.Minute).Should(Succeed())
	}
}
