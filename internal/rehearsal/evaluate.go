package rehearsal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// maxCost limits the sum of the costs of a rehearsal, in units of CEL. The last evaluation can
// exceed it by the limit of one request, which is as high.
const maxCost = 10_000_000

// authorizerCost is the cost that API servers count for a check of the authorizer.
const authorizerCost = 350_000

// maxEvaluations limits the number of requests, whose costs have other parts too.
const maxEvaluations = 2_000

// stage is the rehearsal of one policy.
type stage struct {
	rehearser *Rehearser
	policy    *v1alpha1.WebhookPolicy
	group     *policy.Group
	read      *readings
	cluster   Cluster
	findings  *findings

	cost        uint64
	evaluations int
	stopped     string   // by which limit
	unknown     []string // resources of which no object is known
	schemas     []string // kinds of which no schema is known
	decided     bool     // a validation or a mutation was evaluated
	verdicts    map[string]*verdict
}

func newStage(r *Rehearser, p *v1alpha1.WebhookPolicy, compiled *policy.Compiled, read *readings, c Cluster) *stage {
	return &stage{rehearser: r, policy: p, group: policy.NewGroup([]*policy.Compiled{compiled}), read: read,
		cluster: c, findings: &findings{}, verdicts: map[string]*verdict{}}
}

// run sends the requests about all targets, and adds what is wrong with them.
func (s *stage) run(ctx context.Context, targets []target, out *Result) {
	answers := []authorizer.Decision{authorizer.DecisionNoOpinion}
	texts := make([]string, 0, len(s.read.expressions))
	for i := range s.read.expressions {
		texts = append(texts, s.read.expressions[i].text)
	}
	if strings.Contains(strings.Join(texts, " "), "authorizer") {
		answers = append(answers, authorizer.DecisionAllow)
	}
	keys := keysIn(texts)
	for i := range targets {
		s.target(ctx, &targets[i], keys, answers)
	}
	out.Warnings = append(out.Warnings, s.findings.warnings(&s.policy.Spec)...)
	out.Warnings = append(out.Warnings, s.denials(ctx, targets)...)
	out.Stopped = s.stopped
	out.Omitted = append(out.Omitted, s.omissions()...)
}

// omissions says which requests were not evaluated, besides those after a limit.
func (s *stage) omissions() (out []string) {
	if len(s.unknown) > 0 {
		out = append(out, "no example of these resources is known: "+strings.Join(s.unknown, ", "))
	}
	if len(s.schemas) > 0 {
		out = append(out, "the mutations of kinds whose schema is not known: "+strings.Join(s.schemas, ", "))
	}
	if s.evaluations > 0 && !s.decided && s.stopped == "" && len(s.schemas) == 0 && len(s.findings.errors) == 0 {
		out = append(out, "match conditions or bindings exclude every request that was tried")
	}
	if len(s.policy.Spec.Lookups) > 0 {
		out = append(out, "requests whose lookups find an object: every list is empty here")
	}
	return out
}

// target sends the requests about one target.
func (s *stage) target(ctx context.Context, t *target, keys map[string]string, answers []authorizer.Decision) {
	probes := s.rehearser.objects.of(ctx, t, s.cluster)
	if len(probes) == 0 {
		s.unknown = append(s.unknown, t.name())
		return
	}
	if lacks, _ := lacksLabels(t); !lacks {
		probes = variants(probes, keys)
	}
	for _, o := range t.operations {
		requests := requestsFor(t, o, probes, &s.policy.Spec)
		for i := range requests {
			for _, answer := range answers {
				s.request(ctx, t, &requests[i], answer)
			}
		}
	}
	s.controllers(ctx, t, probes)
}

// outcome is what a request gets.
type outcome struct {
	evaluated []policy.Evaluated
	invoked   []policy.Invoked
}

// exhausted reports whether a limit is reached.
func (s *stage) exhausted(ctx context.Context) bool {
	switch {
	case s.stopped != "":
	case ctx.Err() != nil:
		s.stopped = "the time for it ended"
	case s.cost > maxCost:
		s.stopped = "the costs of the expressions reached the limit"
	case s.evaluations >= maxEvaluations:
		s.stopped = fmt.Sprintf("the limit is %d requests", maxEvaluations)
	}
	return s.stopped != ""
}

// request evaluates the mutations, and then the validations on what they return.
func (s *stage) request(ctx context.Context, t *target, r *request, answer authorizer.Decision) {
	if s.exhausted(ctx) {
		return
	}
	w := &world{namespace: namespaceFor(&s.policy.Spec), answer: answer}
	raw := r.AdmissionRequest
	if s.policy.Spec.Mutates() && raw.Object.Raw != nil && s.cluster.TypeConverters != nil {
		mutated, ok := s.mutate(ctx, t, r, w)
		if !ok {
			return
		}
		raw.Object.Raw = mutated
	}
	if !s.policy.Spec.Validates() {
		return
	}
	var o outcome
	_, err := s.group.Validate(s.trace(ctx, &o), &raw, w.environment(s.cluster))
	s.count(&o, w)
	if err != nil {
		return
	}
	s.countVerdicts(t, r, &o)
	if o.fails() || s.failsWithOtherValues(&o) {
		s.report(t, r, &o)
	}
	s.messages(t, r, &o)
}

// messages adds the errors of message expressions, which leave the author's message out.
func (s *stage) messages(t *target, r *request, o *outcome) {
	for i := range o.evaluated {
		e := &o.evaluated[i]
		if e.Err == nil || !strings.HasSuffix(e.Field, messageExpression) {
			continue
		}
		if s.counts(s.read.at(e.Field), r, e.Err.Error()) {
			s.findings.add(t, r, e.Field, e.Err.Error(), func() string { return s.explain(r, e) })
		}
	}
}

// mutate returns the object after mutations; ok is false if they fail.
func (s *stage) mutate(ctx context.Context, t *target, r *request, w *world) (object []byte, ok bool) {
	if s.cluster.TypeConverters.GetTypeConverter(t.GroupVersionKind) == nil {
		if kind := t.GroupVersionKind.Kind; !slices.Contains(s.schemas, kind) {
			s.schemas = append(s.schemas, kind)
		}
		return nil, false
	}
	raw := r.AdmissionRequest
	if r.mutatingObject != nil {
		raw.Object.Raw = r.mutatingObject
	}
	var o outcome
	response, err := s.group.Mutate(s.trace(ctx, &o), &raw, w.environment(s.cluster))
	s.count(&o, w)
	if err != nil || o.fails() {
		if err == nil {
			s.report(t, r, &o)
		}
		return nil, false
	}
	if len(response.Patch) == 0 {
		return r.Object.Raw, true
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return nil, false
	}
	object, err = patch.Apply(r.Object.Raw) // of which the metadata is complete
	return object, err == nil
}

func (s *stage) trace(ctx context.Context, o *outcome) context.Context {
	return policy.WithTrace(ctx, policy.Trace{
		Expression: func(e policy.Evaluated) { o.evaluated = append(o.evaluated, e) },
		Invocation: func(i policy.Invoked) { o.invoked = append(o.invoked, i) },
	})
}

// count adds the cost of a request. A check of the authorizer takes no time here.
func (s *stage) count(o *outcome, w *world) {
	s.evaluations++
	cost := uint64(0)
	for _, e := range o.evaluated {
		cost += e.Cost
		s.decided = s.decided || strings.HasPrefix(e.Field, "spec.validations") ||
			strings.HasPrefix(e.Field, "spec.mutations")
	}
	s.cost += cost - min(cost, uint64(w.asked)*authorizerCost) //nolint:gosec // a count
	w.asked = 0
}

// fails reports whether an error decides the request. A request that a validation denies too would
// not pass without the error.
func (o *outcome) fails() bool {
	failed := false
	for _, i := range o.invoked {
		failed = failed || i.Err != nil
		for _, d := range i.Decisions {
			if d.Denied && !d.Failed {
				return false
			}
			failed = failed || d.Failed
		}
	}
	return failed
}

// failsWithOtherValues reports whether the first error would decide a request that satisfies the validations that
// deny this one. They read nothing that the expression with the error reads, so other values for them leave the error.
func (s *stage) failsWithOtherValues(o *outcome) bool {
	var failed *reading
	var denying []*reading
	for i := range o.evaluated {
		e := &o.evaluated[i]
		read := s.read.at(e.Field)
		switch {
		case read == nil || strings.HasSuffix(e.Field, messageExpression):
		case e.Err != nil:
			failed = cmp.Or(failed, read)
		case read.validation && e.Value != types.True:
			denying = append(denying, read)
		}
	}
	return failed != nil && len(denying) > 0 && !slices.ContainsFunc(denying, func(d *reading) bool {
		return len(d.paths) == 0 || slices.ContainsFunc(slices.Collect(maps.Keys(d.paths)), failed.readsAround)
	})
}

// denies reports whether a validation is false.
func (o *outcome) denies() bool {
	for _, i := range o.invoked {
		for _, d := range i.Decisions {
			if d.Denied && !d.Failed && slices.Contains(i.Actions, admissionregistrationv1.Deny) {
				return true
			}
		}
	}
	return false
}

// report adds the first error of an expression, or that of a patch.
func (s *stage) report(t *target, r *request, o *outcome) {
	for i := range o.evaluated {
		e := &o.evaluated[i]
		if e.Err == nil || strings.HasSuffix(e.Field, messageExpression) {
			continue
		}
		if s.counts(s.read.at(e.Field), r, e.Err.Error()) {
			s.findings.add(t, r, e.Field, e.Err.Error(), func() string { return s.explain(r, e) })
		}
		return
	}
	for _, i := range o.invoked {
		if i.Err == nil || !i.Mutating {
			continue
		}
		var failed *violationtext.MutationError
		if !errors.As(i.Err, &failed) {
			return
		}
		text, more, _ := strings.Cut(failed.Err.Error(), "\n")
		if strings.HasSuffix(text, ":") { // the first of several errors follows
			first, _, _ := strings.Cut(more, "\n")
			text += " " + strings.TrimSpace(first)
		}
		for _, prefix := range []string{"error applying patch: ", "invalid ApplyConfiguration: "} {
			text = strings.TrimPrefix(text, prefix) // API servers truncate warnings, and the hint is at the end
		}
		at, read := s.expressionOf(failed.Index)
		if s.counts(read, r, text) && !r.invented {
			s.findings.add(t, r, at, text, func() string { return explainPatch(s.policy.Spec.Mutations[failed.Index], text) })
		}
		return
	}
}

// counts reports whether an error says something about requests in a cluster.
func (s *stage) counts(e *reading, r *request, text string) bool {
	if e.reads(celsyntax.LookupsVarName) { // the stored objects are not known
		return false
	}
	if e == nil || s.policy.Spec.ParamKind != nil && e.reads("params") && hasParamRef(&s.policy.Spec) {
		return false
	}
	return !r.invented || strings.Contains(text, "no such key") || strings.Contains(text, "no such field")
}

func hasParamRef(spec *v1alpha1.WebhookPolicySpec) bool {
	return slices.ContainsFunc(spec.Bindings, func(b v1alpha1.Binding) bool { return b.ParamRef != nil })
}

func (s *stage) expressionOf(mutation int) (field string, read *reading) {
	for _, name := range []string{"applyConfiguration", "jsonPatch"} {
		field = fmt.Sprintf("spec.mutations[%d].%s.expression", mutation, name)
		if read = s.read.at(field); read != nil {
			break
		}
	}
	return field, read
}

// controllers sends the requests of the control plane without which namespaces are not deleted.
func (s *stage) controllers(ctx context.Context, t *target, probes []probe) {
	if !s.policy.Spec.Denies() || len(probes) == 0 || t.excluded ||
		selects(s.policy.Spec.MatchConstraints.ObjectSelector) {
		return // with an objectSelector, the owner of an object has chosen the policy for it
	}
	spec := &s.policy.Spec
	switch {
	case t.resource == "namespaces" && t.subresource != "" && t.has(admissionv1.Update):
		update := requestsFor(t, admissionv1.Update, []probe{terminating(probes[0], t.subresource == "finalize")}, spec)
		if s.allDenied(ctx, update) {
			s.findings.addText("spec.validations", "the namespace controller updates "+t.name()+" to delete a Namespace, "+
				"which is denied, so deletion hangs: remove the subresource from resources, "+
				"or pass objects with has(object.metadata.deletionTimestamp)"+s.ratchetHint())
		}
	case t.namespaced && t.subresource == "" && t.has(admissionv1.Delete):
		if s.allDenied(ctx, requestsFor(t, admissionv1.Delete, probes, spec)) {
			s.findings.addText("spec.validations", "the namespace controller may not delete "+t.name()+
				", so the deletion of their namespace hangs: pass requests of system:serviceaccount:kube-system:"+
				"namespace-controller, or those with namespaceObject.status.phase == \"Terminating\"")
		}
	}
	if t.has(admissionv1.Update) && t.subresource == "" {
		s.finalizers(ctx, t, probes[0])
	}
}

// ratchetHint suggests ratchet, unless a validation reads what is not known of the stored object.
func (s *stage) ratchetHint() string {
	for i := range s.read.expressions {
		if e := &s.read.expressions[i]; e.validation && (e.reads("request") || e.reads("authorizer")) {
			return ""
		}
	}
	return ", or set ratchet: true"
}

// terminating returns an object that is being deleted.
func terminating(p probe, finalized bool) probe {
	out := probe{object: stored(p.object), invented: p.invented}
	m := metadataOf(out.object)
	m["deletionTimestamp"] = created
	if !finalized {
		m["finalizers"] = []any{"probe.example.com/probe"}
	}
	return out
}

// finalizers compares an update that removes the last finalizer of an object that is being deleted
// with one that changes nothing.
func (s *stage) finalizers(ctx context.Context, t *target, p probe) {
	unchanged := newRequest(t, admissionv1.Update, terminating(p, false).object, terminating(p, false).object,
		p.invented, &s.policy.Spec)
	removed := newRequest(t, admissionv1.Update, terminating(p, true).object, terminating(p, false).object,
		p.invented, &s.policy.Spec)
	if s.allDenied(ctx, []request{removed}) && !s.allDenied(ctx, []request{unchanged}) {
		s.findings.addText("spec.validations", "an update that removes the last finalizer of "+t.name()+
			" which are being deleted is denied, so their deletion hangs: "+
			"pass objects with has(object.metadata.deletionTimestamp)")
	}
}

// allDenied reports whether a validation is false for each of some requests of the namespace
// controller, whatever the authorizer answers.
func (s *stage) allDenied(ctx context.Context, requests []request) bool {
	for _, r := range requests {
		for _, answer := range []authorizer.Decision{authorizer.DecisionNoOpinion, authorizer.DecisionAllow} {
			if s.exhausted(ctx) || !s.denied(ctx, &r, answer) {
				return false
			}
		}
	}
	return true
}

// denied reports whether a validation is false for a request of the namespace controller.
func (s *stage) denied(ctx context.Context, r *request, answer authorizer.Decision) bool {
	raw := r.AdmissionRequest
	raw.UserInfo.Username = "system:serviceaccount:kube-system:namespace-controller"
	raw.UserInfo.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:kube-system",
		"system:authenticated"}
	w := &world{namespace: namespaceFor(&s.policy.Spec), answer: answer}
	w.namespace.Status.Phase = corev1.NamespaceTerminating
	w.namespace.DeletionTimestamp = terminated()
	var o outcome
	_, err := s.group.Validate(s.trace(ctx, &o), &raw, w.environment(s.cluster))
	s.count(&o, w)
	return err == nil && o.denies()
}
