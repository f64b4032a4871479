package typecheck

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func document(t *testing.T, name string) *Document {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// kinds are those of a cluster, by their names.
func kinds(t *testing.T) map[string]Kind {
	t.Helper()
	core, apps := document(t, "core.json"), document(t, "apps.json")
	out := map[string]Kind{"Rocket": {GroupVersionKind: schema.GroupVersionKind{Group: "acme.io", Version: "v1", Kind: "Rocket"}}}
	for _, kind := range []string{"Pod", "ConfigMap", "Secret", "Service"} {
		out[kind] = Kind{schema.GroupVersionKind{Version: "v1", Kind: kind}, core}
	}
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		out[kind] = Kind{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}, apps}
	}
	return out
}

func check(t *testing.T, spec string, params string, names ...string) []string {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.WebhookPolicy{}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	all := kinds(t)
	var matched []Kind
	for _, name := range names {
		matched = append(matched, all[name])
	}
	var stored []Kind
	for i := range p.Spec.Lookups { // by the singular of the resource
		for name, kind := range all {
			if strings.ToLower(name)+"s" == p.Spec.Lookups[i].Resource.Resource {
				stored = append(stored, kind)
			}
		}
	}
	var out []string
	for _, w := range c.Check(context.Background(), p, matched, Others{Params: all[params], Stored: stored}) {
		out = append(out, w.Field+": "+w.Text)
	}
	return out
}

func TestCheck(t *testing.T) {
	const v0, l0 = "spec.validations[0].expression: ", "spec.lookups[0]."
	lookup := func(resource, storedKeys, requestKeys, value string) string {
		return fmt.Sprintf("lookups: [{name: l, resource: {version: v1, resource: %s}, storedKeys: %q, requestKeys: %q, value: %q}]\n",
			resource, storedKeys, requestKeys, value)
	}
	validation := func(e string) string { return "validations:\n- expression: >-\n    " + e + "\n" }
	tests := map[string]struct {
		spec   string
		kinds  []string
		params string
		want   []string
	}{
		"right": {spec: validation("object.spec.hostNetwork == true"), kinds: []string{"Pod"}},
		"misspelt": {
			spec:  validation("object.spec.hostNetwrk == true"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"misspelt at the top": {
			spec:  validation("object.sepc.hostNetwork == true"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field sepc, did you mean spec?"},
		},
		"misspelt in a test": {
			spec:  validation("!has(object.spec.hostNetwrk)"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"misspelt, optional": {
			spec:  validation("object.spec.?hostNetwrk.orValue(false) == false"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"misspelt in a list": {
			spec:  validation("object.spec.containers.all(c, c.imag != '')"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field spec.containers[*].imag, did you mean image?"},
		},
		"misspelt twice": {
			spec:  validation("object.spec.hostNetwrk == object.spec.hostPDI"),
			kinds: []string{"Pod"},
			want: []string{
				v0 + "Pod has no field spec.hostNetwrk, did you mean hostNetwork?",
				v0 + "Pod has no field spec.hostPDI, did you mean hostPID?",
			},
		},
		"misspelt in the old object": {
			spec:  validation("oldObject.metadata.namex == 'a'"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field metadata.namex, did you mean name?"},
		},
		"misspelt in a stored object": {
			spec:  lookup("pods", "[stored.spec.nodeNam]", "[object.spec.type]", "") + validation("true"),
			kinds: []string{"Service"},
			want:  []string{l0 + "storedKeys: Pod has no field spec.nodeNam, did you mean nodeName?"},
		},
		"misspelt in the value and the keys of a request": {
			spec:  lookup("pods", "[stored.spec.nodeName]", "[object.spec.typ]", "stored.spec.containers[0].imag") + validation("true"),
			kinds: []string{"Service"},
			want: []string{
				l0 + "value: Pod has no field spec.containers[*].imag, did you mean image?",
				l0 + "requestKeys: Service has no field spec.typ, did you mean type?",
			},
		},
		"keys of a stored object that are no strings": {
			spec:  lookup("pods", "stored.spec.containers[0].ports.map(p, p.containerPort)", "[]", "") + validation("true"),
			kinds: []string{"Service"},
			want:  []string{l0 + "storedKeys: for Pod: the keys of an object returns list(string) or list(dyn), and this returns list(int)"},
		},
		"the list of a lookup": {
			spec: lookup("pods", "[]", "[]", "stored.spec.containers") +
				validation("lookups.l.all(c, c[0].imag == '') && lookups.l[0][0].image != ''"),
			kinds: []string{"Service"},
			want:  []string{v0 + "Pod has no field spec.containers[*].imag, did you mean image?"},
		},
		"the list of names": {
			spec: lookup("pods", "[]", "[]", "") + validation("lookups.l[0].name == 1"), kinds: []string{"Service"},
			want: []string{v0 + "for Service: the operator == does not take (string, int) at column 19"},
		},
		"stored objects of an unknown kind": {
			spec: lookup("rovers", "[stored.x.y]", "[]", "stored.z") + validation("lookups.l[0].a == 1"), kinds: []string{"Service"},
		},
		"nothing similar": {
			spec:  validation("object.spec.rocket == true"),
			kinds: []string{"Pod"},
			want:  []string{v0 + "Pod has no field spec.rocket"},
		},
		"several kinds": {
			spec:  validation("object.spec.replicsa > 1"),
			kinds: []string{"Deployment", "StatefulSet"},
			want:  []string{v0 + "Deployment and StatefulSet have no field spec.replicsa, did you mean replicas?"},
		},
		"one of several kinds": {
			spec:  validation("object.spec.replicas > 1"),
			kinds: []string{"Deployment", "Pod"},
			want:  []string{v0 + "Pod has no field spec.replicas"},
		},
		"kinds distinguished by has()": {
			spec:  validation("!has(object.spec.replicas) || object.spec.replicas > 1"),
			kinds: []string{"Deployment", "Pod"},
		},
		"a typing error in has()": {
			spec:  validation("!has(object.spec.replicsa)"),
			kinds: []string{"Deployment", "Pod"},
			want: []string{
				v0 + "Deployment has no field spec.replicsa, did you mean replicas?", v0 + "Pod has no field spec.replicsa",
			},
		},
		"a kind without a schema": {spec: validation("object.spec.anything"), kinds: []string{"Rocket"}},
		"keywords": {
			spec:  validation("object.metadata.namespace == 'a' && object.metadata.__namespace__ == 'a'"),
			kinds: []string{"Pod"},
		},
		"quantities": {
			spec: validation("object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && " +
				"quantity(c.resources.limits['cpu']).isLessThan(quantity('1')))"),
			kinds: []string{"Pod"},
		},
		"an integer or a string": {
			spec:  validation("object.spec.ports.all(p, p.targetPort == 80 || p.targetPort == 'http')"),
			kinds: []string{"Service"},
		},
		"a time is a string": {
			spec: validation("timestamp(object.metadata.creationTimestamp) < timestamp('2030-01-01T00:00:00Z') && " +
				"object.metadata.creationTimestamp != ''"),
			kinds: []string{"Pod"},
		},
		"a Secret has strings": {spec: validation("object.data['a'] == 'YQ=='"), kinds: []string{"Secret"}},
		"an object as a map": {
			spec: validation("'hostNetwork' in object.spec && object['spec'] != {} && object.spec.all(k, k != '') && " +
				"size(object.spec) > 0 && object.spec[?'hostPID'] != optional.none()"),
			kinds: []string{"Pod"},
		},
		"a default of an object": {
			spec:  validation("object.spec.?securityContext.orValue({}) == {}"),
			kinds: []string{"Pod"},
		},
		"null": {
			spec:  validation("object == null || oldObject != null || object.spec.securityContext == null"),
			kinds: []string{"Pod"},
		},
		"numbers and strings": {
			spec:  validation("object.spec.replicas > '5'"),
			kinds: []string{"Deployment"},
			want:  []string{v0 + "for Deployment: the operator > does not take (int, string) at column 22"},
		},
		"a function": {
			spec:  validation("object.spec.replicas.startsWith('a')"),
			kinds: []string{"Deployment"},
			want:  []string{v0 + "for Deployment: the function startsWith does not take int.(string) at column 32"},
		},
		"a field of a number": {
			spec:  validation("object.spec.replicas.min > 1"),
			kinds: []string{"Deployment"},
			want:  []string{v0 + "for Deployment: int has no fields at column 21"},
		},
		"all of a number": {
			spec:  validation("object.spec.replicas.all(r, r > 1)"),
			kinds: []string{"Deployment"},
			want: []string{
				v0 + "for Deployment: a macro such as all or exists takes a list or a map, and not int at column 12",
			},
		},
		"a number for a bool": {
			spec:  validation("object.spec.replicas"),
			kinds: []string{"Deployment"},
			want:  []string{v0 + "for Deployment: a validation returns bool, and this returns int"},
		},
		"a variable": {
			spec: "variables: [{name: spec, expression: object.spec}, {name: count, expression: variables.spec.replicsa}]\n" +
				validation("variables.spec.paused == true && variables.count > 1"),
			kinds: []string{"Deployment"},
			want:  []string{"spec.variables[1].expression: Deployment has no field spec.replicsa, did you mean replicas?"},
		},
		"a field of a variable": {
			spec:  "variables: [{name: spec, expression: object.spec}]\n" + validation("variables.spec.replicsa > 1"),
			kinds: []string{"Deployment"},
			want:  []string{v0 + "Deployment has no field spec.replicsa, did you mean replicas?"},
		},
		"a match condition": {
			spec:  "matchConditions: [{name: a, expression: object.spec.hostNetwrk}]\n" + validation("true"),
			kinds: []string{"Pod"},
			want:  []string{"spec.matchConditions[0].expression: Pod has no field spec.hostNetwrk, did you mean hostNetwork?"},
		},
		"a message": {
			spec:  "validations: [{expression: 'false', messageExpression: object.metadata.nmae}]",
			kinds: []string{"Pod"},
			want:  []string{"spec.validations[0].messageExpression: Pod has no field metadata.nmae, did you mean name?"},
		},
		"a message of another type": {
			spec:  "validations: [{expression: 'false', messageExpression: object.spec.replicas}]",
			kinds: []string{"Deployment"},
			want: []string{
				"spec.validations[0].messageExpression: for Deployment: a message returns string, and this returns int",
			},
		},
		"an audit annotation": {
			spec:  "auditAnnotations: [{key: a, valueExpression: object.metadata.nmae}]",
			kinds: []string{"Pod"},
			want:  []string{"spec.auditAnnotations[0].valueExpression: Pod has no field metadata.nmae, did you mean name?"},
		},
		"params": {
			spec:   "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + validation("params.dta.max == object.metadata.name"),
			kinds:  []string{"Pod", "Deployment"},
			params: "ConfigMap",
			want:   []string{v0 + "ConfigMap has no field dta, did you mean data?"},
		},
		"params without a schema": {
			spec:   "paramKind: {apiVersion: acme.io/v1, kind: Rocket}\n" + validation("params.dta.max == object.metadata.name"),
			kinds:  []string{"Pod"},
			params: "Rocket",
		},
		"what every expression reads": {
			spec: validation("request.userInfo.username == 'a' && namespaceObject.metadata.name == 'a' && " +
				"authorizer.requestResource.check('get').allowed()"),
			kinds: []string{"Pod"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, check(t, tt.spec, tt.params, tt.kinds...)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
