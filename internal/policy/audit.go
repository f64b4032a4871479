package policy

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/matchresources"
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
	// DeniesPods reports whether admission would deny the Pods that controllers create from a
	// template of the object.
	DeniesPods bool
	// WouldChange reports whether the mutations change the object, whether they are applied to
	// requests or only previewed.
	WouldChange bool
}

// Auditor evaluates the validations and mutations of one policy on stored objects. It is immutable.
type Auditor struct {
	policy *Compiled
	groups []auditedGroup
}

// auditedGroup is the policy with one kind of subjects: objects, or the Pods of templates.
type auditedGroup struct {
	*Group
	// The selectors of the policy, which the API server applies at admission; nil without
	// any. That of objects is about Pods, so the Group applies it to the Pods of templates.
	selectors *matchresources.Criteria
}

// NewAuditor returns an auditor for the policy that c was compiled from.
func NewAuditor(p *v1alpha1.WebhookPolicy, c *Compiled) *Auditor {
	alone := []*Compiled{c}
	objects := &Group{policies: alone, index: index{any: objectTargets(newBatches(alone))}}
	a := &Auditor{policy: c, groups: []auditedGroup{{Group: objects, selectors: c.selectors}}}
	if c.templates != nil {
		a.groups = append(a.groups, auditedGroup{
			Group:     NewTemplateGroup(alone),
			selectors: matchresources.NewSelectors(p.Spec.MatchConstraints.NamespaceSelector, nil),
		})
	}
	return a
}

// StoredObject is an object that several Auditors evaluate one after the other. It is decoded
// once, with the parts that they have read of earlier objects. The zero value is ready for use,
// by one goroutine.
type StoredObject struct {
	// Renew changes the decoded object, of which parts can be missing; nil is allowed.
	Renew func(tree map[string]any)

	parts unstructuredjson.Selection

	request *request                   // before it is prepared
	object  *unstructured.Unstructured // read-only
	value   any                        // of the object, in expressions
}

// Next forgets the object, but not which parts are read.
func (s *StoredObject) Next() { *s = StoredObject{Renew: s.Renew, parts: s.parts} }

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
	tree, err := s.decodeParts(account, raw, s.parts)
	if err != nil { // parts that other policies read must not fail this one
		s.object = nil // it lacks parts that are selected now
		tree, err = s.decodeParts(account, raw, parts)
		return &unstructured.Unstructured{Object: tree}, err
	}
	s.object, s.value = &unstructured.Unstructured{Object: tree}, nil
	return s.object, nil
}

func (s *StoredObject) decodeParts(account *unstructuredjson.Account, raw []byte, parts unstructuredjson.Selection) (map[string]any, error) {
	tree, err := account.DecodeParts(raw, parts)
	if err == nil && s.Renew != nil {
		s.Renew(tree)
	}
	return tree, err
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
// nothing, or on a CREATE request without the validations that read what only controllers and
// subresources set. The mutations are evaluated on the same object, and change nothing; without
// TypeConverters they are left out. Pod templates are evaluated as if the request changed them. A panic is an error
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
	if a.policy.AuditsMutations() && host.TypeConverters != nil {
		a.addMutations(ctx, &out, raw, host)
	}
	return out
}

// add adds the result of the policy for a subject that the selectors match.
func (a *Auditor) add(ctx context.Context, out *Audited, m matchedTarget, selectors *matchresources.Criteria, host Environment) error {
	on := m.on
	if on.unreadable != nil {
		selectors = selectors.WithAnyObject()
	}
	if matches, err := on.selectedBy(selectors, host); err != nil || !matches {
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
		if on.raw.Operation == admissionv1.Create {
			a.policy.admitOnlyUpdates(results)
		}
		out.DeniesPods = out.DeniesPods || a.policy.deniesPods(on, results)
		var combined answer
		decision = combined.add(a.policy, results)
		out.Denied = out.Denied || combined.Denied() > 0
		out.Violations = append(out.Violations, a.policy.violations(on, results, host)...)
	}
	out.Decision = first(out.Decision, decision)
	return nil
}

// decidesAnew reports whether a policy can decide in another way about new objects: see
// Compiled.DecidesAnew.
func decidesAnew(spec *v1alpha1.WebhookPolicySpec, of celsyntax.Audit, reads inputs) bool {
	hasRules := func(b v1alpha1.Binding) bool { // which can have operations
		return b.MatchResources != nil && len(b.MatchResources.ResourceRules) > 0
	}
	return of.ReadsOperation || !reads.oldObject.IsZero() || reads.options || readsRenewed(reads.object) ||
		slices.ContainsFunc(spec.Bindings, hasRules)
}

// readsRenewed reports whether a selection of an object has parts of which a new object has
// other values than a stored one.
func readsRenewed(of unstructuredjson.Selection) bool {
	renewed := [][]string{
		{"status"}, {"spec", "nodeName"}, {"spec", "ephemeralContainers"}, {"metadata", "creationTimestamp"},
		{"metadata", "generation"}, {"metadata", "managedFields"}, {"metadata", "resourceVersion"}, {"metadata", "selfLink"},
	}
	return slices.ContainsFunc(renewed, func(path []string) bool { return of.Touches(path...) })
}

// admitOnlyUpdates replaces the decisions about validations that are not evaluated on new
// objects. An error of the whole policy stays.
func (c *Compiled) admitOnlyUpdates(results []result) {
	for i := range results {
		r := &results[i]
		if len(r.decisions) != len(c.audit.OnlyUpdates) {
			continue
		}
		r.decisions, r.validations = slices.Clone(r.decisions), slices.Clone(r.validations) // a batch shares them
		for j, only := range c.audit.OnlyUpdates {
			if only {
				r.decisions[j] = validating.PolicyDecision{Action: validating.ActionAdmit, Evaluation: validating.EvalAdmit}
				if j < len(r.validations) {
					r.validations[j].excepted = nil
				}
			}
		}
	}
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
