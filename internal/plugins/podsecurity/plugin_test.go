package podsecurity_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/plugins/podsecurity"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

const (
	prefix     = "pod-security.kubernetes.io/"
	privileged = "{containers: [{name: a, image: a, securityContext: {privileged: true}}]}"
	plain      = "{containers: [{name: a, image: a}]}"
	why        = `privileged (container "a" must not set securityContext.privileged=true)`
	refused    = `pods "web" is forbidden: violates PodSecurity "baseline:latest": ` + why
	baseline   = "{defaults: {enforce: baseline}}"
	warning    = `would violate PodSecurity "baseline:latest": ` + why
)

func TestPods(t *testing.T) {
	all := "{defaults: {enforce: baseline, warn: baseline, audit: baseline}}"
	tests := map[string]struct {
		config      string
		labels      map[string]string
		request     plugintest.Request
		user        string
		namespace   error // that it cannot be read
		wantRefused string
		wantCode    int32
		wantWarning string
		wantAudit   map[string]string
	}{
		"no configuration": {wantAudit: map[string]string{"enforce-policy": "privileged:latest"}},
		"default":          {config: baseline, wantCode: 403, wantRefused: refused, wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"version of the default": {config: "{defaults: {enforce: baseline, enforce-version: v1.30}}", wantCode: 403,
			wantRefused: strings.Replace(refused, "latest", "v1.30", 1), wantAudit: map[string]string{"enforce-policy": "baseline:v1.30"}},
		"allowed": {config: baseline, request: plugintest.Request{Object: plugintest.Pod(plain)}, wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"labels take the default's place": {config: baseline, labels: map[string]string{prefix + "enforce": "privileged"},
			wantAudit: map[string]string{"enforce-policy": "privileged:latest"}},
		"labels": {labels: map[string]string{prefix + "enforce": "baseline"}, wantCode: 403, wantRefused: refused, wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"warn and audit": {config: "{defaults: {warn: baseline, audit: baseline}}", wantWarning: warning,
			wantAudit: map[string]string{"enforce-policy": "privileged:latest", "audit-violations": warning}},
		"label that cannot be read": {labels: map[string]string{prefix + "enforce": "none"}, wantCode: 403, wantRefused: `pods "web" is forbidden: violates PodSecurity "restricted:latest": `,
			wantAudit: map[string]string{"enforce-policy": "restricted:latest", "error": `Failed to parse policy: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted`}},
		"exempt namespace": {config: "{defaults: {enforce: baseline}, exemptions: {namespaces: [shop]}}", wantAudit: map[string]string{"exempt": "namespace"}},
		"exempt user":      {config: "{defaults: {enforce: baseline}, exemptions: {usernames: [admin]}}", user: "admin", wantAudit: map[string]string{"exempt": "user"}},
		"another user": {config: "{defaults: {enforce: baseline}, exemptions: {usernames: [admin]}}", user: "eve", wantCode: 403, wantRefused: refused,
			wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"exempt runtimeClass": {config: "{defaults: {enforce: baseline}, exemptions: {runtimeClasses: [kata]}}",
			request:   plugintest.Request{Object: plugintest.Pod("{runtimeClassName: kata, " + privileged[1:])},
			wantAudit: map[string]string{"exempt": "runtimeClass"}},
		"update of metadata": {config: all, request: plugintest.Request{Operation: "UPDATE", Object: plugintest.Pod(privileged), OldObject: plugintest.Pod(privileged)}},
		// It is not asked at all, or it would write that the namespace is exempt.
		"update of metadata in an exempt namespace": {config: "{exemptions: {namespaces: [shop]}}",
			request: plugintest.Request{Operation: "UPDATE", Object: plugintest.Pod(privileged), OldObject: plugintest.Pod(privileged)}},
		"update of what is not looked at": {config: all, request: plugintest.Request{Operation: "UPDATE", OldObject: plugintest.Pod(privileged),
			Object: plugintest.Pod("{activeDeadlineSeconds: 1, " + privileged[1:])}},
		"update of an image": {config: baseline, request: plugintest.Request{Operation: "UPDATE", OldObject: plugintest.Pod(privileged),
			Object: plugintest.Pod(strings.Replace(privileged, "image: a", "image: b", 1))}, wantCode: 403, wantRefused: refused, wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"ephemeral container": {config: baseline, request: plugintest.Request{Operation: "UPDATE", Subresource: "ephemeralcontainers", OldObject: plugintest.Pod(plain),
			Object: plugintest.Pod("{ephemeralContainers: [{name: d, image: d, securityContext: {privileged: true}}], " + plain[1:])}, wantCode: 403,
			wantRefused: strings.Replace(refused, `"a"`, `"d"`, 1), wantAudit: map[string]string{"enforce-policy": "baseline:latest"}},
		"Deployment": {config: all, request: made("apps", "deployments", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: "+privileged+"}}}"),
			wantWarning: warning, wantAudit: map[string]string{"audit-violations": warning}},
		"CronJob": {config: all, request: made("batch", "cronjobs", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: web}, spec: {jobTemplate: {spec: {template: {spec: "+privileged+"}}}}}"),
			wantWarning: warning, wantAudit: map[string]string{"audit-violations": warning}},
		"no template": {config: all, request: made("", "replicationcontrollers", "{apiVersion: v1, kind: ReplicationController, metadata: {name: web}, spec: {}}")},
		"Deployment where enforce alone is said": {config: baseline,
			request: made("apps", "deployments", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: "+privileged+"}}}")},
		"namespace cannot be read": {config: baseline, namespace: errors.New("away"), wantCode: 422, wantRefused: `Internal error occurred: failed to lookup namespace "shop"`},
		"namespace of a Deployment cannot be read": {config: baseline, namespace: errors.New("away"),
			request:   made("apps", "deployments", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: "+privileged+"}}}"),
			wantAudit: map[string]string{"error": `failed to lookup namespace "shop": getting namespace "shop": away`}},
		"a Pod that cannot be read": {config: baseline, request: plugintest.Request{Object: plugintest.Pod("{containers: 1}")}, wantCode: 422, wantRefused: "failed to decode object"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := tc.request
			if r.Object == "" {
				r.Object = plugintest.Pod(privileged)
			}
			r.User = authenticationv1.UserInfo{Username: tc.user}
			got := plugintest.Ask(t, "plugin: {name: PodSecurity, config: "+or(tc.config, "{}")+"}", r, policy.Environment{Namespaces: namespaces{plugintest.Namespaces{Labels: tc.labels}, tc.namespace}})
			if got.Code != tc.wantCode || !strings.HasPrefix(got.Message, tc.wantRefused) || strings.Join(got.Warnings, "\n") != tc.wantWarning {
				t.Errorf("%d %q, warnings %q, want %d %q, %q", got.Code, got.Message, got.Warnings, tc.wantCode, tc.wantRefused, tc.wantWarning)
			}
			if diff := cmp.Diff(tc.wantAudit, audited(got)); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamespaces checks the validation of labels, and the warnings about existing Pods.
func TestNamespaces(t *testing.T) {
	labelled := func(labels string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {" + labels + "}}}"
	}
	enforce := func(level string) string { return labelled(prefix + "enforce: " + level) }
	there := []string{plugintest.Pod(privileged)}
	tests := map[string]struct {
		config, object, oldObject string
		pods                      pods
		wantCode                  int32
		wantRefused               string
		wantWarnings              []string
	}{
		"created":               {object: enforce("baseline")},
		"created malformed":     {object: enforce("none"), wantCode: 422, wantRefused: `Namespace "shop" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted`},
		"malformed version":     {object: labelled(prefix + "warn-version: v2"), wantCode: 422, wantRefused: `Namespace "shop" is invalid: metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "v2": must be "latest" or "v1.x"`},
		"made malformed":        {object: enforce("none"), oldObject: enforce("baseline"), wantCode: 422, wantRefused: `Namespace "shop" is invalid: `},
		"malformed before":      {object: labelled("a: b, " + prefix + "enforce: none"), oldObject: enforce("none")},
		"untouched":             {object: enforce("none"), oldObject: enforce("none")},
		"stricter":              {object: enforce("baseline"), oldObject: labelled(""), pods: pods{list: there}, wantWarnings: []string{`existing pods in namespace "shop" violate the new PodSecurity enforce level "baseline:latest"`, "web: privileged"}},
		"stricter, all well":    {object: enforce("baseline"), oldObject: labelled(""), pods: pods{list: []string{plugintest.Pod(plain)}}},
		"stricter, with an old": {object: enforce("restricted"), oldObject: enforce("privileged"), pods: pods{list: there}, wantWarnings: []string{`existing pods in namespace "shop" violate the new PodSecurity enforce level "restricted:latest"`, "web: privileged, allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile"}},
		"looser":                {object: enforce("privileged"), oldObject: enforce("baseline"), pods: pods{list: there}},
		"as strict as before":   {config: baseline, object: enforce("baseline"), oldObject: labelled(""), pods: pods{list: there}},
		"more Pods than are read": {object: enforce("baseline"), oldObject: labelled(""), pods: pods{list: there, more: 7},
			wantWarnings: []string{"new PodSecurity enforce level only checked against the first 1 of 8 existing pods", `existing pods in namespace "shop" violate the new PodSecurity enforce level "baseline:latest"`, "web: privileged"}},
		"Pods cannot be read": {object: enforce("baseline"), oldObject: labelled(""), pods: pods{err: errors.New("forbidden")}, wantWarnings: []string{"failed to list pods while checking new PodSecurity enforce level"}},
		"exempt": {config: "{exemptions: {namespaces: [shop]}}", object: enforce("baseline"), oldObject: labelled(""), pods: pods{list: there},
			wantWarnings: []string{`namespace "shop" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Request{Object: tc.object, OldObject: tc.oldObject, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}}
			if tc.oldObject != "" {
				r.Operation = "UPDATE"
			}
			got := plugintest.Ask(t, "plugin: {name: PodSecurity, config: "+or(tc.config, "{}")+"}", r, policy.Environment{Pods: tc.pods})
			if got.Code != tc.wantCode || !strings.HasPrefix(got.Message, tc.wantRefused) {
				t.Errorf("%d %q, want %d %q", got.Code, got.Message, tc.wantCode, tc.wantRefused)
			}
			if diff := cmp.Diff(tc.wantWarnings, got.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPodTemplates checks that configured resources get the warnings of Deployments.
func TestPodTemplates(t *testing.T) {
	one := func(spec string) string { return "{spec: " + spec + "}" }
	many := "[" + strings.Repeat(one(plain)+",", 101) + "]"
	tests := map[string]struct {
		paths, spec  string
		wantWarnings []string
		wantError    string
	}{
		"one":              {paths: "[spec.template]", spec: "{template: " + one(privileged) + "}", wantWarnings: []string{warning}},
		"one that is well": {paths: "[spec.template]", spec: "{template: " + one(plain) + "}"},
		"none":             {paths: "[spec.template]", spec: "{}"},
		"a list": {paths: "['spec.workers[*].template']", spec: "{workers: [{template: " + one(plain) + "}, {}, {template: " + one(privileged) + "}]}",
			wantWarnings: []string{"spec.workers[2].template: " + warning}},
		"a map and another path": {paths: "['spec.roles[*]', spec.driver]", spec: "{roles: {b: " + one(privileged) + ", a: " + one(privileged) + "}, driver: " + one(privileged) + "}",
			wantWarnings: []string{"spec.roles[a]: " + warning, "spec.roles[b]: " + warning, "spec.driver: " + warning}},
		"no object":    {paths: "[spec.template]", spec: "{template: 1}", wantError: "failed to decode object: spec.template is not a Pod template: it is not an object"},
		"no template":  {paths: "[spec.template]", spec: "{template: {spec: {containers: 1}}}", wantError: "failed to decode object: spec.template is not a Pod template: "},
		"too many":     {paths: "['spec.workers[*]']", spec: "{workers: " + many + "}", wantError: "there are more than 100 Pod templates: the others are not checked"},
		"other things": {paths: "['spec.workers[*].template']", spec: "{workers: 1}"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config := "{defaults: {enforce: baseline, warn: baseline}, podTemplates: [{group: example.com, version: v1, resource: fleets, paths: " + tc.paths + "}]}"
			got := plugintest.Ask(t, "plugin: {name: PodSecurity, config: "+config+"}", made("example.com", "fleets", "{apiVersion: example.com/v1, kind: Fleet, metadata: {name: web}, spec: "+tc.spec+"}"),
				policy.Environment{Namespaces: plugintest.Namespaces{}})
			if diff := cmp.Diff(tc.wantWarnings, got.Warnings); got.Code != 0 || diff != "" {
				t.Errorf("%d %s, warnings (-want +got):\n%s", got.Code, got.Message, diff)
			}
			if message := audited(got)["error"]; !strings.HasPrefix(message, tc.wantError) || (tc.wantError == "") != (message == "") {
				t.Errorf("error in the audit log %q, want %q", message, tc.wantError)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	const at = "spec.plugin.config."
	entry := func(rest string) string {
		return "podTemplates: [{group: example.com, version: v1, resource: fleets, paths: [spec.template]}, {" + rest + "}]"
	}
	tests := map[string]struct {
		config string
		want   []string
	}{
		"none":       {config: "{}"},
		"v1beta1":    {config: "{apiVersion: pod-security.admission.config.k8s.io/v1beta1, kind: PodSecurityConfiguration}"},
		"everything": {config: "{defaults: {enforce: restricted, enforce-version: v1.30, audit: baseline, audit-version: latest, warn: privileged, warn-version: v1.0}, exemptions: {usernames: [a], namespaces: [b], runtimeClasses: [c]}}"},
		"version": {config: "{apiVersion: pod-security.admission.config.k8s.io/v2}", want: []string{at +
			`apiVersion: Unsupported value: "pod-security.admission.config.k8s.io/v2": supported values: "pod-security.admission.config.k8s.io/v1", "pod-security.admission.config.k8s.io/v1beta1", "pod-security.admission.config.k8s.io/v1alpha1"`}},
		"kind":              {config: "{kind: Configuration}", want: []string{at + `kind: Unsupported value: "Configuration": supported values: "PodSecurityConfiguration"`}},
		"level":             {config: "{defaults: {enforce: strict}}", want: []string{at + `defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted`}},
		"version of levels": {config: "{defaults: {warn-version: '1.30'}}", want: []string{at + `defaults.warn-version: Invalid value: "1.30": must be "latest" or "v1.x"`}},
		"unknown field":     {config: "{defaults: {enforceVersion: v1.30}}", want: []string{at + `defaults.enforceVersion: Forbidden: remove it: unknown field "` + at + `defaults.enforceVersion"`}},
		"twice":             {config: "{exemptions: {namespaces: [a, a]}}", want: []string{at + `exemptions.namespaces[1]: Duplicate value: "a"`}},
		"no name":           {config: "{exemptions: {usernames: ['']}}", want: []string{at + `exemptions.usernames[0]: Invalid value: "": username must not be empty`}},
		"no resource": {config: "{" + entry("paths: [spec.template]") + "}", want: []string{
			at + "podTemplates[1].group: Required value: name the API group, as argoproj.io", at + "podTemplates[1].version: Required value: name the version, as v1",
			at + "podTemplates[1].resource: Required value: name the resource in the plural, as rollouts"}},
		"a kind":         {config: "{" + entry("group: example.com, version: v1, resource: Fleet, paths: [spec.template]") + "}", want: []string{at + `podTemplates[1].resource: Invalid value: "Fleet": name the resource in the plural, as rollouts`}},
		"a built-in":     {config: "{" + entry("group: apps, version: v1, resource: deployments, paths: [spec.template]") + "}", want: []string{at + "podTemplates[1].resource: Forbidden: remove it: the plugin checks deployments without configuration"}},
		"the same again": {config: "{" + entry("group: example.com, version: v1, resource: fleets, paths: [spec.other]") + "}", want: []string{at + `podTemplates[1]: Duplicate value: "example.com/v1, Resource=fleets"`}},
		"no path":        {config: "{" + entry("group: example.com, version: v1, resource: others") + "}", want: []string{at + "podTemplates[1].paths: Required value: say where the template is, as spec.template"}},
		"paths": {config: "{" + entry("group: example.com, version: v1, resource: others, paths: [.spec, 'spec[0]', spec.a-b, 'a[*][*].b', '']") + "}", want: []string{
			at + `podTemplates[1].paths[0]: Invalid value: ".spec": write names with dots between them, as spec.template or spec.workers[*].template`,
			at + `podTemplates[1].paths[1]: Invalid value: "spec[0]": write names with dots between them, as spec.template or spec.workers[*].template`,
			at + `podTemplates[1].paths[4]: Invalid value: "": write names with dots between them, as spec.template or spec.workers[*].template`}},
		"too many paths": {config: "{" + entry("group: example.com, version: v1, resource: others, paths: ["+strings.Repeat("a,", 11)+"]") + "}", want: []string{at + "podTemplates[1].paths: Too many: 11: must have at most 10 items"}},
		"too many kinds": {config: "{podTemplates: [" + strings.Repeat("{},", 51) + "]}", want: []string{at + "podTemplates: Too many: 51: must have at most 50 items"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := yaml.YAMLToJSON([]byte(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			_, errs := podsecurity.Definition().New(config, field.NewPath("spec", "plugin", "config"))
			var got []string
			for _, e := range errs {
				got = append(got, e.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRules: what the configuration names is asked for too, always in the same order.
func TestRules(t *testing.T) {
	plugin, errs := podsecurity.Definition().New([]byte(`{"podTemplates":[{"group":"b.com","version":"v1","resource":"bs","paths":["x"]},{"group":"a.com","version":"v2","resource":"as","paths":["x"]}]}`), nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var got []string
	for _, r := range plugin.Rules() {
		got = append(got, fmt.Sprint(r.APIGroups, r.APIVersions, r.Resources))
	}
	want := []string{"[a.com] [v2] [as]", "[b.com] [v1] [bs]"}
	if len(got) != 5 || !slices.Equal(got[3:], want) {
		t.Errorf("rules %q, want three, and %q", got, want)
	}
}

func made(group, resource, object string) plugintest.Request {
	return plugintest.Request{Object: object, Resource: metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource}}
}

// audited are the audit annotations, without the policy's name.
func audited(a plugintest.Answer) map[string]string {
	var out map[string]string
	for key, value := range a.Annotations {
		if out == nil {
			out = map[string]string{}
		}
		out[strings.TrimPrefix(key, plugintest.Name+".")] = value
	}
	return out
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// namespaces are plugintest's, or an error.
type namespaces struct {
	plugintest.Namespaces
	err error
}

// GetNamespace implements pluginapi.Namespaces.
func (n namespaces) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if n.err != nil {
		return nil, n.err
	}
	return n.Namespaces.GetNamespace(ctx, name)
}

// pods are those of every namespace, in YAML.
type pods struct {
	list []string
	more int64
	err  error
}

// PodsIn implements pluginapi.Pods.
func (p pods) PodsIn(context.Context, string) ([]*corev1.Pod, int64, error) {
	var out []*corev1.Pod
	for _, text := range p.list {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(text), pod); err != nil {
			return nil, 0, err
		}
		out = append(out, pod)
	}
	return out, p.more, p.err
}
