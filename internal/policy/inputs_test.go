package policy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// TestReadsOf: a policy reads what its expressions may select, and no more where that is known.
func TestReadsOf(t *testing.T) {
	parts := func(paths ...string) unstructuredjson.Selection {
		out := identity()
		for _, path := range paths {
			out = out.Union(unstructuredjson.Path(strings.Split(path, ".")...))
		}
		return out
	}
	none, everything := inputs{object: parts()}, unstructuredjson.Everything()
	object := func(paths ...string) inputs { return inputs{object: parts(paths...)} }
	validation := func(expression string) string {
		return "validations: [{expression: " + strconv.Quote(expression) + "}]"
	}
	tests := map[string]struct {
		spec string
		want inputs
	}{
		"nothing":                       {validation(`request.name == 'object.spec'`), none},
		"a field":                       {validation(`object.spec.replicas > 1`), object("spec.replicas")},
		"whether there is a field":      {validation(`has(object.spec.replicas)`), object("spec.replicas")},
		"optional fields":               {validation(`object.?spec.?replicas.hasValue()`), object("spec.replicas")},
		"an optional value":             {validation(`object.?spec.replicas.orValue(1) > 1`), object("spec.replicas")},
		"a constant key":                {validation(`object['spec'].labels[?'a/b'].hasValue()`), object("spec.labels")},
		"a computed key":                {validation(`object.spec['re' + 'plicas'] > 1`), object("spec")},
		"a computed key of the object":  {validation(`object[request.name] > 1`), inputs{object: everything}},
		"a range":                       {validation(`object.spec.containers.all(c, c.image != '')`), object("spec.containers")},
		"a list":                        {validation(`(object.spec.containers + object.spec.?initContainers.orValue([])).size() > 0`), object("spec.containers", "spec.initContainers")},
		"an element":                    {validation(`object.spec.containers[0].image != ''`), object("spec.containers")},
		"a key in a map":                {validation(`'a' in object.metadata.labels`), object("metadata.labels")},
		"an escaped name":               {validation(`object.spec.__if__.x == 1`), object("spec")},
		"a name that can be escaped":    {validation(`object.spec.a__b == 1`), object("spec")},
		"a quoted name":                 {validation("object.spec.`a-b` == 1"), object("spec")},
		"several lines":                 {validation("object\n  .spec // object\n  .replicas > 1"), object("spec.replicas")},
		"a leading dot":                 {validation(`.object.spec.replicas > 1`), object("spec.replicas")},
		"bound":                         {validation(`cel.bind(o, object.spec, o.replicas > 1)`), object("spec")},
		"bound to the name of an input": {validation(`cel.bind(object, 1, object == 1)`), inputs{object: everything}},
		"as a value":                    {validation(`[object].size() == 1`), inputs{object: everything}},
		"without a type":                {validation(`dyn(object).spec.x == 1`), inputs{object: everything}},
		"compared":                      {validation(`object == oldObject`), inputs{object: everything, oldObject: everything}},
		"whether there is an object":    {validation(`object != null`), none},
		"a part compared with null":     {validation(`object.spec == null`), object("spec")},
		"old object":                    {validation(`oldObject == null || oldObject.spec.replicas == object.spec.replicas`), inputs{object: parts("spec.replicas"), oldObject: parts("spec.replicas")}},
		"whether there is an old one":   {validation(`null == oldObject`), inputs{object: parts(), oldObject: parts()}},
		"in a message":                  {"validations: [{expression: 'true', messageExpression: 'string(object.a)'}]", object("a")},
		"in a match condition":          {`{matchConditions: [{name: a, expression: 'namespaceObject == null'}], validations: [{expression: 'true'}]}`, inputs{object: parts(), namespace: true}},
		"in a variable":                 {`{variables: [{name: a, expression: 'object.a.b'}], validations: [{expression: 'true'}]}`, object("a.b")},
		"in an audit annotation":        {`auditAnnotations: [{key: a, valueExpression: 'string(object.a)'}]`, object("a")},
		"options":                       {validation(`request.options.x == 1`), inputs{object: parts(), options: true}},
		"options by a key":              {validation(`dyn(request)['opt' + 'ions'] == null`), inputs{object: parts(), options: true}},
		"another field of the request":  {validation(`request.userInfo.username == 'options'`), none},
		"an optional one":               {validation(`request.?name.hasValue()`), none},
		"the whole request":             {`{variables: [{name: r, expression: 'request'}], validations: [{expression: 'true'}]}`, inputs{object: parts(), options: true}},
		"a longer name":                 {`{variables: [{name: object_, expression: '1'}], validations: [{expression: 'variables.object_ == 1'}]}`, none},
		"an object selector":            {"bindings: [{name: a, matchResources: {objectSelector: {matchLabels: {a: b}}}}]\n" + validation(`object.a == 1`), inputs{object: parts("a", "metadata.labels"), oldObject: parts("metadata.labels")}},
		"a syntax error":                {validation(`object.`), inputs{object: everything, oldObject: everything, namespace: true, options: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			compiled, _ := NewCompiler().Compile(policyFrom(t, "p", tc.spec))
			if diff := cmp.Diff(tc.want, compiled.reads, cmp.AllowUnexported(inputs{}, unstructuredjson.Selection{})); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
}
