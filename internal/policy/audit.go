package policy

import (
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
	policy *Compiled
	groups []auditedGroup
}

// auditedGroup is the policy with one kind of subjects: objects, or the Pods of templates.
type auditedGroup struct {
	*Group
	// The selectors of the policy, which the API server applies at admission; nil without
	// any. That of objects is about Pods, so the Group applies it to the Pods of templates.
	selectors matching.MatchCriteria
}

// NewAuditor returns an auditor for the policy that c was compiled from. It keeps parts of
// the policy, which must not change.
func NewAuditor(p *v1alpha1.WebhookPolicy, c *Compiled) *Auditor {
	alone := []*Compiled{c}
	objects := auditedGroup{Group: &Group{policies: alone, index: index{any: objectTargets(newBatches(alone))}}}
	if c.selectors != nil {
		objects.selectors = c.selectors.match
	}
	a := &Auditor{policy: c, groups: []auditedGroup{objects}}
	if c.templates != nil {
		templates := auditedGroup{Group: NewTemplateGroup(alone)}
		if m := p.Spec.MatchConstraints; m.NamespaceSelector != nil {
			templates.selectors = newCriteria(&admissionregistrationv1.MatchResources{NamespaceSelector: m.NamespaceSelector})
		}
		a.groups = append(a.groups, templates)
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
	labels := inputs{object: unstructuredjson.Path("metadata", "labels")}
	for i := range a.groups {
		_, all, err := a.groups[i].prepare(ctx, raw, host, labels)
		if err != nil {
			return a.undecided(err)
		}
		for _, m := range all {
			if err := a.add(ctx, &out, m, a.groups[i].selectors, host); err != nil {
				return a.undecided(err)
			}
		}
	}
	return out
}

// add adds the result of the policy for a subject that the selectors match.
func (a *Auditor) add(ctx context.Context, out *Audited, m matchedTarget, selectors matching.MatchCriteria, host Environment) error {
	on, selecting := m.on, binding{match: selectors}
	match := selecting.matches
	if on.unreadable != nil {
		match = selecting.mayMatch
	}
	if matches, err := match(on, host); err != nil || !matches {
		return err
	}
	decision := DecisionAllow
	switch m.evaluations(ctx, on, host)[0].outcome {
	case uncounted.NotMatched:
		decision = DecisionSkip
	case uncounted.Undecided, uncounted.Violated:
		results := a.policy.validate(ctx, on, host)
		if on.template != "" {
			a.policy.markTemplate(results, on.template)
		}
		var combined answer
		decision = combined.add(a.policy, results)
		out.Denied = out.Denied || combined.denied > 0
		out.Violations = append(out.Violations, a.policy.violations(on, results, host)...)
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
