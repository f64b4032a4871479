package rehearsal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// maxCombinations bounds the objects with which an expression is tried that was always false.
	// One that names more values has no finding.
	maxCombinations = 256
	// maxTried bounds the requests about them, for each expression.
	maxTried = 1000
)

// verdict counts the results of one validation.
type verdict struct {
	passed, denied, failed int

	operations, resources []string
}

// countVerdicts counts the results of the validations for a request.
func (s *stage) countVerdicts(t *target, r *request, o *outcome) {
	for i := range o.evaluated {
		e := &o.evaluated[i]
		read := s.read.at(e.Field)
		if read == nil || !read.validation || read.reads(celsyntax.LookupsVarName) {
			continue
		}
		v := s.verdicts[e.Field]
		if v == nil {
			v = &verdict{}
			s.verdicts[e.Field] = v
		}
		switch {
		case e.Err != nil:
			v.failed++
		case e.Value == types.True:
			v.passed++
		default:
			v.denied++
		}
		v.operations = appendMissing(v.operations, string(r.Operation))
		v.resources = appendMissing(v.resources, t.name())
	}
}

func appendMissing(list []string, value string) []string {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// denials warns about validations that are false for every object, also for those with the values
// that they name. There is no finding for a validation that does more than compare fields with
// constants, because an object that it allows cannot be derived from it, or for a kind that is not
// rehearsed.
func (s *stage) denials(ctx context.Context, targets []target) (out []advice.Warning) {
	if !s.policy.Spec.Denies() || s.stopped != "" || len(s.unknown) > 0 || len(targets) == maxTargets {
		return nil
	}
	for i := range s.read.expressions {
		e := &s.read.expressions[i]
		v := s.verdicts[e.field]
		if !e.validation || v == nil || v.passed > 0 || v.failed > 0 {
			continue
		}
		named, ok := s.read.valuesIn(e)
		if !ok || !named.mayBeMistaken() || s.isAllowed(ctx, targets, e.field, named) {
			continue
		}
		text := fmt.Sprintf("%s of %s is denied for every object that was tried, also for those with the values in "+
			"the expression: correct it, or write \"false\" if that is its purpose",
			strings.Join(v.operations, " and "), abbreviate(v.resources))
		out = append(out, advice.Warning{Field: e.field, Text: text, Kind: advice.DeniesAll})
	}
	return out
}

// isAllowed reports whether a validation is true for an object with some of the values that it
// names, or whether that is not known because of a limit.
func (s *stage) isAllowed(ctx context.Context, targets []target, field string, named *valuesNamed) bool {
	combinations, ok := named.combinations()
	if !ok {
		return true
	}
	tried := 0
	for i := range targets {
		t := &targets[i]
		for _, p := range s.rehearser.objects.of(ctx, t, s.cluster) {
			for _, c := range combinations {
				for _, r := range s.requestsWith(t, p, c) {
					tried++
					if tried > maxTried || s.cost > maxCost || ctx.Err() != nil || !s.isFalse(ctx, field, &r) {
						return true
					}
				}
			}
		}
	}
	return false
}

// requestsWith returns the requests about a probe with other values.
func (s *stage) requestsWith(t *target, p probe, c combination) (out []request) {
	spec := &s.policy.Spec
	object, old := c.apply(p.object, "object"), c.apply(p.object, "oldObject")
	for _, o := range t.operations {
		switch o {
		case admissionv1.Create, admissionv1.Connect:
			out = append(out, newRequest(t, o, object, nil, p.invented, spec))
		case admissionv1.Update:
			out = append(out, newRequest(t, o, stored(object), stored(old), p.invented, spec))
		case admissionv1.Delete:
			out = append(out, newRequest(t, o, nil, stored(old), p.invented, spec))
		}
	}
	return out
}

// isFalse reports whether a validation is not true for a request. It is not false if a match
// condition excludes the request.
func (s *stage) isFalse(ctx context.Context, field string, r *request) bool {
	var o outcome
	w := &world{namespace: namespaceFor(&s.policy.Spec), answer: authorizer.DecisionNoOpinion}
	raw := r.AdmissionRequest
	_, err := s.group.Validate(s.trace(ctx, &o), &raw, w.environment(s.cluster))
	s.count(&o, w)
	i := slices.IndexFunc(o.evaluated, func(e policy.Evaluated) bool { return e.Field == field })
	return err != nil || i >= 0 && (o.evaluated[i].Err != nil || o.evaluated[i].Value != types.True)
}

// combination has a value for each path; see absent and unchanged.
type combination map[string]any

// absent and unchanged are values of paths.
type (
	absent    struct{}
	unchanged struct{}
)

// apply returns a copy of an object in which the paths of one input have other values. Short paths
// are changed first, since the others are below them.
func (c combination) apply(object map[string]any, input string) map[string]any {
	out := runtime.DeepCopyJSON(object)
	paths := slices.Sorted(maps.Keys(c))
	slices.SortStableFunc(paths, func(a, b string) int {
		return strings.Count(a, separator) - strings.Count(b, separator)
	})
	for _, path := range paths {
		steps := strings.Split(path, separator)
		if steps[0] != input || c[path] == (unchanged{}) {
			continue
		}
		changed, _ := withValue(out, steps[1:], c[path]).(map[string]any)
		if changed != nil {
			out = changed
		}
	}
	return out
}

// withValue returns a value with another one at a path below it. A list has one element then, and
// one that has elements is not emptied, because they may be required.
func withValue(at any, steps []string, value any) any {
	_, remove := value.(absent)
	if len(steps) == 0 {
		empty, _ := value.([]any)
		if before, _ := at.([]any); remove || len(before) > 0 && empty != nil && len(empty) == 0 {
			return at
		}
		return runtime.DeepCopyJSONValue(value)
	}
	isAbsent := remove
	remove = remove && len(steps) == 1
	if steps[0] == element {
		list, _ := at.([]any)
		var first any
		if len(list) > 0 {
			first = list[0]
		}
		if remove {
			return []any{}
		}
		return []any{withValue(first, steps[1:], value)}
	}
	fields, ok := at.(map[string]any)
	if !ok {
		fields = map[string]any{}
	}
	if remove {
		delete(fields, steps[0])
		return fields
	}
	if isAbsent && fields[steps[0]] == nil {
		return fields // its parent is absent too
	}
	fields[steps[0]] = withValue(fields[steps[0]], steps[1:], value)
	return fields
}
