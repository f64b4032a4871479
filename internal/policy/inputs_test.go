package policy

import (
	"reflect"
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
	// elements of the list at a path, with the selected members of each
	elements := func(list string, members ...string) unstructuredjson.Selection {
		var of unstructuredjson.Selection
		for _, m := range members {
			of = of.Union(unstructuredjson.Path(strings.Split(m, ".")...))
		}
		return identity().Union(unstructuredjson.Elements(of).At(strings.Split(list, ".")...))
	}
	containers := func(members ...string) inputs {
		return inputs{object: elements("spec.containers", members...).Union(elements("spec.initContainers", members...))}
	}
	const all = `(object.spec.containers + object.spec.?initContainers.orValue([]))`
	validation := func(expression string) string {
		return "validations: [{expression: " + strconv.Quote(expression) + "}]"
	}
	variable := func(definition, use string) string {
		return "variables: [{name: all, expression: " + strconv.Quote(definition) + "}]\n" + validation(use)
	}
	tests := map[string]struct {
		spec string
		want inputs
	}{
		"nothing":                       {validation(`request.name == 'object.spec'`), none},
		"a field":                       {validation(`object.spec.replicas > 1`), object("spec.replicas")},
		"whether there is a field":      {validation(`has(object.spec.a)`), inputs{object: elements("spec.a")}},
		"whether one has a value":       {validation(`object.?spec.?a.hasValue()`), inputs{object: elements("spec.a")}},
		"optional fields":               {validation(`object.?spec.?a.orValue(1) > 1`), object("spec.a")},
		"the size":                      {validation(`object.spec.a.size() > size(object.spec.b)`), inputs{object: elements("spec.a").Union(elements("spec.b"))}},
		"an optional value":             {validation(`object.?spec.replicas.orValue(1) > 1`), object("spec.replicas")},
		"a constant key":                {validation(`object['spec'].labels[?'a/b'].orValue('') == ''`), object("spec.labels")},
		"a computed key":                {validation(`object.spec['re' + 'plicas'] > 1`), object("spec")},
		"a computed key of the object":  {validation(`object[request.name] > 1`), inputs{object: everything}},
		"elements":                      {validation(`object.spec.containers.all(c, c.image != '')`), inputs{object: elements("spec.containers", "image")}},
		"optional elements":             {validation(`object.?spec.?containers.orValue([]).all(c, c.a.b && c.?d.e.orValue(true))`), inputs{object: elements("spec.containers", "a.b", "d.e")}},
		"elements or none":              {validation(`(has(object.spec.containers) ? object.spec.containers : []).exists_one(c, c.a)`), inputs{object: elements("spec.containers", "a")}},
		"elements of a concatenation":   {validation(all + `.all(c, c.image != '')`), containers("image")},
		"elements that are kept":        {validation(`object.spec.containers.filter(c, c.image != '').size() > 0`), object("spec.containers")},
		"parts that are kept":           {validation(`object.spec.containers.map(c, c.image).size() > 0`), inputs{object: elements("spec.containers", "image")}},
		"parts that are filtered":       {validation(`object.spec.containers.map(c, c.image != '', c.name).size() > 0`), inputs{object: elements("spec.containers", "image", "name")}},
		"elements that are not read":    {validation(`object.spec.containers.all(c, true)`), inputs{object: elements("spec.containers")}},
		"elements of elements":          {validation(`object.spec.containers.all(c, c.ports.all(p, p.hostPort == 0) && c.ports.size() > c.a)`), inputs{object: identity().Union(unstructuredjson.Elements(unstructuredjson.Path("a").Union(unstructuredjson.Elements(unstructuredjson.Path("hostPort")).At("ports"))).At("spec", "containers"))}},
		"ports of elements":             {validation(`object.spec.containers.all(c, c.ports.all(p, p.hostPort == 0))`), inputs{object: identity().Union(unstructuredjson.Elements(unstructuredjson.Elements(unstructuredjson.Path("hostPort")).At("ports")).At("spec", "containers"))}},
		"a hidden name":                 {validation(`object.spec.containers.all(c, c.args.all(c, c.x == 1))`), inputs{object: identity().Union(unstructuredjson.Elements(unstructuredjson.Elements(unstructuredjson.Path("x")).At("args")).At("spec", "containers"))}},
		"a name that is used outside":   {validation(`object.spec.containers.all(object, object.x == 1) && object.y == 1`), inputs{object: elements("spec.containers", "x").Union(unstructuredjson.Path("y"))}},
		"two variables":                 {validation(`object.spec.containers.all(i, c, c.image != '')`), object("spec.containers")},
		"a selection of a sum":          {validation(all + `[0].image != ''`), object("spec.containers", "spec.initContainers")},
		"elements of a variable":        {variable(all, `variables.all.all(c, c.image != '')`), containers("image")},
		"a variable that is not used":   {variable(`object.a`, `true`), none},
		"a part of a variable":          {variable(`object.spec`, `variables.all.replicas > 1`), object("spec.replicas")},
		"a variable in a message":       {variable(`object.spec`, `true`) + "\nauditAnnotations: [{key: a, valueExpression: 'string(variables.all.x)'}]", object("spec.x")},
		"a variable as a value":         {variable(`object.spec`, `variables.all == null`), object("spec")},
		"all variables as a value":      {variable(`object.spec`, `dyn(variables) == null`), inputs{object: everything, oldObject: everything, namespace: true, options: true}},
		"a variable of a variable":      {"variables: [{name: a, expression: object.spec}, {name: b, expression: variables.a.x}]\n" + validation(`variables.b.y == 1`), object("spec.x.y")},
		"one in several expressions":    {variable(`object.spec`, `variables.all.a == 1`) + "\nmatchConditions: [{name: m, expression: object.b == 1}]", object("spec.a", "b")},
		"the size of a list":            {validation(all + `.size() > 0`), containers()},
		"a list":                        {validation(all + `[0] == 1`), object("spec.containers", "spec.initContainers")},
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
		"in a variable":                 {`{variables: [{name: a, expression: 'object.a.b'}], validations: [{expression: 'variables.a == 1'}]}`, object("a.b")},
		"in an audit annotation":        {`auditAnnotations: [{key: a, valueExpression: 'string(object.a)'}]`, object("a")},
		"options":                       {validation(`request.options.x == 1`), inputs{object: parts(), options: true}},
		"options by a key":              {validation(`dyn(request)['opt' + 'ions'] == null`), inputs{object: parts(), options: true}},
		"another field of the request":  {validation(`request.userInfo.username == 'options'`), none},
		"an optional one":               {validation(`request.?name.hasValue()`), none},
		"the whole request":             {`{variables: [{name: r, expression: 'request'}], validations: [{expression: 'variables.r == null'}]}`, inputs{object: parts(), options: true}},
		"a longer name":                 {`{variables: [{name: object_, expression: '1'}], validations: [{expression: 'variables.object_ == 1'}]}`, none},
		"an object selector":            {"bindings: [{name: a, matchResources: {objectSelector: {matchLabels: {a: b}}}}]\n" + validation(`object.a == 1`), inputs{object: parts("a", "metadata.labels"), oldObject: parts("metadata.labels")}},
		"a syntax error":                {validation(`object.`), inputs{object: everything, oldObject: everything, namespace: true, options: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			compiled, _ := NewCompiler().Compile(policyFrom(t, "p", tc.spec))
			got := compiled.reads
			got.params = unstructuredjson.Selection{} // TestPartsOfParams has those of params
			if diff := cmp.Diff(tc.want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Errorf("reads (-want +got):\n%s", diff)
			}
		})
	}
}
