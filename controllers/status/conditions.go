package status

import (
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Reasons of conditions and of the events about them. Reachable and CAReady also
// have those of packages canary and backends.
const (
	// ReasonAccepted means that every expression compiles and the policy may be registered.
	ReasonAccepted = "Accepted"
	// ReasonInvalid means that the author must change the policy.
	ReasonInvalid = "Invalid"
	// ReasonPending means that Ostiary or an API server has not finished its work yet.
	ReasonPending = canary.ReasonPending
	// ReasonRegistered means that webhook configurations contain the policy.
	ReasonRegistered = "Registered"
	// ReasonWaitingForReplicas means that a replica has not loaded the policy yet.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	// ReasonNoCertificate means that there is no serving certificate yet.
	ReasonNoCertificate = "NoCertificate"
	// ReasonParamsNotReady means that objects that bindings or a plugin read are not available.
	ReasonParamsNotReady = "ParamsNotReady"
	// ReasonParamsNotFound means that the policy is enforced without the params that a binding names.
	ReasonParamsNotFound = "ParamsNotFound"
	// ReasonLookupsNotReady means that requests that read a lookup are errors.
	ReasonLookupsNotReady = "LookupsNotReady"
	// ReasonSchemaNotReady means that the schema of a mutated kind is not available.
	ReasonSchemaNotReady = "SchemaNotReady"
	// ReasonRefused means that the API server rejects the registration.
	ReasonRefused = policies.ReasonRefused
	// ReasonConflict means that another client keeps changing a webhook configuration.
	ReasonConflict = "Conflict"
	// ReasonEnforced means that API servers send requests to the policy.
	ReasonEnforced = "Enforced"
	// ReasonSuspended means that requests pass the policy until a time.
	ReasonSuspended = "Suspended"
	// ReasonComplete means that every matching stored object is evaluated, that the rehearsal of a
	// policy found nothing, or that every replica has read the objects of every lookup.
	ReasonComplete = "Complete"
	// ReasonFindings means that the rehearsal of a policy found something to correct.
	ReasonFindings = "Findings"
	// ReasonNotAuditable means that the policy is not evaluated on stored objects.
	ReasonNotAuditable = "NotAuditable"
	// ReasonNoAccess means that Ostiary may not read the stored objects.
	ReasonNoAccess = "NoAccess"
	// ReasonIncomplete means that some stored objects, or some requests of a rehearsal, are not
	// evaluated.
	ReasonIncomplete = "Incomplete"
	// ReasonRisky is the reason of the event with warnings about an accepted policy.
	ReasonRisky = "Risky"
	// ReasonPanicked is the reason of the event about an evaluation that panicked.
	ReasonPanicked = "Panicked"
	// ReasonNotIdempotent is the reason of the event about mutations that changed their own result.
	ReasonNotIdempotent = "NotIdempotent"
)

const maxMessage = 30 << 10 // bytes; the API server accepts 32 KiB

// observation is the observed state of a policy, from which the conditions follow.
type observation struct {
	loaded             bool // this generation has been compiled
	accepted           bool
	problems           string // of compilation
	planned            bool
	registered         bool
	notRegistered      string // why it is not registered
	notReady           string // registered, and which replica has not loaded it
	placeholder        bool   // failurePolicy answers, because the previous generation is not known
	undelegated        string // why Ostiary evaluates match conditions that it could not delegate
	noCertificate      bool
	certificateProblem string // why there is no certificate
	missing            missingDependency
	absentParams       string // what happens because params do not exist
	lookups            lookupsInput
	suspended          string // until when
	rejection          string // of the API server
	skew               string // which replica does not know its fields
	enforced           int64  // the generation that is registered, or will be
	conflict           string // which client keeps changing the configurations
	waitReason         string // which replica has not loaded it
	propagating        bool   // registered, and API servers may still use the previous version
	reachable          *metav1.Condition
	caReady            *metav1.Condition
	heldAtIgnore       bool // failurePolicy Fail is registered as Ignore
	rules              unmatched
	advice             []string // warnings about the accepted policy
}

// observe returns the status that a policy should have. Conditions whose status
// stays the same keep their transition time.
func observe(p *v1alpha1.WebhookPolicy, state *policies.State, in inputs, next *stages, now metav1.Time) v1alpha1.WebhookPolicyStatus {
	p, actions := next.withStages(p)
	status := v1alpha1.WebhookPolicyStatus{
		ObservedGeneration: p.Generation,
		Actions:            actions,
		Bindings:           next.bindings,
		FailurePolicy:      failurePolicy(&p.Spec),
		TypeChecking:       in.types,
		Audit:              auditOf(p, &in, state),
	}
	var o observation
	o, status.Webhooks = gather(p, state, in)
	status.Lookups = o.lookups.statuses
	if until := p.SuspendedUntil(); v1alpha1.IsSuspended(until, now.Time) {
		o.suspended = fmt.Sprintf("suspended: requests pass the policy until %s; end this with: kubectl ostiary resume %s",
			until.UTC().Format(time.RFC3339), p.Name)
	}
	if o.heldAtIgnore {
		status.FailurePolicy = admissionregistrationv1.Ignore
	}
	status.Conditions = append([]metav1.Condition(nil), p.Status.Conditions...)
	for _, c := range conditions(p, &o, status.Webhooks) {
		setCondition(&status.Conditions, c, p.Generation, now)
	}
	setCondition(&status.Conditions, auditedCondition(p, &o, in.audits, status.Audit), p.Generation, now)
	setCondition(&status.Conditions, rehearsedCondition(p, in.rehearsed, status.Audit), p.Generation, now)
	setCondition(&status.Conditions, rolledOutCondition(p, &o, next), p.Generation, now)
	return status
}

// gather returns the observed state of a policy, and the webhooks that contain it.
func gather(p *v1alpha1.WebhookPolicy, state *policies.State, in inputs) (observation, []v1alpha1.WebhookReference) {
	o, refs := observeLoaded(p, state)
	o.missing, o.waitReason, o.reachable, o.caReady = in.missing, in.waitReason, in.reachable, in.caReady
	o.certificateProblem, o.absentParams = in.certificateProblem, in.absentParams
	if o.accepted && o.planned { // otherwise nothing reads them
		o.lookups = in.lookups
	}
	o.rules, o.advice = in.rules, warningsOf(in.rules, in.types)
	o.propagating = o.registered && in.propagating
	if state != nil {
		o.conflict = in.conflict(p.Name, state.Plan)
	}
	if o.registered && in.notReady != nil {
		o.notReady = in.notReady(state.Entries[p.UID])
	}
	return o, refs
}

// failurePolicy returns the registered failurePolicy. For a policy that is called in
// both phases it is the stricter one, that of the mutating phase unless that only previews.
func failurePolicy(spec *v1alpha1.WebhookPolicySpec) admissionregistrationv1.FailurePolicyType {
	if spec.Mutates() && (!spec.Previews() || !spec.Validates()) {
		return spec.MutationFailurePolicy()
	}
	return spec.WebhookFailurePolicy()
}

// observeLoaded returns the part of the observed state that the store has. It is
// empty while this generation is not loaded.
func observeLoaded(p *v1alpha1.WebhookPolicy, state *policies.State) (observation, []v1alpha1.WebhookReference) {
	if state == nil {
		return observation{}, nil
	}
	e := state.Entries[p.UID]
	if e == nil || e.Policy.Generation != p.Generation || !rollout.SameEffect(e.Policy, p) {
		return observation{}, nil
	}
	o := observation{
		loaded: true, accepted: e.Accepted(), planned: e.Planned(), noCertificate: !state.Registrable,
		rejection: e.Refusal, skew: e.Skew, enforced: e.EffectiveGeneration(), undelegated: e.DelegationError, placeholder: e.IsPlaceholder(),
	}
	if !o.accepted {
		o.problems = e.Errors.ToAggregate().Error()
	}
	var refs []v1alpha1.WebhookReference
	if o.planned {
		refs, o.registered, o.notRegistered = state.Registered(e)
		o.heldAtIgnore = state.Held(e)
	}
	return o, refs
}

// rule gives a condition its status, reason and message if it applies.
type rule struct {
	applies         bool
	status          metav1.ConditionStatus
	reason, message string
}

// declaration declares a condition. Its first rule that applies gives the condition;
// if none applies, there is no condition. One without a type is not published.
type declaration struct {
	kind     string
	advisory bool // it does not affect Ready
	rules    []rule
}

func (d declaration) condition() metav1.Condition {
	for _, r := range d.rules {
		if r.applies {
			return metav1.Condition{Type: d.kind, Status: r.status, Reason: r.reason, Message: r.message}
		}
	}
	return metav1.Condition{Type: d.kind}
}

// table declares the conditions in the order in which they decide Ready: see
// docs/adr/0019-conditions.md.
func table(p *v1alpha1.WebhookPolicy, o *observation, refs []v1alpha1.WebhookReference) []declaration {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	const notCompiled = "this generation has not been compiled yet"
	const awaitingBundle = "waiting for the CA bundle of the backend: see the condition " + v1alpha1.ConditionCAReady
	reported := wasRegistered(p)
	return []declaration{
		{kind: v1alpha1.ConditionAccepted, rules: []rule{
			{!o.loaded, unknown, ReasonPending, notCompiled},
			{!o.accepted, no, ReasonInvalid, o.problems},
			{true, yes, ReasonAccepted, acceptedMessage(o.advice)},
		}},
		{rules: []rule{
			{o.missing.message != "" && o.rejection == "", no, o.missing.reason, o.missing.message},
		}},
		{kind: v1alpha1.ConditionLookupsReady, rules: o.lookups.rules()},
		{kind: v1alpha1.ConditionRegistered, rules: []rule{
			{!o.loaded, no, ReasonPending, notCompiled},
			{o.rejection != "", no, ReasonRefused, rejectedMessage(p, o)},
			{o.skew != "", no, ReasonWaitingForReplicas, skewMessage(p, o)},
			{!o.planned && o.accepted, no, ReasonPending, awaitingBundle},
			{!o.planned, no, ReasonInvalid, "a policy that is not accepted is not registered"},
			{o.registered && o.isReplaced(p), no, ReasonPending, awaitingBundle + "; " + untilThen(p, o)},
			{o.registered && o.notReady != "" && !reported, no, ReasonWaitingForReplicas, o.notReady},
			{o.propagating && !reported, no, ReasonPending, "waiting up to 4 seconds for API servers to use the new webhook configuration"},
			{o.registered, yes, ReasonRegistered, registeredMessage(p, o, refs)},
			{o.noCertificate, no, ReasonNoCertificate, noCertificateMessage(o)},
			{o.waitReason != "", no, ReasonWaitingForReplicas, o.waitReason},
			{true, no, ReasonPending, o.notRegistered},
		}},
		{kind: v1alpha1.ConditionReachable, rules: existing(o.reachable)},
		{kind: v1alpha1.ConditionCAReady, advisory: true, rules: existing(o.caReady)},
		{rules: []rule{
			{o.heldAtIgnore, no, ReasonPending, "waiting for the webhook to be registered with failurePolicy Fail instead of Ignore"},
		}},
	}
}

func existing(c *metav1.Condition) []rule {
	if c == nil {
		return nil
	}
	return []rule{{true, c.Status, c.Reason, c.Message}}
}

// conditions returns all conditions, without a status for those that the policy does
// not have. The first declared one that is not true decides Ready. Reconciling and
// Stalled follow kstatus: Stalled if only a change of the policy helps.
func conditions(p *v1alpha1.WebhookPolicy, o *observation, refs []v1alpha1.WebhookReference) []metav1.Condition {
	var out []metav1.Condition
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonEnforced, Message: readyMessage(p, o)}
	reconciling, stalled := metav1.Condition{Type: v1alpha1.ConditionReconciling}, metav1.Condition{Type: v1alpha1.ConditionStalled}
	for _, d := range table(p, o, refs) {
		c := d.condition()
		if d.kind != "" {
			out = append(out, c)
		}
		if ready.Status != metav1.ConditionTrue || d.advisory || c.Status == "" || c.Status == metav1.ConditionTrue {
			continue
		}
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, c.Reason, c.Message
		if d.kind != "" && (c.Reason == ReasonInvalid || c.Reason == ReasonRefused) {
			stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, c.Reason, "change the policy: see the condition "+d.kind
		} else {
			reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, c.Reason, c.Message
		}
	}
	o.amendReady(&ready, &reconciling)
	return append(out, ready, reconciling, stalled)
}

// amendReady adds what Ready says besides the other conditions.
func (o *observation) amendReady(ready, reconciling *metav1.Condition) {
	if o.suspended != "" && ready.Status == metav1.ConditionTrue {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, ReasonSuspended, o.suspended
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, ReasonSuspended, o.suspended // it ends by itself
	}
	if o.absentParams != "" && ready.Status == metav1.ConditionTrue {
		ready.Reason, ready.Message = ReasonParamsNotFound, o.absentParams
	}
	if o.conflict != "" {
		ready.Message += "; " + o.conflict
		if ready.Reason == ReasonEnforced || ready.Reason == ReasonPending {
			ready.Reason = ReasonConflict
		}
	}
}

// rejectedMessage contains the API server's message, and the enforced generation.
func rejectedMessage(p *v1alpha1.WebhookPolicy, o *observation) string {
	message := "the API server rejects the registration: " + truncate.String(o.rejection, maxMessage/2)
	if o.isReplaced(p) {
		message += fmt.Sprintf("; generation %d stays enforced", o.enforced)
	}
	return message
}

// skewMessage names the fields that a replica does not know, and the enforced generation.
func skewMessage(p *v1alpha1.WebhookPolicy, o *observation) string {
	message := o.skew + ": upgrade all replicas, or remove the field"
	if o.isReplaced(p) {
		message += "; " + untilThen(p, o)
	}
	return message
}

// isReplaced reports whether an earlier generation is enforced instead of this one.
func (o *observation) isReplaced(p *v1alpha1.WebhookPolicy) bool {
	return o.enforced != 0 && o.enforced != p.Generation
}

func noCertificateMessage(o *observation) string {
	const waiting = "waiting for the serving certificate"
	if o.certificateProblem == "" {
		return waiting
	}
	return waiting + ": " + o.certificateProblem
}

// untilThen says how requests are answered while a backend is not registered.
func untilThen(p *v1alpha1.WebhookPolicy, o *observation) string {
	if o.placeholder {
		return "until then its requests are answered by failurePolicy " + string(p.Spec.EffectiveFailurePolicy())
	}
	return fmt.Sprintf("until then generation %d stays enforced", o.enforced)
}

// registeredMessage names the configurations that contain a policy, and limitations.
func registeredMessage(p *v1alpha1.WebhookPolicy, o *observation, refs []v1alpha1.WebhookReference) string {
	out := "registered in " + names(refs)
	if o.undelegated != "" {
		out += "; Ostiary evaluates its match conditions, because the API server rejects them: " + truncate.String(o.undelegated, maxMessage/2)
	}
	if !o.accepted {
		out += "; its requests are answered by failurePolicy " + string(p.Spec.EffectiveFailurePolicy()) + " until it is corrected"
	}
	return out
}

// wasRegistered reports whether the status already shows this generation as
// registered, so that all replicas have loaded it. Replicas that started later load
// it before they are called. Comparing versions again would let a new leader, which
// reads them later, report the policy as not registered.
func wasRegistered(p *v1alpha1.WebhookPolicy) bool {
	c := find(p.Status, v1alpha1.ConditionRegistered)
	return c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation
}

func names(refs []v1alpha1.WebhookReference) string {
	out := make([]string, len(refs))
	for i, r := range refs {
		out[i] = r.Kind + " " + r.Configuration
	}
	return strings.Join(out, ", ")
}

// readyMessage says what the policy does to requests, or that none matches.
func readyMessage(p *v1alpha1.WebhookPolicy, o *observation) string {
	if o.rules.all && len(o.rules.warnings) > 0 {
		return "no request matches the policy: " + strings.Join(o.rules.warnings, "; ")
	}
	if p.Spec.TemplateSpec() != nil {
		return enforcedMessage(p) + "; pod templates are evaluated too"
	}
	return enforcedMessage(p)
}

// effectsOf describes actions. Making a Replacer for each of thousands of policies takes
// longer than everything else about a status.
var effectsOf = strings.NewReplacer( //nolint:gochecknoglobals // a constant
	"Mutate,", "", "Preview,", "",
	"Deny", "are denied", "Warn", "get a warning", "Audit", "are recorded in the audit log",
	",", " and ",
)

// previewMessage says what a policy does that changes nothing.
func previewMessage(p *v1alpha1.WebhookPolicy, effects string) string {
	const text = "enforced: what mutations would change is only recorded"
	if !p.Spec.Refuses() {
		return text
	}
	return text + "; requests that fail a validation " + effects
}

// enforcedMessage says what the policy does to requests.
func enforcedMessage(p *v1alpha1.WebhookPolicy) string {
	mutates, validates, annotates := p.Spec.Mutates(), p.Spec.Refuses(), len(p.Spec.AuditAnnotations) > 0
	effects := effectsOf.Replace(p.Spec.Actions())
	switch {
	case p.Spec.Previews():
		return previewMessage(p, effects)
	case p.Spec.Backend != nil:
		return "enforced: the API server calls the backend for matching requests"
	case p.Spec.Plugin != nil && mutates && validates:
		return "enforced: the plugin " + string(p.Spec.Plugin.Name) + " mutates matching requests; requests that it rejects " + effects
	case p.Spec.Plugin != nil && validates:
		return "enforced: requests that the plugin " + string(p.Spec.Plugin.Name) + " rejects " + effects
	case mutates && validates:
		return "enforced: matching requests are mutated; requests that then fail a validation " + effects
	case mutates && annotates:
		return "enforced: matching requests are mutated and annotated in the audit log"
	case mutates:
		return "enforced: matching requests are mutated"
	case validates:
		return "enforced: requests that fail a validation " + effects
	default:
		return "enforced: matching requests are annotated in the audit log"
	}
}

// setCondition sets a condition in the list, or removes it if it has no status.
func setCondition(list *[]metav1.Condition, c metav1.Condition, generation int64, now metav1.Time) {
	if c.Status == "" {
		meta.RemoveStatusCondition(list, c.Type)
		return
	}
	c.ObservedGeneration = generation
	c.Message = truncate.String(c.Message, maxMessage)
	c.LastTransitionTime = now // SetStatusCondition keeps the old one if the status is the same
	meta.SetStatusCondition(list, c)
}

func ready(s v1alpha1.WebhookPolicyStatus) metav1.Condition { return find(s, v1alpha1.ConditionReady) }

func find(s v1alpha1.WebhookPolicyStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

func eventMessage(s string) string { return truncate.String(s, truncate.EventMessage) }
