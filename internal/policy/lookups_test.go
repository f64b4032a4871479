package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/lookups"
)

// storedObjects has the stored objects of a test by resource, each as YAML.
type storedObjects map[string][]string

// Lookup implements Lookups.
func (s storedObjects) Lookup(ctx context.Context, p *lookups.Program, q lookups.Query) (lookups.Result, error) {
	x := lookups.NewIndex(p.Definition, lookups.Limits{})
	for i, text := range s[p.Resource] {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return lookups.Result{}, err
		}
		metadata, _ := object["metadata"].(map[string]any)
		ref := lookups.Ref{UID: fmt.Sprint(metadata["uid"], i), Name: metadata["name"].(string)}
		ref.Namespace, _ = metadata["namespace"].(string)
		if uid, ok := metadata["uid"].(string); ok {
			ref.UID = uid
		}
		if e, err := p.Entry(ctx, object); err != nil {
			x.Fail(ref, err)
		} else {
			x.Put(ref, e)
		}
	}
	return x.Find(q)
}

// lookupsFunc answers every query.
type lookupsFunc func(lookups.Query) (lookups.Result, error)

// Lookup implements Lookups.
func (f lookupsFunc) Lookup(_ context.Context, _ *lookups.Program, q lookups.Query) (lookups.Result, error) {
	return f(q)
}

// sameHost is a lookup of Ingresses with a host of the request.
const sameHost = `{name: sameHost, resource: {group: networking.k8s.io, version: v1, resource: ingresses}, scope: Cluster, keyErrors: Skip,
  storedKeys: 'stored.spec.?rules.orValue([]).map(r, r.?host.orValue(""))',
  requestKeys: 'object.spec.?rules.orValue([]).map(r, r.?host.orValue(""))'}`

// uniqueHost denies Ingresses with a host of another one.
const uniqueHost = "lookups: [" + sameHost + "]\n" + `validations: [{expression: 'lookups.sameHost.size() == 0',
  messageExpression: '"the host is used by " + lookups.sameHost.map(o, o.namespace + "/" + o.name).join(", ")'}]`

// forAll makes a policy match every request.
func forAll(spec string) string {
	return "matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}]}\n" + spec
}

func ingress(name, uid string, hosts ...string) string {
	var rules []string
	for _, h := range hosts {
		rules = append(rules, "{host: "+h+"}")
	}
	id := ""
	if uid != "" {
		id = ", uid: '" + uid + "'"
	}
	return "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: shop, name: " + name + id + "}, spec: {rules: [" +
		strings.Join(rules, ", ") + "]}}"
}

func inNamespace(object, namespace string) string {
	return strings.Replace(object, "namespace: shop", "namespace: "+namespace, 1)
}

// storedReview is a request about an object, or an update of a stored one.
func storedReview(tb testing.TB, operation admission.Operation, resource, object, old string) *admissionv1.AdmissionRequest {
	tb.Helper()
	raw := func(text string) (out runtime.RawExtension, meta metav1.PartialObjectMetadata) {
		if text == "" {
			return out, meta
		}
		encoded, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			tb.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &meta); err != nil {
			tb.Fatal(err)
		}
		return runtime.RawExtension{Raw: encoded}, meta
	}
	r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Operation(operation)}
	var meta, oldMeta metav1.PartialObjectMetadata
	r.Object, meta = raw(object)
	r.OldObject, oldMeta = raw(old)
	if object == "" {
		meta = oldMeta
	}
	gvk := meta.GroupVersionKind()
	r.Kind = metav1.GroupVersionKind(gvk)
	r.Resource = metav1.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: resource}
	r.Name, r.Namespace = meta.Name, meta.Namespace
	return r
}

func TestLookups(t *testing.T) {
	host := func(name string) string { return ingress(name, "", "a.example") }
	tests := map[string]struct {
		spec      string
		stored    storedObjects
		operation admission.Operation // default CREATE
		resource  string              // default ingresses
		object    string
		old       string
		want      string // the message; empty if it is allowed
	}{
		"no other object": {spec: uniqueHost, object: host("new")},
		"another object": {
			spec: uniqueHost, stored: storedObjects{"ingresses": {ingress("old", "1", "a.example")}}, object: host("new"),
			want: "the host is used by shop/old",
		},
		"objects in order": {
			spec: uniqueHost, object: host("new"), want: "the host is used by shop/b, shop/c, stage/a",
			stored: storedObjects{"ingresses": {host("c"), inNamespace(host("a"), "stage"), host("b")}},
		},
		"other hosts": {spec: uniqueHost, stored: storedObjects{"ingresses": {ingress("old", "1", "b.example")}}, object: host("new")},
		"a new object that is stored already": {
			spec: uniqueHost, stored: storedObjects{"ingresses": {ingress("new", "1", "a.example")}}, object: host("new"),
		},
		"an update of the object itself": {
			spec: uniqueHost, stored: storedObjects{"ingresses": {ingress("web", "1", "a.example")}}, operation: admission.Update,
			object: ingress("web", "1", "a.example", "b.example"), old: ingress("web", "1", "a.example"),
		},
		"an object of another resource with the same name": {
			spec: uniqueHost, stored: storedObjects{"ingresses": {host("web")}}, resource: "routes",
			object: strings.Replace(host("web"), "networking.k8s.io/v1", "route.example/v1", 1), want: "the host is used by shop/web",
		},
		"a stored object that fails is left out": {
			spec: uniqueHost, object: host("new"),
			stored: storedObjects{"ingresses": {"{metadata: {namespace: shop, name: bad}, spec: {rules: 1}}"}},
		},
		"a stored object that fails": {
			spec: strings.Replace(uniqueHost, "scope: Cluster, keyErrors: Skip", "scope: Namespace", 1), object: host("new"),
			stored: storedObjects{"ingresses": {"{metadata: {namespace: shop, name: bad}, spec: {rules: 1}}"}},
			want: "expression 'lookups.sameHost.size() == 0' resulted in error: lookup \"sameHost\": the lookup is incomplete: " +
				"an object has no keys: shop/bad: storedKeys: ",
		},
		"a stored object that fails in another namespace": {
			spec: strings.Replace(uniqueHost, "scope: Cluster, keyErrors: Skip", "scope: Namespace", 1), object: host("new"),
			stored: storedObjects{"ingresses": {"{metadata: {namespace: stage, name: bad}, spec: {rules: 1}}"}},
		},
		"keys of the request that fail": {
			spec: strings.Replace(uniqueHost, `requestKeys: 'object.spec.?rules`, `requestKeys: 'object.no.?rules`, 1), object: host("new"),
			want: "resulted in error: lookup \"sameHost\": requestKeys: no such key: no",
		},
		"keys of the request that are no strings": {
			spec: "lookups: [{name: a, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '[object.spec]'}]\n" +
				"validations: [{expression: 'lookups.a == []'}]",
			object: host("new"), want: "resulted in error: lookup \"a\": requestKeys: a key is no string but a value of type map",
		},
		"the author counts the object in a deletion": {
			spec: strings.ReplaceAll(uniqueHost, "'object.", "'oldObject."), stored: storedObjects{"ingresses": {host("old"), host("other")}},
			operation: admission.Delete, old: host("old"), want: "the host is used by shop/other",
		},
		"variables read lookups, and keys read variables": {
			spec: "lookups: [{name: same, resource: {version: v1, resource: services}, storedKeys: '[stored.spec.host]',\n" +
				"requestKeys: variables.hosts}]\n" +
				"variables: [{name: first, expression: 'lookups.same[0].name'},\n" +
				"{name: hosts, expression: 'object.spec.rules.map(r, string(r.host))'},\n" +
				"{name: again, expression: 'variables.first + variables.hosts[0]'}]\n" +
				"validations: [{expression: 'variables.again == \"\"', messageExpression: variables.again}]",
			stored: storedObjects{"services": {"{metadata: {namespace: shop, name: x}, spec: {host: a.example}}"}}, object: host("new"),
			want: "xa.example",
		},
		"a value": {
			spec: "lookups: [{name: same, resource: {version: v1, resource: services}, storedKeys: '[\"k\"]', requestKeys: '[\"k\"]',\n" +
				"value: '{\"port\": stored.spec.ports[0].port}'}]\n" +
				"validations: [{expression: 'lookups.same.all(s, s.port == 80)', messageExpression: 'string(lookups.same[0].port)'}]",
			stored: storedObjects{"services": {"{metadata: {namespace: shop, name: x}, spec: {ports: [{port: 8080}]}}"}}, object: host("new"),
			want: "8080",
		},
		"match conditions": {
			spec: "lookups: [" + sameHost + "]\nmatchConditions: [{name: c, expression: 'lookups.sameHost.size() > 0'}]\n" +
				"validations: [{expression: 'false', message: matched}]",
			stored: storedObjects{"ingresses": {host("old")}}, object: host("new"), want: "matched",
		},
		"a match condition that is false": {
			spec: "lookups: [" + sameHost + "]\nmatchConditions: [{name: c, expression: 'lookups.sameHost.size() > 0'}]\n" +
				"validations: [{expression: 'false', message: matched}]",
			object: host("new"),
		},
		"labels that a selector has": {
			spec: "lookups: [{name: pods, resource: {version: v1, resource: pods}, match: AllRequestKeys,\n" +
				"storedKeys: 'stored.metadata.labels.map(k, k + \"=\" + stored.metadata.labels[k])',\n" +
				"requestKeys: 'object.spec.selector.map(k, k + \"=\" + string(object.spec.selector[k]))'}]\n" +
				"validations: [{expression: 'lookups.pods.size() == 2', messageExpression: 'string(lookups.pods.size())'}]",
			object:   "{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: s}, spec: {selector: {app: x, tier: t}}}",
			resource: "services",
			stored: storedObjects{"pods": {
				"{metadata: {namespace: shop, name: a, labels: {app: x, tier: t, z: z}}}", "{metadata: {namespace: shop, name: b, labels: {app: x}}}",
				"{metadata: {namespace: stage, name: c, labels: {app: x, tier: t}}}",
			}},
			want: "1",
		},
		"selectors that match labels": {
			spec: "lookups: [{name: services, resource: {version: v1, resource: services}, match: AllStoredKeys,\n" +
				"storedKeys: 'stored.spec.selector.map(k, k + \"=\" + stored.spec.selector[k])',\n" +
				"requestKeys: 'object.metadata.labels.map(k, k + \"=\" + object.metadata.labels[k])'}]\n" +
				"validations: [{expression: 'lookups.services.size() == 0', messageExpression: 'lookups.services.map(s, s.name).join(\",\")'}]",
			object: "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: s, labels: {app: x, tier: t, z: z}}}", resource: "pods",
			stored: storedObjects{"services": {
				"{metadata: {namespace: shop, name: a}, spec: {selector: {app: x, tier: t}}}",
				"{metadata: {namespace: shop, name: b}, spec: {selector: {app: x, other: o}}}",
				"{metadata: {namespace: shop, name: c}, spec: {selector: {z: z}}}",
			}},
			want: "a,c",
		},
		"the namespace of the request is that of a Namespace": {
			spec: "lookups: [{name: pods, resource: {version: v1, resource: pods}, storedKeys: '[\"\"]', requestKeys: '[\"\"]'},\n" +
				"{name: namespaces, resource: {version: v1, resource: namespaces}, scope: Cluster, keyErrors: Skip,\n" +
				"storedKeys: '[\"\"]', requestKeys: '[\"\"]'}]\n" +
				"validations: [{expression: 'lookups.pods.size() == 0',\n" +
				"messageExpression: 'lookups.pods[0].name + \",\" + lookups.namespaces[0].name'}]",
			object: "{apiVersion: v1, kind: Namespace, metadata: {namespace: shop, name: shop}}", resource: "namespaces",
			stored: storedObjects{
				"pods":       {"{metadata: {namespace: shop, name: p}}", "{metadata: {namespace: a, name: a}}"},
				"namespaces": {"{metadata: {name: other}}", "{metadata: {name: shop}}"},
			},
			want: "p,other",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.operation == "" {
				tc.operation = admission.Create
			}
			if tc.resource == "" {
				tc.resource = "ingresses"
			}
			group := groupFrom(t, map[string]string{"p": forAll(tc.spec)})
			host := hostOf()
			host.Lookups = tc.stored
			resp := evaluate(t, group, storedReview(t, tc.operation, tc.resource, tc.object, tc.old), host)
			got := ""
			if !resp.Allowed {
				got = resp.Result.Message
			}
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestLookupsAreRead once for each request, also if match conditions, validations, messages and annotations read them.
func TestLookupsAreReadOnce(t *testing.T) {
	spec := "lookups: [" + sameHost + "]\nmatchConditions: [{name: c, expression: 'lookups.sameHost.size() > 0'}]\n" +
		"validations: [{expression: 'lookups.sameHost.size() > 1', messageExpression: 'lookups.sameHost[0].name'},\n" +
		"{expression: 'lookups.sameHost.size() > 2'}]\n" +
		"auditAnnotations: [{key: k, valueExpression: 'lookups.sameHost[0].name'}]\nbindings: [{name: a}, {name: b}]"
	var queries []lookups.Query
	host := hostOf()
	host.Lookups = lookupsFunc(func(q lookups.Query) (lookups.Result, error) {
		queries = append(queries, q)
		return lookups.Result{Values: []lookups.Value{{Namespace: "n", Name: "x"}}}, nil
	})
	review := storedReview(t, admission.Update, "ingresses", ingress("new", "1", "a", "b", "a"), ingress("new", "1"))
	resp := evaluate(t, groupFrom(t, map[string]string{"p": forAll(spec)}), review, host)
	if resp.Allowed || !strings.Contains(resp.Result.Message, "x") || resp.AuditAnnotations["p.k"] != "x" {
		t.Errorf("got %v %v", resp.Result, resp.AuditAnnotations)
	}
	own := lookups.Own{UID: "1", IsStored: true, Namespace: "shop", Name: "new"}
	want := []lookups.Query{{Keys: []string{"a", "b"}, Match: "Any", Namespace: "shop", Own: own}}
	if diff := cmp.Diff(want, queries); diff != "" {
		t.Error(diff)
	}
}

// TestForgedUID: the UID that a client writes into a new object hides no stored one.
func TestForgedUID(t *testing.T) {
	host := hostOf()
	host.Lookups = storedObjects{"ingresses": {ingress("old", "1", "a")}}
	group := groupFrom(t, map[string]string{"p": forAll(uniqueHost)})
	review := storedReview(t, admission.Create, "ingresses", ingress("new", "1", "a"), "")
	if resp := evaluate(t, group, review, host); resp.Allowed || !strings.Contains(resp.Result.Message, "shop/old") {
		t.Errorf("allowed: %t, %v", resp.Allowed, resp.Result)
	}
}

// TestLookupsOfSubresources: the object of some subresources is another one than that of the resource, which is then found.
func TestLookupsOfSubresources(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, uid: '1'}}"
	host := hostOf()
	host.Lookups = storedObjects{"pods": {pod}}
	group := groupFrom(t, map[string]string{"p": strings.Replace(forAll(`lookups: [{name: pods, resource: {version: v1, resource: pods},
  storedKeys: '[stored.metadata.name]', requestKeys: '[request.name]'}]
validations: [{expression: 'lookups.pods.size() == 0'}]`), "resources: ['*']", "resources: ['*/*']", 1)})
	for _, tc := range []struct {
		operation   admission.Operation
		subresource string
		wantFound   bool
	}{
		{admission.Update, "", false},
		{admission.Update, "status", false},
		{admission.Update, "ephemeralcontainers", false},
		{admission.Connect, "exec", true},
		{admission.Create, "eviction", true},
	} {
		t.Run(tc.subresource, func(t *testing.T) {
			review := storedReview(t, tc.operation, "pods", pod, pod)
			review.SubResource, review.RequestSubResource = tc.subresource, tc.subresource
			if resp := evaluate(t, group, review, host); resp.Allowed == tc.wantFound {
				t.Errorf("allowed: %t, %v", resp.Allowed, resp.Result)
			}
		})
	}
}

// TestTracesOfLookups: a trace has the keys and what they find.
func TestTracesOfLookups(t *testing.T) {
	compiled := mustCompile(t, NewTracingCompiler(LatestEngine), policyFrom(t, "p", forAll(uniqueHost)))
	host := hostOf()
	host.Lookups = storedObjects{"ingresses": {ingress("old", "1", "a")}}
	var got []LookedUp
	fields := map[string]bool{}
	ctx := WithTrace(t.Context(), Trace{
		Lookup:     func(l LookedUp) { got = append(got, l) },
		Expression: func(e Evaluated) { fields[e.Field] = true },
	})
	review := storedReview(t, admission.Create, "ingresses", ingress("new", "", "a"), "")
	if _, err := NewGroup([]*Compiled{compiled}).Validate(ctx, review, host); err != nil {
		t.Fatal(err)
	}
	want := []LookedUp{{
		Policy: "p", Lookup: "sameHost", Definition: compiled.LookupNeeds()[0].Definition,
		Found: []lookups.Value{{Namespace: "shop", Name: "old"}},
		Query: lookups.Query{
			Keys: []string{"a"}, Match: "Any", Namespace: "shop", Own: lookups.Own{IsStored: true, Namespace: "shop", Name: "new"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !fields["spec.lookups[0].requestKeys"] {
		t.Errorf("the trace has %v", fields)
	}
}

// TestLookupErrors are decided by failurePolicy.
func TestLookupErrors(t *testing.T) {
	failing := lookupsFunc(func(lookups.Query) (lookups.Result, error) { return lookups.Result{}, errors.New("not loaded yet") })
	tests := map[string]struct {
		spec         string
		lookups      Lookups
		want         string
		wantDecision Decision
	}{
		"Fail": {
			spec: uniqueHost, lookups: failing, want: `lookup "sameHost": not loaded yet`, wantDecision: DecisionError,
		},
		"Ignore":     {spec: uniqueHost + "\nfailurePolicy: Ignore", lookups: failing, wantDecision: DecisionError},
		"no lookups": {spec: uniqueHost, want: `lookup "sameHost": stored objects are not available here`, wantDecision: DecisionError},
		"a match condition": {
			spec: "lookups: [" + sameHost + "]\nmatchConditions: [{name: c, expression: 'lookups.sameHost.size() > 0'}]\n" +
				"validations: [{expression: 'true'}]",
			lookups: failing, want: "not loaded yet", wantDecision: DecisionError,
		},
		"not read": {
			spec: "lookups: [" + sameHost + "]\nvalidations: [{expression: 'true || lookups.sameHost.size() > 0'}]", lookups: failing,
			wantDecision: DecisionAllow,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host, decisions := hostOf(), map[string]Decision{}
			host.Lookups, host.Observe = tc.lookups, observeInto(decisions)
			group := groupFrom(t, map[string]string{"p": forAll(tc.spec)})
			resp := evaluate(t, group, storedReview(t, admission.Create, "ingresses", ingress("new", "", "a"), ""), host)
			got := ""
			if !resp.Allowed {
				got = resp.Result.Message
			}
			if (tc.want == "") != resp.Allowed || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if decisions["p"] != tc.wantDecision {
				t.Errorf("the decision is %s", decisions["p"])
			}
		})
	}
}

func TestLookupCompileErrors(t *testing.T) {
	lookup := func(name, requestKeys string) string {
		return "{name: " + name + ", resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '" + requestKeys + "'}"
	}
	tests := map[string]struct {
		spec, want string
		errors     int // default 1
	}{
		"of itself": {
			spec: "lookups: [" + lookup("a", `lookups.a.map(x, x.name)`) + "]",
			want: "spec.lookups[0].requestKeys: Invalid value: \"lookups.a.map(x, x.name)\": requestKeys cannot read lookups",
		},
		"of each other": {
			errors: 2,
			spec:   "lookups: [" + lookup("a", `[lookups.b[0].name]`) + ", " + lookup("b", `[lookups.a[0].name]`) + "]",
			want:   "spec.lookups[1].requestKeys: Invalid value: \"[lookups.a[0].name]\": requestKeys cannot read lookups",
		},
		"by a variable": {
			spec: "variables: [{name: v, expression: 'lookups.a'}, {name: w, expression: '[string(variables.v.size())]'}]\n" +
				"lookups: [" + lookup("a", `variables.w`) + "]",
			want: "requestKeys cannot read variables.w, because that variable reads lookups: use variables that read no lookup",
		},
		"no list": {
			spec: "lookups: [" + lookup("a", `"x"`) + "]", want: "must evaluate to list(string) but got string: write one key as [key]",
		},
		"a variable with another type": {
			spec: "variables: [{name: v, expression: '[\"x\"]'}]\nlookups: [" + lookup("a", `[variables.v[0] + 1]`) + "]",
			want: "spec.lookups[0].requestKeys: Invalid value: \"[variables.v[0] + 1]\": compilation failed: ",
		},
		"a value of many types": {
			spec: "lookups: [{name: a, resource: {version: v1, resource: pods}, storedKeys: '[]', requestKeys: '[]',\n" +
				"value: '" + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "'}]",
			want: "the type of the value consists of more than 32 types: use fewer lists and maps within each other",
		},
		"an unknown name":    {spec: "lookups: [" + lookup("a", `[objekt.x]`) + "]", want: "undeclared reference to 'objekt'"},
		"params without any": {spec: "lookups: [" + lookup("a", `[params.x]`) + "]", want: "params needs spec.paramKind"},
		"an unknown lookup": {
			spec: "lookups: [" + lookup("some", `[]`) + "]\nvalidations: [{expression: 'lookups.sone == []'}]",
			want: "spec.validations[0].expression: Invalid value: \"lookups.sone == []\": there is no lookup sone, did you mean some?",
		},
		"lookups without any": {
			spec: "validations: [{expression: 'lookups.a == []'}]", want: "there is no lookup a: define it in spec.lookups",
		},
		"the type of elements": {
			spec: "lookups: [" + lookup("a", `[]`) + "]\nvalidations: [{expression: 'lookups.a[0].name == 1'}]",
			want: "found no matching overload for '_==_' applied to '(string, int)'",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, errs := sharedCompiler.Compile(policyFrom(t, "p", tc.spec))
			if len(errs) != max(tc.errors, 1) {
				t.Errorf("got %d errors: %v", len(errs), errs)
			}
			if got := errs.ToAggregate(); got == nil || !strings.Contains(got.Error(), tc.want) {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}

// TestLookupsCostTheList: a list counts in the budget of the policy, and one beyond it is an error.
func TestLookupCosts(t *testing.T) {
	value := lookups.Value{Namespace: "n", Name: "x", JSON: `"` + strings.Repeat("x", 1000) + `"`}
	many := lookupsFunc(func(lookups.Query) (lookups.Result, error) {
		out := lookups.Result{}
		for range lookups.MaxValues {
			out.Values = append(out.Values, value)
		}
		return out, nil
	})
	spec := "lookups: ["
	all := ""
	for i := range 10 {
		spec += strings.Replace(sameHost, "name: sameHost", fmt.Sprintf("name: l%d", i), 1) + ", "
		all += fmt.Sprintf("lookups.l%d.size() + ", i)
	}
	spec = forAll(strings.TrimSuffix(spec, ", "))
	group := groupFrom(t, map[string]string{"p": spec + "]\nvalidations: [{expression: '" + all + "0 == 10000'}]"})
	host := hostOf()
	host.Lookups = many
	review := storedReview(t, admission.Create, "ingresses", ingress("new", "", "a"), "")
	if resp := evaluate(t, group, review, host); !resp.Allowed {
		t.Error(resp.Result)
	}
	_, cost, err := listOf(lookups.Result{Values: []lookups.Value{value, value}})
	if want := int64(1 + 2*(1+1004/10)); err != nil || cost != want {
		t.Errorf("the cost is %d, want %d, %v", cost, want, err)
	}
}

// TestLookupsOfStoredObjects: a ratcheting validation is evaluated on the stored object with its own keys.
func TestLookupsOfStoredObjects(t *testing.T) {
	spec := "lookups: [" + sameHost + "]\nvalidations: [{name: v, ratchet: true, expression: 'lookups.sameHost.size() == 0', message: no}]"
	stored := storedObjects{"ingresses": {ingress("other", "2", "a.example")}}
	tests := map[string]struct {
		old  string
		want bool // whether it is allowed
	}{
		"the stored object fails too":        {old: ingress("web", "1", "a.example"), want: true},
		"the stored object has another host": {old: ingress("web", "1", "b.example")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := hostOf()
			host.Lookups = stored
			group := groupFrom(t, map[string]string{"p": forAll(spec)})
			review := storedReview(t, admission.Update, "ingresses", ingress("web", "1", "a.example"), tc.old)
			if resp := evaluate(t, group, review, host); resp.Allowed != tc.want {
				t.Errorf("allowed is %t: %v", resp.Allowed, resp.Result)
			}
		})
	}
}

// TestLookupsOfTemplates: policies for Pods see the Pod of a template, and the object of the request is the workload.
func TestLookupsOfTemplates(t *testing.T) {
	spec := "lookups: [{name: same, resource: {group: apps, version: v1, resource: deployments},\n" +
		"storedKeys: '[stored.spec.template.spec.host]', requestKeys: '[object.spec.?host.orValue(\"\")]'}]\n" +
		"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n" +
		"podTemplates: {}\n" +
		"validations: [{expression: 'lookups.same.size() == 0', messageExpression: 'object.kind + lookups.same.map(o, o.name).join(\",\")'}]"
	deployment := func(name, uid string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: " + name + ", uid: '" + uid + "'}, " +
			"spec: {template: {spec: {host: a}}}}"
	}
	host := hostOf()
	host.Lookups = storedObjects{"deployments": {deployment("a", "1"), deployment("b", "2")}}
	group := templateGroupFrom(t, map[string]string{"p": spec})
	resp := evaluate(t, group, storedReview(t, admission.Create, "deployments", deployment("a", "1"), ""), host)
	if resp.Allowed || !strings.HasSuffix(resp.Result.Message, "Podb") {
		t.Errorf("got %v", resp.Result)
	}
}

// TestMutationsReadLookups of the object that they change.
func TestMutationsReadLookups(t *testing.T) {
	spec := "lookups: [{name: same, resource: {version: v1, resource: pods}, storedKeys: '[stored.metadata.labels.app]',\n" +
		"requestKeys: '[object.metadata.?labels.app.orValue(\"\")]'}]\n" +
		"matchConditions: [{name: none, expression: 'lookups.same.size() == 0'}]\n" +
		mutations(label("app", `"x"`), label("others", `string(lookups.same.size())`))
	host := (&world{}).host()
	host.Lookups = storedObjects{"pods": {"{metadata: {namespace: shop, name: a, labels: {app: x}}}"}}
	review := storedReview(t, admission.Create, "pods", "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: b}, spec: {}}", "")
	resp := mutate(t, groupFrom(t, map[string]string{"p": spec}), review, host)
	if !resp.Allowed || !strings.Contains(string(resp.Patch), `"others":"1"`) {
		t.Errorf("got %v %s", resp.Result, resp.Patch)
	}
}
