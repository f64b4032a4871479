package policy

import (
	"cmp"
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// Audited is the result of a policy for a stored object.
type Audited struct {
	// Decision is DecisionUnmatched, DecisionSkip, DecisionAllow, DecisionAnnotate, or the
	// first decision of Violations in the order of Decisions.
	Decision Decision
	// Denied reports whether admission would deny the request. An error denies it only with
	// failurePolicy Fail.
	Denied     bool
	Violations []Violation
}

// Auditor evaluates the validations of one policy on stored objects. It is immutable.
type Auditor struct {
	policy    *Compiled
	objects   Group
	templates *Group // nil for a policy that is not evaluated on pod templates
	// The selectors of the policy, which the API server applies at admission; nil without
	// any. That of objects is about Pods, so the Group applies it to the Pods of templates.
	selectors, namespaces matching.MatchCriteria
}

// NewAuditor returns an auditor for the policy that c was compiled from. It keeps parts of
// the policy, which must not change.
func NewAuditor(p *v1alpha1.WebhookPolicy, c *Compiled) *Auditor {
	alone := []*Compiled{c}
	a := &Auditor{policy: c, objects: Group{policies: alone, index: index{any: newBatches(alone)}}}
	if c.selectors != nil {
		a.selectors = c.selectors.match
	}
	if c.templates != nil {
		a.templates = NewTemplateGroup(alone)
		if m := p.Spec.MatchConstraints; m.NamespaceSelector != nil {
			a.namespaces = newCriteria(&admissionregistrationv1.MatchResources{NamespaceSelector: m.NamespaceSelector})
		}
	}
	return a
}

// StoredObject is an object that several Auditors evaluate one after the other. It is decoded
// once, with the parts that they have read of earlier objects. The zero value is ready for use,
// by one goroutine.
type StoredObject struct {
	parts unstructuredjson.Selection

	request *request                   // before it is prepared
	object  *unstructured.Unstructured // read-only
	value   any                        // of the object, in expressions
}

// Next forgets the object, but not which parts are read.
func (s *StoredObject) Next() { *s = StoredObject{parts: s.parts} }

// newRequest returns the request about the object; s can be nil.
func (s *StoredObject) newRequest(raw *admissionv1.AdmissionRequest) *request {
	if s == nil {
		return newRequest(raw)
	}
	if s.request == nil {
		s.request = newRequest(raw)
		s.request.stored = s
	}
	r := *s.request
	return &r
}

// decode returns at least the given parts of the object.
func (s *StoredObject) decode(account *unstructuredjson.Account, raw []byte, parts unstructuredjson.Selection) (*unstructured.Unstructured, error) {
	if s.object != nil && s.parts.Covers(parts) {
		return s.object, nil
	}
	s.parts = s.parts.Union(parts)
	tree, err := account.DecodeParts(raw, s.parts)
	if err != nil { // parts that other policies read must not fail this one
		s.object = nil // it lacks parts that are selected now
		tree, err = account.DecodeParts(raw, parts)
		return &unstructured.Unstructured{Object: tree}, err
	}
	s.object, s.value = &unstructured.Unstructured{Object: tree}, nil
	return s.object, nil
}

// valueOf returns an object as expressions of a batch read it; s can be nil.
func (s *StoredObject) valueOf(o *admission.LazyObject) any {
	if s == nil || s.object == nil || o.Object() != runtime.Object(s.object) {
		return uncounted.Object(o)
	}
	if s.value == nil {
		s.value = uncounted.Object(o)
	}
	return s.value
}

// Evaluate evaluates the validations, without mutations, on an UPDATE request that changes
// nothing. Pod templates are evaluated as if the request changed them. A panic is an error
// of this policy for this object. Break-glass permissions, metrics of decisions and checks
// of mutations of the environment are not used.
func (a *Auditor) Evaluate(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) (out Audited) {
	defer a.policy.recovered(host, func() { out = a.undecided(errPanicked) })
	out.Decision = DecisionUnmatched
	host.unchangedTemplates = true
	labels := unstructuredjson.Path("metadata", "labels")
	r, matched, err := a.objects.prepare(ctx, raw, host, inputs{object: labels})
	if err == nil && len(matched) > 0 {
		err = a.add(ctx, &out, r, matched[0], a.selectors, host)
	}
	if err != nil {
		return a.undecided(err)
	}
	if a.templates == nil {
		return out
	}
	workload, templates, err := a.templates.prepareTemplates(ctx, raw, host, false)
	for i := range templates {
		if err == nil {
			err = a.add(ctx, &out, cmp.Or(templates[i].pod, workload), templates[i].batch, a.namespaces, host)
		}
	}
	if err != nil {
		return a.undecided(err)
	}
	return out
}

// add adds the result of the policy for an object or the Pod of a template that the
// selectors match.
func (a *Auditor) add(ctx context.Context, out *Audited, r *request, b *batch, selectors matching.MatchCriteria, host Environment) error {
	selecting := binding{match: selectors}
	match := selecting.matches
	if r.unreadable != nil {
		match = selecting.mayMatch
	}
	if matches, err := match(r, host); err != nil || !matches {
		return err
	}
	e := b.evaluations(ctx, r, host)[0]
	decision := DecisionAllow
	switch e.outcome {
	case uncounted.NotMatched:
		decision = DecisionSkip
	case uncounted.Undecided, uncounted.Violated:
		results := a.policy.validate(ctx, r, host)
		if r.template != "" {
			a.policy.markTemplate(results, r.template)
		}
		var combined answer
		decision = combined.add(a.policy, results)
		out.Denied = out.Denied || combined.denied > 0
		out.Violations = append(out.Violations, a.policy.violations(r, results, host)...)
	}
	out.Decision = first(out.Decision, decision)
	return nil
}

// undecided returns the result of an evaluation without a decision.
func (a *Auditor) undecided(err error) Audited {
	return Audited{Decision: DecisionError, Denied: a.policy.failurePolicy != admissionregistrationv1.Ignore,
		Violations: []Violation{{Decision: DecisionError, Message: a.policy.errorText(err, false)}}}
}

// first returns the first of two decisions in the order of Decisions. One for a pod
// template counts more than that no rule matches the workload.
func first(a, b Decision) Decision {
	order := Decisions()
	if a == DecisionUnmatched || slices.Index(order, b) < slices.Index(order, a) {
		return b
	}
	return a
}
