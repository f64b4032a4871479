package policy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Objects that are costly to evaluate end by the cost limit or by a result, and
// never let a request pass that a policy denies.
func TestCostlyObjects(t *testing.T) {
	large := strings.Repeat("a", 3<<20)
	for name, tt := range map[string]struct{ expression, text string }{
		"exponent":        {`quantity(object.x).isGreaterThan(quantity("1")) && false`, "1e999999999"},
		"small exponent":  {`quantity(object.x).add(quantity("1")).isInteger() && false`, "1e-999999999"},
		"tested exponent": {`isQuantity(object.x) && quantity(object.x).isLessThan(quantity("1")) && false`, "1E999999999"},
		"many digits":     {`isQuantity(object.x) && quantity(object.x).isLessThan(quantity("1"))`, strings.Repeat("9", 3<<20)},
		"multiplied":      {`object.x.replace("", object.x) == ""`, large},
		"multiplied once": {`object.x.replace("a", object.x, 100000) == ""`, large},
		"joined":          {`object.x.split("").join(object.x) == ""`, large},
		"concatenated":    {`object.x.split("").map(c, object.x + object.x).size() == 1`, strings.Repeat("a", 10<<10)},
		"range":           {`lists.range(int(object.x)).size() == 1`, "10000000000"},
		"distinct":        {`lists.range(1000000).distinct().size() == 1`, ""},
		"subset":          {`!sets.contains(object.x.split(""), object.x.split(""))`, large},
		"search":          {`object.x.indexOf(object.x.substring(1000000) + "b") == 1`, large},
		"last search":     {`object.x.lastIndexOf(object.x.substring(1000000) + "b") == 1`, large},
		"digits":          {`quantity(object.x).isGreaterThan(quantity("1")) && false`, strings.Repeat("9", 100_000)},
		"matches":         {`object.x.matches("(a*)*b") || object.x.matches("(a|a)*$x")`, large},
		"find":            {`object.x.find("(a*)*b") == "x"`, large},
		"findAll":         {`object.x.findAll("a").size() == 1`, large},
		"pattern":         {`"a".matches(object.x) && false`, strings.Repeat("(a{1000})", 300)},
		"large pattern":   {`"a".matches(object.x) && false`, large},
		"nested pattern":  {`"a".matches(object.x) && false`, strings.Repeat("(", 900) + "a" + strings.Repeat(")*", 900)},
		"cidr":            {`cidr(object.x).containsIP("1.1.1.1")`, large},
		"ip":              {`isIP(object.x)`, large},
		"url":             {`isURL(object.x) && false`, "https://" + large},
		"semver":          {`isSemver(object.x)`, strings.Repeat("1.", 1<<20)},
		"format":          {`!format.dns1123Label().validate(object.x).hasValue()`, large},
		"split":           {`object.x.split("").size() == 1`, large},
		"join":            {`object.x.split("").join("bbbbbbbb") == ""`, large},
		"replace":         {`object.x.replace("a", "bbbbbbbbbbbbbbbb") == ""`, large},
		"sets":            {`!sets.intersects(object.x.split(""), object.x.split("")) `, strings.Repeat("ab", 1<<15)},
		"sort":            {`object.x.split("").sort().size() == 1`, large},
		"formatted":       {`"%s%s%s%s".format([object.x, object.x, object.x, object.x]) == ""`, large},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, "p", "validations: [{expression: 'true'}]")
			p.Spec.Validations[0].Expression = tt.expression
			compiled, errs := sharedCompiler.Compile(p)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "shop"}, "x": tt.text})
			if err != nil {
				t.Fatal(err)
			}
			request := loadReview(t, "ok").DeepCopy()
			request.Object, request.Name, request.Namespace = runtime.RawExtension{Raw: raw}, "p", "shop"
			request.Operation, request.Kind = admissionv1.Create, metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
			var got *admissionv1.AdmissionResponse
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			bytes, took := spent(func() {
				group := NewGroup([]*Compiled{compiled})
				got, err = group.Validate(ctx, request, Environment{Now: time.Now})
			})
			if err != nil || got.Allowed || strings.Contains(got.Result.Message, "panicked") {
				t.Fatalf("Validate() = %+v, %v; want a denial", got, err)
			}
			if bytes > 2<<30 {
				t.Errorf("%d MiB were allocated, want at most 2048", bytes>>20)
			}
			t.Logf("%s: %d MiB, %v: %.100s", name, bytes>>20, took, got.Result.Message)
		})
	}
}
