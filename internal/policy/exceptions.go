package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/podtemplate"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// auditExceptedKey is the key of the annotation that lists what exceptions let pass. The keys
	// of policies contain a dot.
	auditExceptedKey = "excepted"
	// maxExceptedShown is the maximum of entries of this annotation.
	maxExceptedShown = 64
	// conditionsBudget is the cost limit of the conditions of exceptions of one request, together:
	// that of one expression in Kubernetes.
	conditionsBudget = celconfig.PerCallLimit
)

// Exceptions find the exceptions from a policy for the objects of a namespace, which is empty
// for cluster-scoped objects, such as an *exceptions.Index.
type Exceptions interface {
	For(policy, namespace string) []*exceptions.Entry
}

// TriedException is an exception that was compared with what a policy decided.
type TriedException struct {
	Policy, Template string
	// Validation is the name of the validation, or its path, or that of the mutations or plugin.
	Validation string
	Exception  exceptions.Key
	// Mismatch is why the exception has no effect; "" if it has one.
	Mismatch string
}

// excepted is what an exception lets pass.
type excepted struct {
	policy, what string // what is a validation, or its path, or that of the mutations or the plugin
	by           exceptions.Key
}

// exceptionsFor returns the exceptions that can cover a subject. Without a failed validation or
// a mutation, it is not called.
func (c *Compiled) exceptionsFor(on *subject, host Environment) []*exceptions.Entry {
	if c.permitted == nil || host.Exceptions == nil {
		return nil
	}
	return host.Exceptions.For(c.name, on.scope())
}

// scope is the namespace of the exceptions that can cover the object. That of a Namespace, which
// requests have in their namespace too, is none.
func (on *subject) scope() string {
	if on.raw.Resource.Group == "" && on.raw.Resource.Resource == "namespaces" {
		return ""
	}
	return on.raw.Namespace
}

// except lets false validations pass that an exception covers. Errors are not excepted.
func (c *Compiled) except(ctx context.Context, on *subject, v *pluginResult, host Environment) {
	isFalse := func(d validating.PolicyDecision) bool {
		return d.Action == validating.ActionDeny && d.Evaluation == validating.EvalDeny
	}
	if !slices.ContainsFunc(v.Decisions, isFalse) {
		return
	}
	candidates := c.exceptionsFor(on, host)
	if len(candidates) == 0 {
		return
	}
	shared := v.validations
	for i := range v.Decisions {
		if !isFalse(v.Decisions[i]) {
			continue
		}
		name := ""
		if i < len(shared) {
			name = shared[i].name
		}
		by := c.covering(ctx, on, candidates, name, c.label(i, name), host)
		if by == nil {
			continue
		}
		if len(v.validations) == 0 || len(shared) > 0 && &v.validations[0] == &shared[0] { // a batch and other bindings share them
			v.Decisions, v.validations = slices.Clone(v.Decisions), make([]validationResult, len(v.Decisions))
			copy(v.validations, shared)
		}
		v.Decisions[i].Action, v.Decisions[i].Evaluation = validating.ActionAdmit, validating.EvalAdmit
		r := &v.validations[i]
		r.excepted, r.ratcheted = by, ""
		r.podsExcepted = on.template != "" && c.coversPods(ctx, on, candidates, name, host)
	}
}

// label names a decision by its validation, or by the field that made it.
func (c *Compiled) label(index int, name string) string {
	switch {
	case name != "":
		return name
	case c.plugin != nil:
		return "spec.plugin"
	}
	return fmt.Sprintf("spec.validations[%d]", index)
}

// covering returns the first exception that lets a validation pass; "" is one without a name, a
// mutation or a plugin.
func (c *Compiled) covering(ctx context.Context, on *subject, candidates []*exceptions.Entry, validation, label string,
	host Environment) *exceptions.Entry {
	report := traceOf(ctx).Exception
	for _, e := range candidates {
		mismatch := c.mismatch(ctx, on, e, validation, host)
		if report != nil {
			report(TriedException{Policy: c.name, Template: on.template, Validation: label, Exception: e.Key, Mismatch: mismatch})
		}
		if mismatch == "" {
			return e
		}
	}
	return nil
}

// mismatch returns why an exception does not let a validation pass; "" if it does.
func (c *Compiled) mismatch(ctx context.Context, on *subject, e *exceptions.Entry, validation string, host Environment) string {
	if !e.Includes(validation) {
		return "spec.validations does not name it"
	}
	if reason := e.Inactive(c.permitted, host.Now()); reason != "" {
		return reason
	}
	x := on.comparison(ctx, c, host)
	if e.Condition == "" {
		mismatch, _ := e.Covers(&x.target) // only a condition can fail
		return string(mismatch)
	}
	known, ok := x.results[e]
	if !ok {
		mismatch, err := e.Covers(&x.target)
		known = string(mismatch)
		if err != nil {
			known += ": " + err.Error()
		}
		x.results[e] = known
	}
	return known
}

// coversPods reports whether an exception covers the Pods that controllers create from a
// template, whose names are not known.
func (c *Compiled) coversPods(ctx context.Context, on *subject, candidates []*exceptions.Entry, validation string, host Environment) bool {
	pod := on.comparison(ctx, c, host).target
	pod.Group, pod.Resource, pod.Name = corev1.GroupName, string(corev1.ResourcePods), ""
	return slices.ContainsFunc(candidates, func(e *exceptions.Entry) bool {
		if !e.Includes(validation) || e.Inactive(c.permitted, host.Now()) != "" {
			return false
		}
		mismatch, _ := e.Covers(&pod)
		return mismatch == ""
	})
}

// exceptionName returns the name of the object. The request has none if a collection is deleted,
// and not the one that a webhook has set during a CREATE.
func (on *subject) exceptionName(ctx context.Context) string {
	if on.raw.SubResource != "" {
		return on.raw.Name
	}
	if on.raw.Operation == admissionv1.Create {
		object := on.workload
		if on.template == "" {
			object = on.versioned.VersionedObject.Object()
		}
		if name := nameOf(object); name != "" {
			return name
		}
	}
	if on.raw.Name != "" {
		return on.raw.Name
	}
	deleted, err := on.decodeAgain(ctx, on.raw.OldObject, identity())
	if err != nil {
		return ""
	}
	return nameOf(deleted)
}

func nameOf(object runtime.Object) string {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return ""
	}
	return u.GetName()
}

// comparison compares an object with exceptions. It keeps what takes time to find out.
type comparison struct {
	object   runtime.Object // as it is now
	target   exceptions.Object
	compiler exceptions.Compiler            // of conditions
	results  map[*exceptions.Entry]string   // of exceptions with conditions
	whole    *admission.VersionedAttributes // nil before the first condition
}

// comparison returns that of the object as it is now, which mutations change. Exceptions are compared
// with the resource that the policy sees, and with the new object, or the one that is deleted. For a
// pod template, resource and name are those of the workload, and the rest is the Pod, as in the
// expressions of the policy.
func (on *subject) comparison(ctx context.Context, c *Compiled, host Environment) *comparison {
	if x := on.compared; x == nil || x.object != on.versioned.VersionedObject.Object() {
		on.compared = on.newComparison(ctx, host)
	}
	on.compared.compiler = c.conditions
	return on.compared
}

func (on *subject) newComparison(ctx context.Context, host Environment) *comparison {
	x := &comparison{object: on.versioned.VersionedObject.Object(), results: map[*exceptions.Entry]string{}}
	x.target = exceptions.Object{Group: on.raw.Resource.Group, Resource: on.raw.Resource.Resource, Name: on.exceptionName(ctx)}
	if on.raw.SubResource != "" {
		x.target.Resource += "/" + on.raw.SubResource
	}
	x.target.Labels = sync.OnceValues(func() (labels.Set, bool) { return on.exceptionLabels(ctx) })
	x.target.Holds = func(e *exceptions.Entry) (bool, error) {
		host.pause(ctx)
		return on.holds(ctx, x, e.Program(x.compiler))
	}
	return x
}

// exceptionLabels returns the labels of the new object, or of the one that is deleted.
func (on *subject) exceptionLabels(ctx context.Context) (labels.Set, bool) {
	object := on.versioned.VersionedObject.Object()
	if on.template == "" && !on.mutating { // policies may not read them
		var err error
		if object, err = on.decodeAgain(ctx, on.newest(), unstructuredjson.Path("metadata", "labels")); err != nil {
			return nil, false
		}
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.Object["metadata"] == nil {
		return nil, false
	}
	out, _, err := unstructured.NestedStringMap(u.Object, "metadata", "labels")
	return out, err == nil
}

// newest is the new object, or the one that is deleted.
func (on *subject) newest() runtime.RawExtension {
	if on.raw.Operation == admissionv1.Delete {
		return on.raw.OldObject
	}
	return on.raw.Object
}

// decodeAgain decodes parts of an object that policies may not read; nil if there is none.
func (on *subject) decodeAgain(ctx context.Context, raw runtime.RawExtension, parts unstructuredjson.Selection) (runtime.Object, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	decode := unstructuredjson.AccountOf(ctx).DecodeParts
	if on.stored != nil {
		decode = func(raw []byte, parts unstructuredjson.Selection) (map[string]any, error) {
			return on.stored.decodeParts(unstructuredjson.AccountOf(ctx), raw, parts)
		}
	}
	tree, err := decode(raw.Raw, parts)
	if err != nil {
		return nil, fmt.Errorf("decoding the object for an exception: %w", err)
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// holds evaluates a condition.
func (on *subject) holds(ctx context.Context, x *comparison, condition *celengine.Program) (bool, error) {
	err := errors.Join(expired(ctx), on.unaffordable())
	if err == nil && x.whole == nil {
		x.whole, err = on.wholeObjects(ctx)
	}
	if err != nil {
		return false, err
	}
	conditions := celengine.NewConditions([]celplugin.CompilationResult{condition.Result}, celengine.Declared{})
	request, vars, budget := &admissionv1.AdmissionRequest{}, celplugin.OptionalVariableBindings{}, conditionsBudget-on.conditionsCost
	results, left, err := conditions.ForInput(ctx, x.whole, request, vars, nil, budget)
	if on.conditionsCost = conditionsBudget - max(left, 0); err != nil {
		return false, fmt.Errorf("evaluating spec.condition: %w", err)
	}
	if results[0].Error != nil {
		return false, results[0].Error
	}
	return results[0].EvalResult != nil && results[0].EvalResult.Value() == true, nil
}

func (on *subject) unaffordable() error {
	if on.conditionsCost < conditionsBudget {
		return nil
	}
	return errors.New("the conditions of exceptions exceed the cost limit of a request: use simpler ones")
}

// wholeObjects returns the objects that conditions read, of which policies may read parts. A
// deleted object is in both variables.
func (on *subject) wholeObjects(ctx context.Context) (*admission.VersionedAttributes, error) {
	object, old := on.versioned.VersionedObject.Object(), runtime.Object(nil)
	var err error
	if !on.mutating {
		if object, err = on.wholeObject(ctx, on.newest()); err != nil {
			return nil, err
		}
	}
	if on.template == "" || on.versioned.VersionedOldObject.Object() != nil {
		if old, err = on.wholeObject(ctx, on.raw.OldObject); err != nil {
			return nil, err
		}
	}
	return &admission.VersionedAttributes{
		Attributes:         on.versioned.Attributes,
		VersionedObject:    admission.NewLazyObject(object),
		VersionedOldObject: admission.NewLazyObject(old),
	}, nil
}

// wholeObject decodes an object of the request, or the Pod of its template.
func (on *subject) wholeObject(ctx context.Context, raw runtime.RawExtension) (runtime.Object, error) {
	object, err := on.decodeAgain(ctx, raw, unstructuredjson.Everything())
	if err != nil || on.template == "" || object == nil {
		return object, err
	}
	template, err := podtemplate.At(object, strings.Split(on.template, "."))
	if err != nil {
		return nil, fmt.Errorf("reading the pod template at %s: %w", on.template, err)
	}
	return podtemplate.Pod(template, on.raw.Namespace), nil
}

// annotateExcepted names what exceptions let pass in the audit annotation.
func (a *answer) annotateExcepted() {
	if len(a.excepted) == 0 {
		return
	}
	shown := a.excepted[:min(len(a.excepted), maxExceptedShown)]
	texts := make([]string, len(shown))
	for i, x := range shown {
		texts[i] = x.policy + " " + x.what + " by " + x.by.String()
	}
	text := strings.Join(texts, response.Separator)
	if more := len(a.excepted) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	a.SetAnnotation(auditExceptedKey, text)
}

// exceptBy adds what an exception lets pass, once.
func (a *answer) exceptBy(policy, what, template string, by *exceptions.Entry) {
	if template != "" {
		what += " at " + template
	}
	if x := (excepted{policy, what, by.Key}); !slices.Contains(a.excepted, x) {
		a.excepted = append(a.excepted, x)
	}
}

// countExcepted counts the exceptions of a request that passes, each once for a policy.
func (a *answer) countExcepted(host Environment) {
	if host.Excepted == nil || a.Denied() > 0 {
		return
	}
	for i, x := range a.excepted {
		if !slices.ContainsFunc(a.excepted[:i], func(y excepted) bool { return y.policy == x.policy && y.by == x.by }) {
			host.Excepted(x.policy, x.by)
		}
	}
}

// exceptMutation reports whether an exception leaves out the mutations of a policy for the
// object as it is now.
func (s *step) exceptMutation(ctx context.Context, host Environment) bool {
	candidates := s.policy.exceptionsFor(s.on, host)
	if len(candidates) == 0 {
		return false
	}
	s.on.mutating = true
	s.excepted = s.policy.covering(ctx, s.on, candidates, "", s.policy.mutationLabel(), host)
	return s.excepted != nil
}

func (c *Compiled) mutationLabel() string {
	if c.plugin != nil {
		return "spec.plugin"
	}
	return "spec.mutations"
}
