package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// dimensions are values that change the same objects. Each is rendered with each other.
func dimensions() [][]string {
	return [][]string{
		{"", "rbac: {create: false}"},
		{"", "serviceAccount: {name: gate, annotations: {a: b}}", "serviceAccount: {create: false, name: existing}"},
		{"", "commonLabels: {team: platform, app.kubernetes.io/component: taken}\ncommonAnnotations: {contact: platform}"},
		{"", "paramKinds: [{resources: [configmaps]}]"},
		{
			"", "manager: {certManagerIssuer: ClusterIssuer/internal, metricsAddress: \":9443\"}",
			"manager: {metricsAddress: \"0\", healthAddress: \"0\"}",
		},
		{"", "metrics: {service: {enabled: true}, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}"},
		{"", "image: {registry: \"\", repository: a/b, digest: sha256:" + strings.Repeat("0", 64) + "}\nimagePullSecrets: [{name: s}]"},
		{"", pods},
	}
}

const pods = `hostNetwork: true
replicas: 1
crds: {keep: false}
podLabels: {a: b, team: other, app.kubernetes.io/name: taken}
podAnnotations: {a: b}
deploymentAnnotations: {a: b}
extraArgs: [--log-level=debug]
extraEnv: [{name: A, value: b}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /ca}]
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: extra, namespace: "{{ .Release.Namespace }}"}}]
networkPolicy: {webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}], egressPorts: [6443]}
tolerations: [{operator: Exists}]
`

// combinations returns the values of every choice of one value of each dimension.
func combinations(dimensions [][]string) []string {
	out := []string{""}
	for _, values := range dimensions {
		var longer []string
		for _, start := range out {
			for _, value := range values {
				longer = append(longer, strings.TrimPrefix(start+"\n"+value, "\n"))
			}
		}
		out = longer
	}
	return out
}

// TestCombinations renders every combination of the values that interact. It validates the
// objects against the schemas of each supported version of Kubernetes, and how they refer to
// each other.
func TestCombinations(t *testing.T) {
	c, schemas, count := load(t), loadSchemas(t), 0
	for i, values := range combinations(dimensions()) {
		if testing.Short() && i%7 != 0 { // still each value with most values of the other dimensions
			continue
		}
		if strings.Contains(values, `metricsAddress: "0"`) && strings.Contains(values, "metrics: {") {
			continue // TestRefuses
		}
		all := release(t, c, values)
		for _, problem := range slices.Concat(schemas.problems(t, all), references(all, values), metadataProblems(all, values)) {
			t.Errorf("%s\nwith the values\n%s", problem, values)
		}
		if count++; t.Failed() {
			t.FailNow()
		}
	}
	if want := 2 * 3 * 2 * 2 * (3*2 - 1) * 2 * 2; count != want && !testing.Short() {
		t.Errorf("%d combinations, want %d", count, want)
	}
}

// release returns all objects of a release, those of hooks too.
func release(t *testing.T, c *chart.Chart, values string) (out []object) {
	t.Helper()
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{
		Name:      "ostiary",
		Namespace: namespace,
		IsInstall: true,
	}, chartutil.DefaultCapabilities.Copy())
	if err != nil {
		t.Fatalf("%v\n%s", err, values)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatalf("%v\n%s", err, values)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			out = append(out, parse(t, files[name])...)
		}
	}
	return out
}

// references returns what is wrong with accounts, roles and ports that objects refer to.
func references(all []object, values string) (problems []string) {
	existing, withRBAC := map[string]bool{}, !strings.Contains(values, "rbac: {create: false}")
	for _, o := range all {
		if name := id(o); existing[name] {
			problems = append(problems, "twice: "+name)
		}
		existing[id(o)] = true
	}
	if strings.Contains(values, "name: existing") {
		existing["ServiceAccount existing"] = true
	}
	want := func(o object, kind string, name any) {
		if referred := fmt.Sprint(kind, " ", name); !existing[referred] {
			problems = append(problems, id(o)+" refers to "+referred)
		}
	}
	for _, o := range all {
		if strings.HasPrefix(o["apiVersion"].(string), "rbac.") && !withRBAC {
			problems = append(problems, id(o)+" is rendered with rbac.create=false")
		}
		if role, ok := o["roleRef"].(object); ok {
			want(o, role["kind"].(string), role["name"])
		}
		subjects, _ := o["subjects"].([]any)
		for _, subject := range subjects {
			want(o, "ServiceAccount", subject.(object)["name"])
		}
		if account := field(podSpec(o), "serviceAccountName"); account != nil {
			want(o, "ServiceAccount", account)
		}
	}
	return problems
}

func podSpec(o object) object {
	for _, path := range [][]string{{"spec", "template", "spec"}, {"spec"}} {
		if spec, ok := field(o, path...).(object); ok && spec["containers"] != nil {
			return spec
		}
	}
	return nil
}

// metadataProblems returns the objects without the common labels and annotations, and pods
// that a selector of the manager does not fit, or fits by mistake.
func metadataProblems(all []object, values string) (problems []string) {
	common := strings.Contains(values, "commonLabels")
	for _, o := range all {
		if id(o) == "ConfigMap extra" {
			continue
		}
		for _, metadata := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
			labels, ok := field(o, append(metadata, "labels")...).(object)
			if !ok {
				continue
			}
			team := labels["team"]
			isSpecific := o["kind"] == "Deployment" && team == "other" // podLabels take precedence
			if common && team != "platform" && !isSpecific || labels["app.kubernetes.io/name"] != "ostiary" {
				problems = append(problems, fmt.Sprintf("%s has the labels %v", id(o), labels))
			}
			isManager := labels["app.kubernetes.io/component"] == "manager"
			if runs := podSpec(o) != nil; runs && isManager != (o["kind"] == "Deployment") {
				problems = append(problems, fmt.Sprintf("%s is selected as a replica: %t", id(o), isManager))
			}
		}
		if contact := field(o, "metadata", "annotations", "contact"); common && contact != "platform" {
			problems = append(problems, fmt.Sprintf("%s has the annotations %v", id(o), field(o, "metadata", "annotations")))
		}
	}
	return problems
}
