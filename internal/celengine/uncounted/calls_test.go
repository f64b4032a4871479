package uncounted

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/ostiary/ostiary/internal/celengine"
)

// typedInputs are variables with static types, so that the overload of a call is known, and its cost the one of that
// overload.
func typedInputs() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("n", cel.IntType), cel.Variable("u", cel.UintType), cel.Variable("d", cel.DoubleType),
		cel.Variable("flag", cel.BoolType), cel.Variable("took", cel.DurationType), cel.Variable("at", cel.TimestampType),
		cel.Variable("text", cel.StringType), cel.Variable("other", cel.StringType), cel.Variable("data", cel.BytesType),
		cel.Variable("texts", cel.ListType(cel.StringType)), cel.Variable("numbers", cel.ListType(cel.IntType)),
		cel.Variable("entries", cel.MapType(cel.StringType, cel.StringType)), cel.Variable("any", cel.DynType),
		cel.Variable("anyTexts", cel.DynType), cel.Variable("anyText", cel.DynType), cel.Variable("anyEntries", cel.DynType),
	}
}

// typedRow returns values of the inputs, and their extent.
func typedRow(n int64, d float64, text, other string, elements []string) boundsRow {
	texts, numbers := []any{}, []any{}
	entries := map[string]any{"k": text}
	for i, e := range elements {
		texts = append(texts, e)
		numbers = append(numbers, n+int64(i))
		entries[e] = other
	}
	anything := map[string]any{"list": texts, "nested": []any{[]any{text, []any{d, entries}}, other, nil}, "number": n}
	row := boundsRow{values: map[string]any{
		"n": n, "u": uint64(max(n, 0)), "d": d, "flag": n > 0, "took": time.Duration(n), "at": time.Unix(n%253402300800, 0).UTC(),
		"text": text, "other": other, "data": []byte(text), "texts": texts, "numbers": numbers, "entries": entries,
		"any": anything, "anyTexts": texts, "anyText": text, "anyEntries": entries,
	}}
	for _, value := range []any{n, d, text, other, texts, numbers, entries, anything} {
		row.size = row.size.union(extentOf(value))
	}
	row.size.elements = max(row.size.elements, row.size.nested)
	row.size.nested = row.size.elements
	return row
}

// typedRows have values at the edges.
func typedRows() []boundsRow {
	random := rand.New(rand.NewPCG(3, 4))
	long, wide := strings.Repeat("ab-", 3000), strings.Repeat("é€😀\"\\\n", 300)
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("%d%s", i, strings.Repeat("x", random.IntN(40))))
	}
	rows := []boundsRow{
		typedRow(0, 0, "", "", nil),
		typedRow(1, 1.5, "a", "b", []string{"a"}),
		typedRow(-1, -1e308, long, "-", []string{"", long, wide}),
		typedRow(2, 1e308, wide, "é", many),
		typedRow(9, 0.1, "a", long, []string{"b", "a", "c"}),
		typedRow(math.MaxInt64, math.Inf(1), wide, wide, []string{wide}),
		typedRow(math.MinInt64, math.NaN(), "10.0.0.1", "https://example.com/?a=b", []string{"a", "a"}),
	}
	for range 10 {
		text := strings.Repeat("a-", random.IntN(30)) + strings.Repeat("é", random.IntN(30))
		rows = append(rows, typedRow(random.Int64N(40), random.Float64(), text, "a"+text[:random.IntN(2)*len(text)], many[:random.IntN(20)]))
	}
	return rows
}

// overloadExpressions call every overload.
func overloadExpressions() []string {
	all := []string{
		"flag && flag", "flag || flag", "!flag", "flag ? text : other", "text == other", "text != other", "any == any", "texts != texts",
		"ip('::1') != ip('10.0.0.1')", "data == data",
		"n + n", "u + u", "d + d", "text + other", "data + data", "texts + texts", "took + took", "took + at", "at + took",
		"n - n", "u - u", "d - d", "took - took", "at - took", "at - at", "n * n", "u * u", "d * d", "n / n",
		"u / u", "d / d", "n % n", "u % u", "-n", "-d",
		"texts[n]", "entries[text]", "optional.of(texts)[n]", "optional.of(entries)[text]", "texts[?n]", "entries[?text]",
		"optional.of(texts)[?n]", "optional.of(entries)[?text]", "entries.?k", "text in texts", "text in entries",
		"bool(flag)", "bool('true')", "bytes(data)", "bytes(text)", "double(d)", "double(n)", "double(u)",
		"double('1.5')", "duration(took)", "duration('1h')", "duration(text)",
		earlierExpression, "dyn(text)", "dyn(any)", "int(n)", "int(d)", "int(took)", "int('1')", "int(text)",
		"int(at)", "int(u)", "string(text)", "string(flag)", "string(data)", "string(d)",
		"string(took)", "string(n)", "string(at)", "string(u)",
		"string(ip('2001:db8:1111:2222:3333:4444:5555:6666'))",
		"string(cidr('2001:db8:1111:2222:3333:4444:5555:6666/128'))",
		"timestamp(at)", "timestamp(n)", "timestamp('2020-01-01T00:00:00Z')", "uint(u)", "uint(d)", "uint(n)",
		"uint('1')", "type(n)", "type(any) == map",
		"text.contains(other)", "text.startsWith(other)", "text.endsWith(other)", "other.startsWith(text)",
		"other.endsWith(text)", "other.contains(text)", "text.matches('^[a-z]+(-[a-z]+)*$')",
		"matches(text, 'a+')", "text.matches(other)",
		"optional.of(text)", "optional.ofNonZeroValue(text)", "optional.none()", "optional.of(text).hasValue()", "optional.of(texts).value()",
		"entries.?no.or(optional.of(text))", "entries.?no.orValue(text)",
		"optional.of(texts).orValue(texts + texts)", "optional.of(texts) == optional.of(texts)",
		"texts.first()", "texts.last()", "optional.unwrap([optional.of(text), optional.none()])",
		"[optional.of(texts), optional.of(texts)].unwrapOpt()",
		"text.charAt(n)", "text.charAt(0)", "text.indexOf(other)", "text.indexOf(other, n)",
		"text.lastIndexOf(other)", "text.lastIndexOf(other, n)",
		"text.lowerAscii()", "text.upperAscii()", "text.trim()", "text.substring(n)", "text.substring(0)",
		"text.substring(0, n)", "text.substring(0, text.size())",
		"text.replace('a', other)", "text.replace('', '-')", "text.replace('a', other, n)",
		"text.replace('', 'xyz', 3)", "text.split('-')", "text.split('')", "text.split(other)",
		"text.split('', 5)",
		"texts.join()", "texts.join(other)", "text.split('').join(', ')", "texts.join(other) + text",
		"strings.quote(text)", "strings.quote(text) + strings.quote(other)",
		"text.find('[a-z]+')", "text.find(other)", "text.findAll('a')", "text.findAll('')",
		"text.findAll('a', n)", "text.findAll(other)", "text.findAll('.').join('-')",
		"'%s %d %f'.format([text, n, d])", "'%s'.format([texts])", "'%s'.format([entries])",
		"'%s'.format([any])", "'%s: %s'.format([any, any]) + text",
		"'%x %X %b %o %e %%'.format([text, data, n, n, d])",
		"'%s'.format([[d, d, -d]])", "'%s %s %s'.format([took, at, type(n)])",
		"'%s'.format([{'a': took, 'b': at}])", "'%.300f'.format([d])", "other.format([text])",
		"'%s'.format([texts.map(t, t + t)])",
		"'%s'.format([[[]]])", "'%f'.format([d]) + '%f'.format([-d])", "'%s'.format([texts]).size()",
		"numbers.isSorted()", "numbers.sum()", "numbers.max()", "numbers.min()", "texts.max()", "texts.min()",
		"texts.isSorted()", "texts.sort()", "numbers.sort()", "texts.sortBy(e, -1)", "texts.sortBy(e, e)",
		"numbers.sortBy(e, -e)",
		"texts.indexOf(text)", "texts.lastIndexOf(text)", "[texts, texts].indexOf(texts)",
		"[any, any].lastIndexOf(any)", "any.indexOf('a')", "any.list.indexOf('a')", "texts.includes(text)",
		"any.includes(text)", "text.includes(other)",
		"texts.slice(0, n)", "texts.slice(0, texts.size())", "texts.slice(1, 0)", "texts.reverse()",
		"(texts + texts).reverse()", "texts.distinct()", "(texts + texts).distinct()",
		"[texts, texts].flatten()", "texts.map(t, texts).flatten()", "[any, any].flatten()", "texts.flatten(0)",
		"texts.flatten(5)", "texts.flatten(-1)", "[[texts], [texts, texts]].flatten(2)",
		"[any.nested].flatten(3)",
		"lists.range(texts.size()).map(i, texts[i])", "lists.range(size(text)).size()",
		"lists.range(n)", "lists.range(7)", "lists.range(-7)", "lists.range(n).size()", "lists.range(3).map(i, texts)", "lists.range(2000000)",
		"sets.contains(texts, texts)", "sets.equivalent(texts, texts)", "sets.intersects(texts, texts)",
		"sets.contains(texts, texts + texts)", "sets.equivalent(texts + ['a'], texts)",
		"sets.intersects([], texts)",
		"texts.transformMap(i, e, e + e)", "texts.transformMap(i, e, i > 1, [e, e])",
		"texts.transformMapEntry(i, e, {e: i})", "texts.transformMapEntry(i, e, i > 1, {e: text, e + 'x': e})",
		"entries.transformMap(k, e, e + k)", "entries.transformList(k, e, k + e)",
		"entries.transformList(k, e, k != 'k', [e])", "texts.all(i, e, e.size() > i)",
		"texts.exists(i, e, e == text)", "entries.existsOne(k, e, e == k)",
		"entries.transformMap(k, e, {e: [k]})",
		"texts.map(t, texts.map(s, s + t))", "texts.filter(t, t != text) + texts",
		"entries.all(k, entries[k] != k)", "texts.map(t, {t: [t]}).size()",
		"optional.of(text).optMap(x, [x, x])", "entries.?k.optFlatMap(x, optional.of(x + x))",
		"isURL(text)", "url(text)", "url(other)",
		"url('https://example.com/?q=' + text + '&' + other).getQuery()", "url('/' + text).getEscapedPath()",
		"url('/' + text).getQuery()",
		"isIP(text)", "ip(text)", "ip.isCanonical(text)", "ip.isCanonical('::1')", "isCIDR(text)", "cidr(text)",
		"cidr('10.0.0.0/8').containsIP(text)", "cidr('10.0.0.0/8').containsIP('10.0.0.1')",
		"cidr('::/0').containsIP(ip('::1'))", "cidr('::1/128').containsCIDR('::1/128')",
		"cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))", "cidr('10.0.0.0/8').containsCIDR(text)",
		"cidr('10.0.0.0/8').ip()", "cidr('10.0.0.0/8').prefixLength()", "cidr('10.0.0.1/8').masked()",
		"quantity(text)", "isQuantity(text)", "quantity('1Gi').isGreaterThan(quantity('1'))",
		"quantity('1').isLessThan(quantity('2'))", "quantity('1').compareTo(quantity('2'))",
		"quantity('1.5').asApproximateFloat()", "quantity('1').asInteger()",
		"quantity('1.5').isInteger()", "sign(quantity('-1'))", "quantity('1').add(quantity('2'))",
		"quantity('1').add(2)", "quantity('1').sub(quantity('2'))", "quantity('1').sub(2)",
		"quantity('1') == quantity('1')",
		"semver(text)", "semver('v1.2', true)", "semver(text, true)", "isSemver(text)", "isSemver(text, true)",
		"semver('1.2.3').major()", "semver('1.2.3').minor()", "semver('1.2.3').patch()",
		"semver('1.2.3').isGreaterThan(semver('1.2.4'))", "semver('1.2.3').isLessThan(semver('1.2.4'))",
		"semver('1.2.3').compareTo(semver('1.2.3-a'))",
		"format.named(text)", "format.named('uri').value().validate(text)", "format.named('uri').value().validate('http://' + text)",
	}
	for _, name := range slices.Sorted(maps.Keys(library.ConstantFormats)) {
		all = append(all,
			"format."+name+"().validate(text)",
			"format."+name+"().validate(other)",
			"format."+name+"() == format.named('"+name+"').value()",
		)
	}
	for _, accessor := range []string{"getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery"} {
		all = append(all,
			"url('https://user@example.com:8443/a b/c?x=1&y=2;z=%20&x=3#f')."+accessor+"()",
			"url('/"+strings.Repeat("ü", 40)+"')."+accessor+"()",
		)
	}
	for _, accessor := range []string{
		"family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
	} {
		all = append(all, "ip('fe80::1')."+accessor+"()")
	}
	for _, accessor := range []string{
		"getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek", "getHours",
		"getMinutes", "getSeconds", "getMilliseconds",
	} {
		all = append(all, "at."+accessor+"()", "at."+accessor+"('+02:00')", "at."+accessor+"(text)")
	}
	for _, accessor := range []string{"getHours", "getMinutes", "getSeconds", "getMilliseconds"} {
		all = append(all, "took."+accessor+"()")
	}
	for _, name := range []string{"text", "data", "texts", "entries", "any"} {
		all = append(all, "size("+name+")", name+".size()")
	}
	pairs := [][2]string{{"n", "d"}, {"n", "u"}, {"u", "d"}, {"u", "n"}, {"d", "n"}, {"d", "u"}}
	for _, name := range []string{"n", "u", "d", "flag", "took", "at", "text", "data"} {
		pairs = append(pairs, [2]string{name, name})
		list := "[" + name + ", " + name + "]"
		all = append(all,
			list+".sort()", list+".isSorted()", list+".max()", list+".min()",
			"texts.sortBy(e, "+name+")", list+".map(x, [x]).flatten()",
		)
	}
	for _, name := range []string{"n", "u", "d", "took"} {
		all = append(all, "["+name+", "+name+"].sum()")
	}
	for _, pair := range pairs {
		for _, operator := range []string{"<", "<=", ">", ">="} {
			all = append(all, pair[0]+" "+operator+" "+pair[1])
		}
	}
	return all
}

// wronglyTypedExpressions call functions with lists, maps and texts, most of which they reject.
func wronglyTypedExpressions() []string {
	var all []string
	for _, value := range []string{"anyTexts", "anyText", "anyEntries", "any.no"} {
		for _, call := range []string{
			"lowerAscii()", "trim()", "substring(1)", "charAt(0)", "split('-')", "split(text)",
			"replace('a', 'b')", "replace('a', other)", "join('-')", "join()", "format(texts)",
			"format([text])",
			"matches('a+')", "matches(text)", "find('a+')", "find(text)", "findAll('a')", "findAll(text)",
			"contains(text)", "startsWith(text)", "endsWith(text)",
			"indexOf(text)", "lastIndexOf(text)", "includes(text)", "isSorted()", "sum()", "max()", "min()",
			"first()", "last()", "unwrapOpt()", "slice(0, 1)", "reverse()", "flatten()", "size()",
			"containsIP(text)", "containsCIDR(text)", "containsIP('::1')", "masked()", "prefixLength()",
			"family()", "isLessThan(quantity('1'))", "add(1)", "validate(text)", "getHost()", "getQuery()",
			"hasValue()", "value()", "orValue(text)", "or(optional.of(text))", "getHours()", "getFullYear('UTC')",
			"transformMap(k, v, v)", "transformList(k, v, v)", "map(x, x)", "all(x, x != '')",
			"exists_one(x, x == 'a')", "filter(x, x != '')", "optMap(x, [x])",
		} {
			all = append(all, value+"."+call)
		}
		all = append(all, value+" + text", value+" == text", value+" < text", value+" + texts", value+" in texts", value+".contains(text)")
		for _, other := range []string{"anyTexts", "anyText"} {
			all = append(all,
				value+" + "+other, value+" == "+other, value+" < "+other,
				value+" in "+other, other+" in "+value, value+"["+other+"]",
				value+".contains("+other+")", value+".matches("+other+")", value+".startsWith("+other+")",
				value+".find("+other+")", value+".indexOf("+other+")", "["+value+"] + ["+other+"]",
				"text.replace("+value+", '')", "format.uri().validate("+value+")", "cidr('::/1').containsIP("+value+")",
			)
		}
		for _, function := range []string{
			"size", "string", "bytes", "int", "double", "bool", "duration", "timestamp", "dyn", "type", "ip",
			"isIP", "cidr", "isCIDR", "url", "isURL", "quantity", "isQuantity", "semver", "isSemver",
			"ip.isCanonical", "strings.quote", "format.named", "optional.of", "optional.ofNonZeroValue", "optional.unwrap", "lists.range", "sign",
		} {
			all = append(all, function+"("+value+")")
		}
	}
	return all
}

// uncalledOverloads returns the overloads that no expression of a batch calls, with the reason.
func uncalledOverloads() map[string]string {
	const alone, renamed = "expressions that ask the authorizer are evaluated alone", "a batch has the names of the latest engine"
	return map[string]string{
		"authorizer_path": alone, "authorizer_group": alone, "authorizer_serviceaccount": alone,
		"authorizer_fieldselector": alone, "authorizer_labelselector": alone,
		"groupcheck_resource": alone, "resourcecheck_subresource": alone, "resourcecheck_namespace": alone,
		"resourcecheck_name": alone, "pathcheck_check": alone, "resourcecheck_check": alone,
		"decision_errored": alone, "decision_error": alone, "decision_allowed": alone, "decision_reason": alone,
		"tolerant_optional_or_optional": renamed, "tolerant_optional_orValue_value": renamed,
	}
}

// TestOverloadsAreBounded compares the bounds of calls of every overload that Kubernetes declares, in the versions of
// which Ostiary has engines, with the costs that CEL counts.
func TestOverloadsAreBounded(t *testing.T) {
	called, declared := map[string]bool{}, map[string]string{}
	rows := typedRows()
	for _, engine := range []celengine.Engine{celengine.OldestEngine, celengine.LatestEngine} {
		env := newBoundsEnv(t, engine, typedInputs())
		result := checkBounds(t, env, overloadExpressions(), rows)
		mostSucceed(t, result)
		maps.Copy(called, result.called)
		addOverloads(declared, env.check)
	}
	checkBounds(t, newBoundsEnv(t, celengine.LatestEngine, typedInputs()), wronglyTypedExpressions(), rows)
	for minor := celengine.OldestEngine; minor <= celengine.LatestEngine; minor++ {
		set := environment.MustBaseEnvSet(version.MajorMinor(1, uint(minor)))
		addOverloads(declared, set.NewExpressionsEnv())
		addOverloads(declared, set.StoredExpressionsEnv())
	}
	uncalled := uncalledOverloads()
	for _, id := range slices.Sorted(maps.Keys(declared)) {
		switch {
		case called[id] && uncalled[id] != "":
			t.Errorf("%s of the function %s is called, although %s", id, declared[id], uncalled[id])
		case !called[id] && uncalled[id] == "":
			t.Errorf("%s of the function %s: no expression calls it", id, declared[id])
		}
		delete(uncalled, id)
	}
	for id := range uncalled {
		t.Errorf("no version declares %s", id)
	}
	t.Logf("%d overloads", len(declared))
}

// addOverloads adds the overloads that expressions can call, with their functions.
func addOverloads(declared map[string]string, env *cel.Env) {
	for name, function := range env.Functions() {
		if function.IsDeclarationDisabled() {
			continue
		}
		for _, overload := range function.OverloadDecls() {
			declared[overload.ID()] = name
		}
	}
}

// TestUnboundedCalls: a cost that the arguments do not bound is infinite.
func TestUnboundedCalls(t *testing.T) {
	env := newBoundsEnv(t, celengine.LatestEngine, typedInputs())
	for _, text := range []string{
		"texts.flatten(n)", "texts.map(t, texts.flatten(n + 1)).size()", "other.format([text]) + text", "'%.2f'.format([d]) + text",
		"[texts].flatten(n).all(t, t != '')", "lists.range(n).map(i, other.format([text])).join().size()",
	} {
		checked, issues := env.check.Compile(text)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", text, issues.Err())
		}
		if cost, _ := bound(checked.NativeRep().Expr(), Class(0).extent(), nil); !math.IsInf(cost, 1) {
			t.Errorf("%s: got the bound %v, want none", text, cost)
		}
	}
}

// TestCostsOfNestedLoops: a cost that is beyond every number is very large, and bounding it does not take long.
func TestCostsOfNestedLoops(t *testing.T) {
	env := newBoundsEnv(t, celengine.LatestEngine, typedInputs())
	for _, macro := range []string{"all", "map", "filter", "exists_one"} {
		t.Run(macro, func(t *testing.T) {
			text := "text != other"
			for range 40 {
				text = "texts." + macro + "(x, " + text + ")"
			}
			parsed, issues := env.check.Parse(text)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			limit := extent{elements: 1e10, nested: 1e10, text: 1e10, weight: 1e10}
			if cost, _ := bound(parsed.NativeRep().Expr(), limit, nil); !(cost > 1e300) {
				t.Errorf("got the bound %v, want a very large one", cost)
			}
		})
	}
}
