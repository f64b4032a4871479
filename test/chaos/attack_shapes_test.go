package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// shapes make JSON values of about so many bytes that take most to decode,
// compare, copy or match.
func shapes() map[string]func(size int) string {
	list := func(element string) func(int) string {
		return func(size int) string {
			return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
		}
	}
	text := func(part string) func(int) string {
		return func(size int) string { return `"` + strings.Repeat(part, size/len(part)) + `!"` }
	}
	const deepest = 9_000
	return map[string]func(int) string{
		"objects":   list("{}"),
		"arrays":    list("[]"),
		"small":     list(`{"":0}`),
		"numbers":   list("1000"),
		"strings":   list(`"a"`),
		"addresses": list(`"255.255.255.255/33"`),
		"decimals":  list("1e-9"),
		"escapes":   text(`\u003c`),
		"letters":   text("a"),
		"commas":    text(","),
		"depth": func(int) string {
			return strings.Repeat(`{"a":`, deepest) + "0" + strings.Repeat("}", deepest)
		},
		"exponent": func(int) string { return `"1e999999999"` },
		"members": func(size int) string {
			var b strings.Builder
			for i := 0; b.Len() < size; i++ {
				fmt.Fprintf(&b, `"%x":0,`, i)
			}
			return "{" + b.String() + `"":0}`
		},
	}
}

// costly is an object that takes much to answer.
type costly struct {
	aim                   string // the policy that it is made for
	group, kind, resource string
	object                func(size int) string // with the name bad-bomb
	sizes                 []int
}

// objectBombs are objects that cost most, by what they cost: decoding, or the work of
// the policy that they are made for.
func objectBombs() map[string]costly {
	requests := []int{1 << 20, 3 << 20}
	made := func(apiVersion, kind, rest string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"bad-bomb","namespace":"` +
			attackedPlace + `"},` + rest + `}`
	}
	custom := func(aim string, sizes []int, before string, shape func(int) string, after string) costly {
		return costly{aim, "attack.example.com", "Bomb", "bombs", func(size int) string {
			return made("attack.example.com/v1", "Bomb", before+shape(size)+after)
		}, sizes}
	}
	list := func(element string) func(int) string {
		return func(size int) string {
			return "[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]"
		}
	}
	out := map[string]costly{
		"regexp/long": custom("attacked-regexp", requests, `"spec":[`, shapes()["letters"], `]`),
		"regexp/many": custom("attacked-regexp", requests, `"spec":`, list(`"`+strings.Repeat("a", 200)+`!"`), ``),
		"cidr/v4":     custom("attacked-cidr", requests, `"spec":`, list(`"255.255.255.255/31"`), ``),
		"cidr/v6": custom("attacked-cidr", requests, `"spec":`,
			list(`"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/127"`), ``),
		"quantity/many": custom("attacked-quantity", requests, `"spec":`,
			list(`"1e999999999","-9999999999999999999999Ei","1e-999999999"`), ``),
		"quantity/digits": custom("attacked-quantity", requests, `"spec":[`,
			func(size int) string { return `"` + strings.Repeat("9", size) + `"` }, `]`),
		"jsonpatch/copy":  custom("attacked-patch", requests, `"spec":{"a":`, shapes()["small"], `}`),
		"jsonpatch/depth": custom("attacked-patch", requests, `"spec":{"a":`, shapes()["depth"], `}`),
		"merge/members": {aim: "attacked-merge", group: "", kind: "ConfigMap", resource: "configmaps",
			object: func(size int) string {
				return made("v1", "ConfigMap", `"data":`+strings.ReplaceAll(shapes()["members"](size), ":0", `:""`))
			}, sizes: requests},
		"merge/containers": {
			aim:      "attacked-merge",
			kind:     "Pod",
			resource: "pods",
			object:   func(size int) string { return made("v1", "Pod", `"spec":{"containers":[`+containers(size)+`]}`) },
			sizes:    requests,
		},
	}
	for name, shape := range shapes() {
		out["decoding/"+name] = custom("attacked-names", []int{3 << 20, 7 << 20, 18 << 20}, `"spec":`, shape, ``)
	}
	return out
}

func containers(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"name":"c%x"},`, i)
	}
	return b.String() + `{"name":"last"}`
}

// policyBombs are policies that take long to compile.
func policyBombs() map[string]string {
	repeat := func(element string, n int) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	var variables strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&variables, `{"name":"v%d","expression":"1"},`, i)
	}
	constraints := `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"operations":["CREATE"]}]},`
	return map[string]string{
		"compilation/validations": `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[` + repeat(`{"expression":"true"}`, 40_000) + `]` + `}}`,
		"compilation/variables":   `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"variables":[` + strings.TrimSuffix(variables.String(), ",") + `],"validations":[{"expression":"true"}]` + `}}`,
		"compilation/parentheses": `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[` + repeat(`{"expression":"`+strings.Repeat("(", 200)+"1 == 1"+strings.Repeat(")", 200)+`"}`, 64) + `]` + `}}`,
		"compilation/macros":      `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[` + repeat(`{"expression":"[`+repeat("[1,2,3].all(x, x > 0)", 500)+`].all(y, y)"}`, 64) + `]` + `}}`,
		"compilation/expression":  `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[{"expression":"'a'.matches('` + strings.Repeat("(a{1,50}){1,20}", 50) + `')"}]` + `}}`,
		"compilation/path":        `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[{"expression":"object.a` + strings.Repeat(".a", 5_000) + ` == 1"}]` + `}}`,
		"compilation/conjunction": `{"apiVersion":"admission.ostiary.dev/v1alpha1","kind":"WebhookPolicy","metadata":{"name":"p"},"spec":{` + constraints + `"validations":[{"expression":"` + strings.Repeat("true && ", 8_000) + `true"}]` + `}}`,
	}
}

// sendObjects sends reviews of each kind of objects, six at a time, to the policy
// that they are made for, and to one that denies them.
func sendObjects(ctx context.Context, a attack, report *report) {
	all := objectBombs()
	kinds := slices.Sorted(maps.Keys(all))
	a.Count *= len(kinds)
	sendAll(ctx, a, report, func(ctx context.Context, w *attacker, n int) {
		kind := kinds[n*len(kinds)/a.Count]
		b := all[kind]
		review := string(marshal(reviewOf("CREATE", b.group, b.kind, b.resource, "bad-bomb", "OBJECT", nil)))
		body := []byte(strings.Replace(review, `"OBJECT"`, b.object(anyOf(w.random, b.sizes)), 1))
		if a.Aims[b.aim] != w.Witness && !w.insist(ctx, a.Aims[b.aim], body, func([]byte) {}) {
			return
		}
		denied := w.insist(ctx, w.Witness, body, func(answer []byte) {
			report.countWitness()
			if !strings.Contains(string(answer), `"allowed":false`) {
				report.wrong("a bad bomb of %s is answered with %.300s", kind, answer)
			}
		})
		if denied {
			report.answered(kind)
		}
	})
}

// sendCompilations asks for the review of policies of each kind, six at a time.
func sendCompilations(ctx context.Context, a attack, report *report) {
	all := policyBombs()
	kinds := slices.Sorted(maps.Keys(all))
	a.Count *= len(kinds)
	sendAll(ctx, a, report, func(ctx context.Context, w *attacker, n int) {
		kind := kinds[n*len(kinds)/a.Count]
		text := string(marshal(reviewOf("CREATE", "admission.ostiary.dev", "WebhookPolicy", "webhookpolicies", "p", "OBJECT", nil)))
		text = strings.Replace(text, `"OBJECT"`, all[kind], 1)
		text = strings.ReplaceAll(text, `"version":"v1"`, `"version":"v1alpha1"`)
		if w.insist(ctx, w.Review, []byte(strings.Replace(text, `"namespace":"`+attackedPlace+`",`, "", 1)), func([]byte) {}) {
			report.answered(kind)
		}
	})
}

// insist sends a review again while it is refused because of overload. It reports
// whether a replica did its work for it: it decided, or reached a limit of size or
// time on the way.
func (w *attacker) insist(ctx context.Context, path string, body []byte, decided func(answer []byte)) bool {
	const attempts = 100
	for range attempts {
		code, answer := w.post(ctx, path, body)
		switch code {
		case http.StatusOK:
			decided(answer)
			return true
		case http.StatusRequestEntityTooLarge, http.StatusGatewayTimeout:
			return true
		case 0, http.StatusServiceUnavailable, http.StatusRequestTimeout:
		default:
			w.report.wrong("a bomb is answered with %d %.300s", code, answer)
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Second): // as Retry-After says
		}
	}
	return false
}
