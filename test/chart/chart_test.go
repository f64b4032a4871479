// Package chart tests the Helm chart: the rendered objects, rejected values, and that it
// installs the same objects as kustomize. It is a separate module, so that Helm and kustomize
// are not dependencies of the manager.
package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const (
	chartDir  = "../../charts/ostiary"
	configDir = "../../config"
	namespace = "ostiary-system"
)

type object = map[string]any

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart with values in YAML, after Helm has held them against
// the schema.
func render(t *testing.T, namespace, values string) (map[string]string, error) {
	t.Helper()
	c := load(t)
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "ostiary", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, given, options, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// objects are what is rendered, by kind and name. Those of hooks are apart.
func objects(t *testing.T, namespace, values string) (plain, hooks map[string]object) {
	t.Helper()
	files, err := render(t, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	plain, hooks = map[string]object{}, map[string]object{}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for _, o := range parse(t, text) {
			if field(o, "metadata", "annotations", "helm.sh/hook") != nil {
				hooks[id(o)] = o
			} else {
				plain[id(o)] = o
			}
		}
	}
	return plain, hooks
}

func parse(t *testing.T, text string) (out []object) {
	t.Helper()
	for _, document := range regexp.MustCompile(`(?m)^---\s*$`).Split(text, -1) {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("rendered what is no YAML: %v\n%s", err, document)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}

func id(o object) string {
	return fmt.Sprint(o["kind"], " ", field(o, "metadata", "name"))
}

func field(o object, path ...string) any {
	var at any = o
	for _, name := range path {
		in, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = in[name]
	}
	return at
}

// kustomized are the objects that a folder of config installs.
func kustomized(t *testing.T, folder string) map[string]object {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(configDir, folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]object{}
	for _, o := range parse(t, string(text)) {
		out[id(o)] = o
	}
	return out
}

// withoutHelm takes away what only Helm says.
func withoutHelm(o object) object {
	raw, _ := json.Marshal(o)
	var out object
	_ = json.Unmarshal(raw, &out)
	metadata := out["metadata"].(map[string]any)
	if labels, ok := metadata["labels"].(map[string]any); ok {
		for _, label := range []string{"instance", "version", "managed-by"} {
			delete(labels, "app.kubernetes.io/"+label)
		}
		delete(labels, "helm.sh/chart")
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, "helm.sh/") })
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return out
}

const image = "image: {tag: dev}\n"

// The values that make an installation by Helm equal to each by kustomize.
func TestEqualToKustomize(t *testing.T) {
	for folder, values := range map[string]string{
		"default": image,
		"production": image + `
replicas: 3
topologySpread: {hostname: DoNotSchedule}
podDisruptionBudget: {minAvailable: 2}
networkPolicy: {egressPorts: [443, 6443, 8443, 9443, 10250]}
metrics:
  serviceMonitor: {enabled: true}
  prometheusRule: {enabled: true}
  dashboard: {enabled: true}
`,
	} {
		t.Run(folder, func(t *testing.T) {
			got, _ := objects(t, namespace, values)
			want := kustomized(t, folder)
			delete(want, "Namespace "+namespace) // --create-namespace creates it
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Fatalf("objects (-kustomize +helm):\n%s", diff)
			}
			for name := range want {
				if diff := cmp.Diff(want[name], withoutHelm(got[name])); diff != "" {
					t.Errorf("%s (-kustomize +helm):\n%s", name, diff)
				}
			}
		})
	}
	_, hooks := objects(t, namespace, image)
	for _, folder := range []string{"self-test", "uninstall"} {
		for name, want := range kustomized(t, folder) {
			if job := "Job ostiary-self-test"; name == job {
				name, want = "Pod ostiary-self-test", podOf(want)
			}
			if hooks[name] == nil {
				t.Errorf("the chart has no hook %s", name)
			} else if diff := cmp.Diff(want, withoutHelm(hooks[name])); diff != "" {
				t.Errorf("%s (-kustomize +helm):\n%s", name, diff)
			}
		}
	}
}

// The kinds of reports are the files of the component.
func TestReportDefinitions(t *testing.T) {
	got, _ := objects(t, namespace, image+"reports: {enabled: true}\n")
	for _, file := range []string{"reports.yaml", "cluster_reports.yaml", "role.yaml"} {
		raw, err := os.ReadFile(filepath.Join(configDir, "components", "reports", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range parse(t, string(raw)) {
			if got[id(want)] == nil {
				t.Errorf("the chart has no %s", id(want))
				continue
			}
			o := withoutHelm(got[id(want)])
			if want["kind"] == "CustomResourceDefinition" {
				delete(o["metadata"].(object), "labels") // those of the release
			}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("%s (-component +helm):\n%s", id(want), diff)
			}
		}
	}
}

// podOf is the Pod that a Job would make, under the Job's name: helm test shows
// the logs of Pods only.
func podOf(job object) object {
	template := job["spec"].(object)["template"].(object)
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": job["metadata"], "spec": template["spec"]}
}

// Golden files show what single values do, as the difference to the defaults.
func TestGolden(t *testing.T) {
	cases := map[string]string{
		"flags": `
manager: {webhookAddress: ":10260", metricsAuth: false, exemptNamespaces: [a, b], drainMin: 20s, logLevel: debug}
metrics: {serviceMonitor: {enabled: true, interval: 10s, labels: {release: p}}}
`,
		"off":        "manager: {metricsAddress: \"0\", healthAddress: \"0\"}\n",
		"digest":     "image: {digest: sha256:" + strings.Repeat("0", 64) + ", pullPolicy: Never}\nimagePullSecrets: [{name: s}]\n",
		"registry":   "image: {registry: \"\", repository: localhost:5000/a, tag: b}\n",
		"account":    "serviceAccount: {name: gate, annotations: {a: b}}\n",
		"no-account": "serviceAccount: {create: false, name: existing}\n",
		"no-rbac":    "rbac: {create: false}\n",
		"common": `
commonLabels: {team: platform, app.kubernetes.io/component: not-taken}
commonAnnotations: {contact: platform, a: common}
deploymentAnnotations: {a: deployment}
serviceAccount: {annotations: {a: account}}
`,
		"extra-objects": `
commonLabels: {team: platform}
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra", namespace: "{{ .Release.Namespace }}"}, data: {a: "{{ .Values.replicas }}"}}
`,
		"one-replica": "replicas: 1\n",
		"pods": `
hostNetwork: true
nodeSelector: {}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
podLabels: {team: platform, app.kubernetes.io/name: not-taken}
podAnnotations: {a: b}
priorityClassName: ""
goMemoryLimit: 300MiB
topologySpread: {hostname: "", zone: ""}
resources: {}
extraArgs: [--v=2]
extraEnv: [{name: A, value: b}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /ca}]
`,
		"cert-manager": "manager: {certManagerIssuer: ClusterIssuer/internal}\n",
		"params":       "paramKinds: [{resources: [configmaps]}, {apiGroups: [example.com], resources: [limits]}]\n",
		"lookups":      "lookupKinds: [{resources: [services]}, {apiGroups: [networking.k8s.io], resources: [ingresses]}]\n",
		"reports":      "reports: {enabled: true, installDefinitions: false}\n",
		"crds":         "crds: {keep: false}\nserviceAccount: {annotations: {a: b}}\nservice: {annotations: {c: d}}\n",
		"no-crds":      "crds: {install: false}\npodDisruptionBudget: {enabled: false}\n",
		"open":         "networkPolicy: {enabled: false}\n",
		"calls":        "networkPolicy: {webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}], metricsFrom: [], egressPorts: [6443]}\n",
	}
	before, hooksBefore := objects(t, namespace, "")
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			after, hooks := objects(t, namespace, values)
			golden(t, name, values, difference(t, before, after)+difference(t, hooksBefore, hooks))
		})
	}
	t.Run("another namespace", func(t *testing.T) {
		after, hooks := objects(t, "elsewhere", "metrics: {serviceMonitor: {enabled: true}}")
		for _, all := range []map[string]object{after, hooks} {
			for name, o := range all {
				if text := text(t, o); strings.Contains(text, namespace) {
					t.Errorf("%s still names %s:\n%s", name, namespace, text)
				}
			}
		}
	})
	found, err := filepath.Glob("testdata/golden/*.diff")
	if err != nil || len(found) != len(cases) {
		t.Errorf("%d golden files for %d cases: %v", len(found), len(cases), err)
	}
}

// difference lists the lines of each object that only one of the two has, with
// the objects that only one has named alone.
func difference(t *testing.T, before, after map[string]object) string {
	t.Helper()
	var out strings.Builder
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch {
		case after[name] == nil:
			fmt.Fprintf(&out, "without %s\n", name)
		case before[name] == nil:
			fmt.Fprintf(&out, "with %s\n%s", name, indent(text(t, after[name]), "+ "))
		default:
			a, b := strings.Split(text(t, before[name]), "\n"), strings.Split(text(t, after[name]), "\n")
			if lines := changed(a, b); lines != "" {
				fmt.Fprintf(&out, "changed %s\n%s", name, lines)
			}
		}
	}
	return out.String()
}

// changed are the lines that are not common to both, in their order.
func changed(a, b []string) string {
	longest := make([][]int, len(a)+1)
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var out strings.Builder
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && longest[i+1][j] >= longest[i][j+1]:
			fmt.Fprintf(&out, "- %s\n", a[i])
			i++
		default:
			fmt.Fprintf(&out, "+ %s\n", b[j])
			j++
		}
	}
	return out.String()
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

func text(t *testing.T, o object) string {
	t.Helper()
	if o["kind"] == "CustomResourceDefinition" { // its schema is generated elsewhere
		o = object{"kind": o["kind"], "metadata": o["metadata"]}
	}
	raw, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func golden(t *testing.T, name, values, got string) {
	t.Helper()
	got = indent(strings.TrimSpace(values), "# ") + got
	path := filepath.Join("testdata", "golden", name+".diff")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: run go test -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-%s +rendered):\n%s", path, diff)
	}
}

func TestRefuses(t *testing.T) {
	for name, test := range map[string]struct{ values, want string }{
		"an unknown key":         {values: "replica: 2", want: "replica"},
		"an unknown flag":        {values: "manager: {drainMinimum: 1s}", want: "drainMinimum"},
		"a wrong type":           {values: "replicas: two", want: "replicas"},
		"a flag of a wrong type": {values: "manager: {leaderElect: maybe}", want: "leaderElect"},
		"what is no duration":    {values: "manager: {drainMin: 15}", want: "drainMin"},
		"an unknown log level": {
			values: "manager: {logLevel: verbose}",
			want:   "value must be one of 'debug', 'info', 'warn', 'error'",
		},
		"an unknown log format": {values: "manager: {logFormat: xml}", want: "value must be one of 'json', 'console'"},
		"what is no address": {
			values: "manager: {webhookAddress: localhost}",
			want:   "at '/manager/webhookAddress': 'localhost' does not match pattern",
		},
		"an http URL": {
			values: "manager: {webhookUrl: \"http://a\"}",
			want:   "at '/manager/webhookUrl': 'http://a' does not match pattern",
		},
		"what is no namespace": {
			values: "manager: {exemptNamespaces: [a, B]}",
			want:   "at '/manager/exemptNamespaces/1': 'B' does not match pattern",
		},
		"too many evaluations": {
			values: "manager: {maxEvaluations: 100001}",
			want:   "at '/manager/maxEvaluations': maximum: got 100,001, want 100,000",
		},
		"no replicas":                {values: "replicas: 0", want: "replicas"},
		"a pull policy that is none": {values: "image: {pullPolicy: Sometimes}", want: "pullPolicy"},
		"a digest that is none":      {values: "image: {digest: latest}", want: "digest"},
		"a budget of all replicas": {
			values: "podDisruptionBudget: {minAvailable: 2}",
			want:   "podDisruptionBudget.minAvailable: 2 of 2 replicas would never let a node be drained: give a smaller number",
		},
		"no account": {
			values: "serviceAccount: {create: false}",
			want:   "serviceAccount.name: required because serviceAccount.create is false",
		},
		"another account's name": {
			values: "serviceAccount: {name: ostiary-params}",
			want:   `serviceAccount.name: "ostiary-params" is another account of the chart: choose another name`,
		},
		"what is no account": {values: "serviceAccount: {name: A}", want: "at '/serviceAccount/name'"},
		"an address as an argument": {
			values: "extraArgs: [--webhook-address=:1]",
			want:   `extraArgs: "--webhook-address=:1": set it in manager`,
		},
		"what is no argument": {values: "extraArgs: [v=2]", want: "at '/extraArgs/0'"},
		"an object without a kind": {
			values: "extraObjects: [{apiVersion: v1, metadata: {name: a}}]",
			want:   "missing property 'kind'",
		},
		"a label that is no text": {values: "commonLabels: {a: true}", want: "at '/commonLabels/a'"},
		"a monitor of nothing": {
			values: `{manager: {metricsAddress: "0"}, metrics: {serviceMonitor: {enabled: true}}}`,
			want:   "manager.metricsAddress: 0 turns metrics off",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := render(t, namespace, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

type schemaOfValue struct {
	Type    any
	Pattern string
	Enum    []string
}

// example is a value that fits.
func (s schemaOfValue) example() string {
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	for _, v := range []string{"x:1", "1m", "a", "a/b:1", "https://a", "127.0.0.1"} {
		if regexp.MustCompile(s.Pattern).MatchString(v) {
			return v
		}
	}
	return ""
}

// Every flag in the schema, which a test holds against the manager's, reaches
// the manager under its own name.
func TestFlags(t *testing.T) {
	var schema struct {
		Properties map[string]struct {
			Properties map[string]struct {
				schemaOfValue
				Items       schemaOfValue
				Description string
			}
		}
	}
	if err := json.Unmarshal(load(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	flags := schema.Properties["manager"].Properties
	if len(flags) < 20 {
		t.Fatalf("the schema has %d flags", len(flags))
	}
	for value, flag := range flags {
		want := flag.example()
		given := strconv.Quote(want)
		switch flag.Type {
		case "boolean":
			given, want = "false", "false"
		case "integer":
			given, want = "12345", "12345"
		case "number":
			given, want = "0.5", "0.5"
		case "array":
			want = flag.Items.example()
			given, want = fmt.Sprintf("[%q, %q]", want, want), want+","+want
		}
		name, _, _ := strings.Cut(flag.Description, ":")
		got, _ := objects(t, namespace, fmt.Sprintf("manager: {%s: %s}", value, given))
		containers := field(got["Deployment ostiary"], "spec", "template", "spec", "containers").([]any)
		args := containers[0].(map[string]any)["args"].([]any)
		if !slices.Contains(args, any(name+"="+want)) {
			t.Errorf("manager.%s gives the arguments %v, want %s=%s", value, args, name, want)
		}
	}
}

// What is registered with API servers and the certificates behind it are the
// manager's: rendered, they would be empty, and an upgrade would empty them.
func TestRendersNoRegistration(t *testing.T) {
	plain, hooks := objects(t, namespace,
		"{metrics: {serviceMonitor: {enabled: true}, dashboard: {enabled: true}, prometheusRule: {enabled: true}}}")
	for _, all := range []map[string]object{plain, hooks} {
		for name, o := range all {
			switch kind := o["kind"].(string); kind {
			case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "Secret", "Certificate", "Issuer":
				t.Errorf("the chart renders %s", name)
			}
		}
	}
}

// values.yaml is what the schema says, so Helm's own merge changes nothing.
func TestValuesAreTheSchemasDefaults(t *testing.T) {
	c := load(t)
	if err := chartutil.ValidateAgainstSchema(c, c.Values); err != nil {
		t.Error(err)
	}
	if len(c.Values) < 20 {
		t.Errorf("values.yaml has %d values", len(c.Values))
	}
}

// An upgrade may not change what Kubernetes does not let be changed, nor what
// certificates and registered configurations are made for.
func TestUpgradesFromTheFirstRelease(t *testing.T) {
	got, _ := objects(t, namespace, "")
	deployment, service := got["Deployment ostiary"], got["Service ostiary-webhook"]
	want := map[string]any{"app.kubernetes.io/name": "ostiary", "app.kubernetes.io/component": "manager"}
	if diff := cmp.Diff(want, field(deployment, "spec", "selector", "matchLabels")); diff != "" {
		t.Errorf("the Deployment's selector cannot be changed (-first +now):\n%s", diff)
	}
	if diff := cmp.Diff(want, field(service, "spec", "selector")); diff != "" {
		t.Errorf("pods of the release before are selected by (-first +now):\n%s", diff)
	}
	ports := field(service, "spec", "ports").([]any)
	if got := ports[0].(map[string]any)["port"]; len(ports) != 1 || got != float64(443) {
		t.Errorf("the port that is registered is %v", got)
	}
	crd := got["CustomResourceDefinition webhookpolicies.admission.ostiary.dev"]
	if crd == nil || field(crd, "metadata", "annotations", "helm.sh/resource-policy") != "keep" {
		t.Error("the CustomResourceDefinition is not a template that Helm upgrades and keeps")
	}
}
