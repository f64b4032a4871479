// Package rehearsal checks with an API server that the objects of internal/rehearsal are
// those that API servers store.
package rehearsal

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	seedsFile   = "../../internal/rehearsal/objects/seeds.yaml"
	objectsFile = "../../internal/rehearsal/objects/objects.json"
	zeroUID     = "00000000-0000-0000-0000-000000000000"
)

var update = flag.Bool("update", false, "rewrite the objects")

// TestObjects completes the seeds with an API server, and compares the results with the
// objects that the rehearsal uses.
func TestObjects(t *testing.T) {
	config := cptest.Run(t, controlplane.Options{}).Config()
	accounts := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	NewWithT(t).Eventually(func() error {
		_, err := accounts.Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	known := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(known)
	client := dynamic.NewForConfigOrDie(config)
	var got []map[string]any
	for _, seed := range readSeeds(t) {
		mapping, err := mapper.RESTMapping(seed.GroupVersionKind().GroupKind(), seed.GroupVersionKind().Version)
		if err != nil {
			t.Fatal(err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == "namespace" {
			resource = client.Resource(mapping.Resource).Namespace(metav1.NamespaceDefault)
		}
		stored, err := resource.Create(t.Context(), seed, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("%s: %v", seed.GetKind(), err)
			continue
		}
		got = append(got, withoutChoices(stored.Object))
	}
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(objectsFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(objectsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func readSeeds(t *testing.T) (out []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(seedsFile)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1<<16); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
}

// withoutChoices replaces what API servers choose.
func withoutChoices(object map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: object}
	u.SetUID(zeroUID)
	u.SetCreationTimestamp(metav1.Unix(1_000_000_000, 0))
	unstructured.RemoveNestedField(object, "metadata", "managedFields")
	unstructured.RemoveNestedField(object, "metadata", "resourceVersion")
	if kind := u.GetKind(); kind == "Service" {
		ports, _, _ := unstructured.NestedSlice(object, "spec", "ports")
		for _, port := range ports {
			if fields, ok := port.(map[string]any); ok && fields["nodePort"] != nil {
				fields["nodePort"] = int64(30000)
			}
		}
		if len(ports) > 0 {
			_ = unstructured.SetNestedSlice(object, ports, "spec", "ports")
			_ = unstructured.SetNestedField(object, "192.0.2.1", "spec", "clusterIP")
			_ = unstructured.SetNestedStringSlice(object, []string{"192.0.2.1"}, "spec", "clusterIPs")
		}
	}
	if _, found, _ := unstructured.NestedString(object, "status", "lastPhaseTransitionTime"); found {
		_ = unstructured.SetNestedField(object, "2001-09-09T01:46:40Z", "status", "lastPhaseTransitionTime")
	}
	text, _ := json.Marshal(object)
	if uid := u.GetLabels()["batch.kubernetes.io/controller-uid"]; uid != "" {
		text = bytes.ReplaceAll(text, []byte(uid), []byte(zeroUID))
	}
	volumes, _, _ := unstructured.NestedSlice(object, "spec", "volumes")
	for _, v := range volumes {
		name, _, _ := unstructured.NestedString(v.(map[string]any), "name")
		text = bytes.ReplaceAll(text, []byte(`"`+name+`"`), []byte(`"`+withoutSuffix(name)+`"`))
	}
	out := map[string]any{}
	_ = json.Unmarshal(text, &out)
	return out
}

// withoutSuffix replaces the random suffix of the volume with the token.
func withoutSuffix(name string) string {
	const prefix = "kube-api-access-"
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		return prefix + "probe"
	}
	return name
}
