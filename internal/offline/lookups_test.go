package offline

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/policy"
)

const configMapRules = `[{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]`

// lookingUp returns a policy whose message names the objects that it finds by the key "a".
func lookingUp(lookup string) string {
	return whp("p", configMapRules, "  lookups:\n  - {name: l, "+lookup+"}\n"+
		"  validations: [{expression: 'lookups.l.size() == 0', messageExpression: 'lookups.l.map(o, string(o)).join(\" \")'}]\n")
}

// listedCluster has some objects, and records what is listed of it.
type listedCluster struct {
	objects []*unstructured.Unstructured
	listed  []string
}

func (c *listedCluster) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (c *listedCluster) List(
	_ context.Context, r schema.GroupVersionResource, namespace, name string,
) (out []*unstructured.Unstructured, err error) {
	c.listed = append(c.listed, strings.Join([]string{r.Resource, namespace, name}, "/"))
	for _, u := range c.objects {
		if namespace == "" || u.GetNamespace() == namespace {
			out = append(out, u)
		}
	}
	return out, nil
}

func TestLookups(t *testing.T) {
	const (
		keys    = `, storedKeys: '[stored.metadata.labels.key]', requestKeys: '["a"]', value: stored.metadata.name`
		secrets = "resource: {version: v1, resource: secrets}" + keys
		scalers = "resource: {group: autoscaling, version: v2, resource: horizontalpodautoscalers}" + keys
		object  = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}\n"
		one     = "---\n{apiVersion: v1, kind: Secret, metadata: {name: one, labels: {key: a}}}\n"
		scaler  = "---\n{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}}\n"
		two     = "---\n{apiVersion: v1, kind: Secret, metadata: {name: two, namespace: shop, labels: {key: a}}}\n"
		broken  = "---\n{apiVersion: v1, kind: Secret, metadata: {name: broken}}\n"
	)
	everywhere := secrets + ", scope: Cluster, keyErrors: Skip"
	live := func(name, namespace string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
			"name": name, "namespace": namespace, "uid": "uid-" + name, "labels": map[string]any{"key": "a"},
		}}}
	}
	lives := []*unstructured.Unstructured{live("one", "default"), live("two", "shop")}
	for name, tt := range map[string]struct {
		lookup, objects string
		cluster         *listedCluster
		want, wantErr   string
		wantListed      []string
	}{
		"nothing":                  {lookup: secrets},
		"in the namespace":         {lookup: secrets, objects: one + two, want: "one"},
		"in the cluster":           {lookup: everywhere, objects: one + two, want: "one two"},
		"without what has no keys": {lookup: everywhere, objects: one + broken, want: "one"},
		"an object without keys": {
			lookup: secrets, objects: one + broken, wantErr: "an object has no keys: default/broken: storedKeys: no such key: labels",
		},
		"the data of Secrets": {
			lookup:  strings.Replace(secrets, "stored.metadata.labels.key", "stored.data.key", 1),
			objects: one, wantErr: "no such key: data",
		},
		"another version": {
			lookup:  strings.Replace(secrets, "version: v1", "version: v2", 1),
			wantErr: "the resource secrets of the lookup in v2 is not known",
		},
		"an object in another version": {
			lookup: scalers, objects: scaler,
			wantErr: "the lookup reads autoscaling/v2, and HorizontalPodAutoscaler web is in autoscaling/v1: an API server converts it",
		},
		"the cluster in the namespace": {
			lookup: secrets, cluster: &listedCluster{objects: lives}, want: "one", wantListed: []string{"secrets/default/"},
		},
		"the cluster in all of them": {
			lookup: everywhere, objects: "---\n{apiVersion: v1, kind: Secret, metadata: {name: two, namespace: shop, labels: {key: b}}}\n",
			cluster: &listedCluster{objects: lives}, want: "one", wantListed: []string{"secrets//"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, w := setUp(t, lookingUp(tt.lookup)+tt.objects, policy.NewCompilerFor(policy.LatestEngine))
			if tt.cluster != nil {
				w.AddCluster(tt.cluster)
			}
			request, err := e.APIs.NewRequest(&parse(t, object)[0], nil, RequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the index is made once
				result, err := e.Evaluate(t.Context(), request, w, Options{})
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if result.Status != nil {
					got = strings.TrimPrefix(result.Status.Message, "WebhookPolicy 'p' denied request: ")
				}
				if tt.wantErr == "" && got != tt.want || tt.wantErr != "" && !strings.Contains(got, tt.wantErr) {
					t.Errorf("got %q, want %q%q", got, tt.want, tt.wantErr)
				}
			}
			if tt.cluster != nil {
				if diff := cmp.Diff(tt.wantListed, tt.cluster.listed); diff != "" {
					t.Errorf("lists (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestHasObjects: a replay evaluates policies with lookups only if it has the objects.
func TestHasObjects(t *testing.T) {
	const scaler = "---\n{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: web}}\n"
	e, w := setUp(t, scaler, policy.NewCompilerFor(policy.LatestEngine))
	for name, tt := range map[string]struct {
		lookup  string
		cluster bool
		want    bool
	}{
		"in another version": {lookup: "{group: autoscaling, version: v2, resource: horizontalpodautoscalers}", want: true},
		"none":               {lookup: "{version: v1, resource: secrets}"},
		"of a cluster":       {lookup: "{version: v1, resource: secrets}", cluster: true, want: true},
		"an unknown kind":    {lookup: "{version: v1, resource: doors}", cluster: true},
	} {
		t.Run(name, func(t *testing.T) {
			world := w
			if tt.cluster {
				world = NewWorld(e.APIs, nil, nil, nil)
				world.AddCluster(&listedCluster{})
			}
			in, err := Sort(parse(t, lookingUp("resource: "+tt.lookup+", storedKeys: '[]', requestKeys: '[]'")))
			if err != nil {
				t.Fatal(err)
			}
			if got := world.HasObjects(&in.Policies[0].Spec.Lookups[0].Resource); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
