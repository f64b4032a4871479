package gatekeeper

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Each policy that stands for a public template exists in the library.
func TestLibraryPolicies(t *testing.T) {
	for template, name := range libraryPolicies() {
		found, err := filepath.Glob("../../../library/*/" + name + "/policy.yaml")
		if err != nil || len(found) != 1 {
			t.Errorf("%s: got the policies %v and %v, want one named %s", template, found, err, name)
		}
	}
}

// The digest of Rego is independent of its spelling.
func TestRegoDigest(t *testing.T) {
	const text = `package x
import data.lib.a
# A comment with "quotes".
violation[{"msg": msg}] {
  c := input.spec["a#b"][_]
  re_match("^a", c) # another
  contains(c, "x")
  msg := sprintf("%v", [c])
}
f("E") = 1000 { true }
g(c) = true { c }
h(c) = out { out := c }
`
	library := "package lib.a\nf(x) { x }\n"
	want := regoDigest(text, []string{library, "package lib.b"})
	tests := map[string]struct {
		rego  string
		libs  []string
		other bool
	}{
		"the same":           {rego: text},
		"other order":        {rego: text, libs: []string{"package lib.b", library}},
		"spaces":             {rego: strings.ReplaceAll(text, "\n", "\n\n\t")},
		"no comments":        {rego: strings.ReplaceAll(strings.ReplaceAll(text, "# A comment with \"quotes\".", ""), "# another", "")},
		"the first version":  {rego: newSpelling(text), libs: []string{"package lib.b\nimport rego.v1", newSpelling(library)}},
		"another field":      {rego: strings.Replace(text, "a#b", "a#c", 1), other: true},
		"another operator":   {rego: strings.Replace(text, "contains", "startswith", 1), other: true},
		"one rule less":      {rego: strings.Replace(text, "g(c) = true { c }", "", 1), other: true},
		"one library less":   {rego: text, libs: []string{library}, other: true},
		"a negated library":  {rego: text, libs: []string{strings.Replace(library, "{ x", "{ not x", 1), "package lib.b"}, other: true},
		"a space in a text":  {rego: strings.Replace(text, `"x"`, `" x"`, 1), other: true},
		"joined identifiers": {rego: strings.Replace(text, "import data", "importdata", 1), other: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			libs := tt.libs
			if libs == nil {
				libs = []string{library, "package lib.b"}
			}
			if got := regoDigest(tt.rego, libs); (got != want) != tt.other {
				t.Errorf("got the digest %s, want another one than %s: %v", got, want, tt.other)
			}
		})
	}
}

// newSpelling is the text in version 1 of Rego.
func newSpelling(text string) string {
	return "import future.keywords.contains\nimport future.keywords.if\n" + strings.NewReplacer(
		`violation[{"msg": msg}] {`, `violation contains ({"msg": msg}) if {`,
		"re_match", "regex.match",
		`f("E") = 1000 { true }`, `f("E") := 1000`,
		"g(c) = true { c }", "g(c) if { c }",
		"h(c) = out {", "h(c) := out if {",
		"f(x) { x }", "f(x) if { x }",
	).Replace(text)
}

func definitionOf(t *testing.T, kind, rego string) *templateDefinition {
	t.Helper()
	d := &templateDefinition{}
	d.Name = strings.ToLower(kind)
	d.Spec.CRD.Spec.Names.Kind = kind
	d.Spec.Targets = []templateTarget{{Rego: rego}}
	return d
}

// A template of the public library is known by its kind and its Rego.
func TestTakePublic(t *testing.T) {
	const text = "package a\nviolation[{\"msg\": \"x\"}] { true }\n"
	templates := []publicTemplate{
		{Kind: "K8sExternalIPs", Versions: []publicVersion{{"1.0.0", nil}, {"1.0.1", []string{"other", regoDigest(text, nil)}}}},
		{Kind: "K8sHttpsOnly", Versions: []publicVersion{{"1.0.2", []string{"other"}}}},
	}
	tests := map[string]struct{ kind, rego, wantFailed, wantAlternative string }{
		"the same": {kind: "K8sExternalIPs", rego: "# changed comment\n" + text},
		"changed": {
			kind: "K8sExternalIPs", rego: text + "allow { true }",
			wantFailed:      "its Rego differs from that of version 1.0.0 and 1.0.1 of the public library",
			wantAlternative: "use the policy external-ips of Ostiary's library",
		},
		"another kind": {
			kind: "Mine", rego: text,
			wantFailed: "the template is written in Rego", wantAlternative: "use a version of the template",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := definitionOf(t, tt.kind, tt.rego)
			d.takePublic(templates)
			if !strings.HasPrefix(d.failed, tt.wantFailed) || !strings.HasPrefix(d.alternative, tt.wantAlternative) ||
				(tt.wantFailed == "") != (d.source != nil) {
				t.Errorf(
					"got %q and %q with a source %v, want %q and %q",
					d.failed, d.alternative, d.source != nil, tt.wantFailed, tt.wantAlternative,
				)
			}
		})
	}
}

// The CEL of each public template compiles, and decides about a Pod and other objects.
func TestPublicTemplates(t *testing.T) {
	templates, err := publicTemplates()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for i := range templates {
		p := &templates[i]
		kinds[p.Kind] = true
		for _, v := range p.Versions {
			t.Run(p.Kind+" "+v.Version, func(t *testing.T) {
				if len(v.Rego) == 0 || slices.ContainsFunc(v.Rego, func(d string) bool { return len(d) != 64 }) {
					t.Errorf("got the digests %q, want at least one, of 64 digits", v.Rego)
				}
				engine := publicEngine(t, p, "{}")
				for _, text := range []string{
					"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b}\nspec: {containers: [{name: a, image: a}]}\n",
					"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
					"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: b}\nspec: {rules: [{}]}\n",
				} {
					for _, o := range evaluate(t, engine, text).Outcomes {
						if o.Decision == policy.DecisionError || o.Err != nil {
							t.Errorf("got %s: %v\n%s", o.Decision, o.Messages(), text)
						}
					}
				}
			})
		}
	}
	if len(kinds) < 25 {
		t.Errorf("got %d templates, want at least 25", len(kinds))
	}
}

// publicEngine converts a constraint of a public template.
func publicEngine(t *testing.T, p *publicTemplate, parameters string) *offline.Engine {
	t.Helper()
	objects, err := load.Text(t.Context(), "in.yaml", fmt.Appendf(
		nil,
		"apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: %s\nmetadata: {name: a}\nspec: {parameters: %s}\n",
		p.Kind,
		parameters,
	))
	if err != nil {
		t.Fatal(err)
	}
	resources, err := newResources(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := definitionOf(t, p.Kind, "")
	d.source, d.public = &p.Source, p
	c := conversion.Conversion{Source: objects[0]}
	convertConstraint(&c, d, conversion.ParamsConstants, resources)
	if len(c.Outputs) != 1 {
		t.Fatalf("got %d policies and %v, want one", len(c.Outputs), c.Rows)
	}
	apis, err := offline.NewAPIs(policy.LatestEngine, nil)
	if err != nil {
		t.Fatal(err)
	}
	policies := []offline.Policy{{WebhookPolicy: c.Outputs[0].Policy(), Source: c.Source}}
	engine, err := offline.NewEngine(policies, policy.NewCompiler(), apis)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// The CEL of a public template decides as its Rego about objects that were decided otherwise.
func TestPublicDecisions(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b}\nspec: {containers: [%s]}\n"
	const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s, namespace: %s}\nspec: {rules: [{%s}]}\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: b}\nspec: {%s}\n"
	const limit = "{name: a, image: a, resources: {requests: {cpu: 50m, memory: 1Gi}, limits: {cpu: %s, memory: 1Gi}}}"
	const workload = "apiVersion: apps/v1\nkind: %s\nmetadata: {name: a, namespace: b}\n" +
		"spec: {replicas: %s, selector: {matchLabels: {app: web, team: red}}}\n"
	const autoscaler = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a, namespace: b}\n" +
		"spec: {scaleTargetRef: {apiVersion: apps/v1, kind: %s, name: a}}\n"
	const budget = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: c, namespace: b}\nspec: {%s}\n"
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a, namespace: b}\nspec: {%s}\n"
	const class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\nprovisioner: p\n"
	tests := map[string]struct {
		kind, parameters, object string
		stored                   string
		want                     bool
	}{
		"the host of another Ingress": {
			kind: "K8sUniqueIngressHost", parameters: "{}",
			object: fmt.Sprintf(ingress, "a", "b", "host: x"), stored: fmt.Sprintf(ingress, "c", "other", "host: x"),
		},
		"another host": {
			kind: "K8sUniqueIngressHost", parameters: "{}", want: true,
			object: fmt.Sprintf(ingress, "a", "b", "host: x"), stored: fmt.Sprintf(ingress, "c", "other", "host: y"),
		},
		"an Ingress without a host": {
			kind: "K8sUniqueIngressHost", parameters: "{}", want: true,
			object: fmt.Sprintf(ingress, "a", "b", ""), stored: fmt.Sprintf(ingress, "c", "other", ""),
		},
		"its own host": {
			kind: "K8sUniqueIngressHost", parameters: "{}", want: true,
			object: fmt.Sprintf(ingress, "a", "b", "host: x"), stored: fmt.Sprintf(ingress, "a", "b", "host: x"),
		},
		"the selector of another Service": {
			kind: "K8sUniqueServiceSelector", parameters: "{}",
			object: fmt.Sprintf(service, "a", "selector: {a: b, c: d}"), stored: fmt.Sprintf(service, "c", "selector: {c: d, a: b}"),
		},
		"a part of a selector": {
			kind: "K8sUniqueServiceSelector", parameters: "{}", want: true,
			object: fmt.Sprintf(service, "a", "selector: {a: b}"), stored: fmt.Sprintf(service, "c", "selector: {c: d, a: b}"),
		},
		"Services without a selector": {
			kind: "K8sUniqueServiceSelector", parameters: "{}",
			object: fmt.Sprintf(service, "a", ""), stored: fmt.Sprintf(service, "c", ""),
		},
		"another kind than a Service": {
			kind: "K8sUniqueServiceSelector", parameters: "{}", want: true,
			object: fmt.Sprintf(ingress, "a", "b", ""), stored: fmt.Sprintf(service, "c", ""),
		},
		"the target of an autoscaler": {
			kind: "K8sHorizontalPodAutoscaler", parameters: "{enforceScaleTargetRef: true}", want: true,
			object: fmt.Sprintf(autoscaler, "Deployment"), stored: fmt.Sprintf(workload, "Deployment", "2"),
		},
		"no target of an autoscaler": {
			kind: "K8sHorizontalPodAutoscaler", parameters: "{enforceScaleTargetRef: true}",
			object: fmt.Sprintf(autoscaler, "Deployment"), stored: fmt.Sprintf(workload, "StatefulSet", "2"),
		},
		"no target of an autoscaler, which the constraint permits": {
			kind: "K8sHorizontalPodAutoscaler", parameters: "{enforceScaleTargetRef: false}", want: true,
			object: fmt.Sprintf(autoscaler, "Deployment"),
		},
		"a budget below the replicas": {
			kind: "K8sPodDisruptionBudget", parameters: "{}", want: true,
			object: fmt.Sprintf(workload, "Deployment", "2"), stored: fmt.Sprintf(budget, "minAvailable: 1, selector: {matchLabels: {app: web}}"),
		},
		"a budget of all replicas": {
			kind: "K8sPodDisruptionBudget", parameters: "{}",
			object: fmt.Sprintf(workload, "Deployment", "2"), stored: fmt.Sprintf(budget, "minAvailable: 2, selector: {matchLabels: {app: web}}"),
		},
		"a budget that permits no eviction": {
			kind: "K8sPodDisruptionBudget", parameters: "{}",
			object: fmt.Sprintf(workload, "Deployment", "2"), stored: fmt.Sprintf(budget, "maxUnavailable: 0, selector: {matchLabels: {app: web}}"),
		},
		"a budget of other labels": {
			kind: "K8sPodDisruptionBudget", parameters: "{}", want: true,
			object: fmt.Sprintf(workload, "Deployment", "2"), stored: fmt.Sprintf(budget, "maxUnavailable: 0, selector: {matchLabels: {app: red}}"),
		},
		"a budget without labels": {
			kind: "K8sPodDisruptionBudget", parameters: "{}", object: fmt.Sprintf(pod, "{}"), stored: fmt.Sprintf(budget, "maxUnavailable: 0"),
		},
		"a new budget that permits no eviction": {
			kind: "K8sPodDisruptionBudget", parameters: "{}", object: fmt.Sprintf(budget, "maxUnavailable: 0"),
		},
		"a claim of a class": {
			kind: "K8sStorageClass", parameters: "{}", want: true, object: fmt.Sprintf(claim, "storageClassName: fast"), stored: class,
		},
		"a claim of another class": {
			kind: "K8sStorageClass", parameters: "{}", object: fmt.Sprintf(claim, "storageClassName: slow"), stored: class,
		},
		"a claim of a class that the constraint does not permit": {
			kind: "K8sStorageClass", parameters: "{allowedStorageClasses: [slow]}",
			object: fmt.Sprintf(claim, "storageClassName: fast"), stored: class,
		},
		"a claim without a class": {
			kind: "K8sStorageClass", parameters: "{}", object: fmt.Sprintf(claim, ""), stored: class,
		},
		"a Pod in a cluster without classes": {kind: "K8sStorageClass", parameters: "{}", object: fmt.Sprintf(pod, "{}")},
		"a type of profiles that is not known": {
			kind: "K8sPSPAppArmor", parameters: `{allowedProfiles: [""]}`,
			object: fmt.Sprintf(pod, "{name: a, image: a, securityContext: {appArmorProfile: {type: Mine}}}"),
		},
		"exactly a ratio": {
			kind: "K8sContainerRatios", parameters: `{ratio: "2.3"}`, want: true,
			object: fmt.Sprintf(pod, fmt.Sprintf(limit, "115m")),
		},
		"more than a ratio": {
			kind: "K8sContainerRatios", parameters: `{ratio: "2.3"}`, object: fmt.Sprintf(pod, fmt.Sprintf(limit, "116m")),
		},
		"a terminal of a container without an image": {
			kind: "K8sDisallowInteractiveTTY", parameters: "{}", object: fmt.Sprintf(pod, "{name: a, tty: true}"), want: true,
		},
		"a local profile without a name": {
			kind: "K8sPSPAppArmor", parameters: `{allowedProfiles: ["localhost/"]}`,
			object: fmt.Sprintf(pod, "{name: a, image: a, securityContext: {appArmorProfile: {type: Localhost}}}"),
		},
	}
	templates, err := publicTemplates()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			at := slices.IndexFunc(templates, func(p publicTemplate) bool { return p.Kind == tt.kind })
			stored, err := load.Text(t.Context(), "stored.yaml", []byte(tt.stored))
			if err != nil {
				t.Fatal(err)
			}
			got := evaluate(t, publicEngine(t, &templates[at], tt.parameters), tt.object, stored...)
			if got.Allowed != tt.want {
				t.Errorf("got allowed %v, want %v", got.Allowed, tt.want)
			}
		})
	}
}

// The report names amounts that Gatekeeper rounds.
func TestNoteRounding(t *testing.T) {
	for amount, want := range map[string]bool{
		"": false, "2": false, "100m": false, "1.5": false, "0.25Gi": false, "x": false,
		"1.3": true, "2.1M": true, "16.3Gi": true, "0.1": true,
	} {
		b := &builder{
			Conversion: &conversion.Conversion{},
			constraint: &gatekeeperConstraint{},
			definition: &templateDefinition{public: &publicTemplate{Rounded: []string{"ratio"}}},
		}
		b.constraint.Spec.Parameters = map[string]any{"ratio": amount, "other": "1.3"}
		b.noteRounding()
		if got := len(b.changes) == 1; got != want {
			t.Errorf("%q: got the rows %v, want one: %v", amount, b.changes, want)
		}
	}
}
