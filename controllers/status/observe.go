package status

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/truncate"
)

// Reasons of conditions, which are those of events too.
const (
	// ReasonAccepted means that every expression compiles and the policy may be registered.
	ReasonAccepted = "Accepted"
	// ReasonInvalid means that the author has to change the policy.
	ReasonInvalid = "Invalid"
	// ReasonLoading means that this generation has not been looked at yet.
	ReasonLoading = "Loading"
	// ReasonRegistered means that webhook configurations carry the policy.
	ReasonRegistered = "Registered"
	// ReasonPending means that a webhook configuration has yet to be written.
	ReasonPending = "Pending"
	// ReasonWaitingForReplicas means that a replica has yet to load the policy.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	// ReasonTakingEffect means that API servers may not have taken up a webhook configuration yet.
	ReasonTakingEffect = "TakingEffect"
	// ReasonNoCertificate means that there is no certificate to register with yet.
	ReasonNoCertificate = "NoCertificate"
	// ReasonParamsNotReady means that the objects that bindings name, or that a plugin
	// reads, are not at hand.
	ReasonParamsNotReady = "ParamsNotReady"
	// ReasonSchemaNotReady means that mutations cannot be applied to what the policy matches.
	ReasonSchemaNotReady = "SchemaNotReady"
	// ReasonRefused means that the API server does not take what is to be registered.
	ReasonRefused = policies.ReasonRefused
	// ReasonOverwritten means that somebody else keeps changing a configuration.
	ReasonOverwritten = "Overwritten"
	// ReasonRisky is of events alone: the policy works, and there is something
	// about it that its author may not have thought of.
	ReasonRisky = "Risky"
	// ReasonPanicked means that an evaluation of the policy panicked.
	ReasonPanicked = "Panicked"
	// ReasonInForce means that the API server sends requests to the policy.
	ReasonInForce = "InForce"
	// ReasonNotIdempotent means that mutations were seen to change their own result again.
	ReasonNotIdempotent = "NotIdempotent"
)

const maxMessage = 30 << 10 // bytes; the API server takes 32 KiB

// facts are what has been observed of a policy, before it is put into words.
type facts struct {
	loaded          bool // this generation has been compiled
	accepted        bool
	problems        string
	planned         bool
	registered      bool
	why             string // not registered
	notReady        string // registered, and which replica has not loaded it
	placeholder     bool   // requests are answered by failurePolicy, instead of a generation that is not known
	delegationError string // what the API server said of conditions that Ostiary evaluates alone
	waiting         bool   // for a certificate
	missing         missingDependency
	refusal         string // the API server's
	inForce         int64  // the generation that is registered, or to be
	conflict        string // who keeps changing what is registered
	waitingFor      string // which replica has not loaded it
	propagating     bool   // registered, and API servers may still call as before
	blocked         string // why there is no certificate
	proof           *canary.Verdict
	held            bool // at failurePolicy Ignore
}

// observe makes the status that a policy should have. It keeps the transition
// times of conditions that stay as they are.
func observe(p *v1alpha1.WebhookPolicy, state *policies.State, beside inputs, now metav1.Time) v1alpha1.WebhookPolicyStatus {
	status := v1alpha1.WebhookPolicyStatus{
		ObservedGeneration: p.Generation,
		Actions:            p.Spec.Actions(),
		FailurePolicy:      failurePolicy(&p.Spec),
		TypeChecking:       beside.types,
	}
	var f facts
	f, status.Webhooks = gather(p, state, beside)
	if f.held {
		status.FailurePolicy = admissionregistrationv1.Ignore
	}
	status.Conditions = append([]metav1.Condition(nil), p.Status.Conditions...)
	if f.proof == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEffective)
	}
	for _, c := range conditions(p, f, status.Webhooks) {
		set(&status.Conditions, c, p.Generation, now)
	}
	beside.setBackend(&status.Conditions, p.Generation, now)
	return status
}

// gather puts together what is known of a policy, and the webhooks that carry it.
func gather(p *v1alpha1.WebhookPolicy, state *policies.State, beside inputs) (facts, []v1alpha1.WebhookReference) {
	f, refs := lookUp(p, state)
	f.missing, f.waitingFor, f.proof = beside.missing, beside.waitingFor, beside.proof
	f.blocked = beside.blocked
	f.propagating = f.registered && beside.propagating
	if state != nil {
		f.conflict = beside.conflict(p.Name, state.Plan)
	}
	if f.registered && beside.notReady != nil {
		f.notReady = beside.notReady(state.Entries[p.UID].Policy.ResourceVersion)
	}
	return f, refs
}

// failurePolicy is the stricter one where a policy is called in both phases:
// in the mutating phase it is the policy's own, whatever its bindings do.
func failurePolicy(spec *v1alpha1.WebhookPolicySpec) admissionregistrationv1.FailurePolicyType {
	if spec.Mutates() {
		return spec.EffectiveFailurePolicy()
	}
	return spec.WebhookFailurePolicy()
}

func lookUp(p *v1alpha1.WebhookPolicy, state *policies.State) (facts, []v1alpha1.WebhookReference) {
	if state == nil {
		return facts{}, nil
	}
	e := state.Entries[p.UID]
	if e == nil || e.Policy.Generation != p.Generation {
		return facts{}, nil
	}
	f := facts{loaded: true, accepted: e.Accepted(), planned: e.Planned, waiting: !state.Registrable, refusal: e.Refusal, inForce: e.InForce(), delegationError: e.DelegationError, placeholder: e.IsPlaceholder()}
	if !f.accepted {
		f.problems = e.Errors.ToAggregate().Error()
	}
	var refs []v1alpha1.WebhookReference
	if f.planned {
		refs, f.registered, f.why = state.Registered(e)
		f.held = state.Held(e)
	}
	return f, refs
}

// conditions puts the facts into words. Ready is true only where both others
// are and nothing is lacking; Reconciling and Stalled stand only while they are true (kstatus).
func conditions(p *v1alpha1.WebhookPolicy, f facts, refs []v1alpha1.WebhookReference) []metav1.Condition {
	accepted, registered := acceptedCondition(f), registeredCondition(p, f, refs)
	out := []metav1.Condition{accepted, registered}
	effective := effectiveCondition(f)
	if f.proof != nil {
		out = append(out, effective)
	}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonInForce, Message: effectMessage(p)}
	reconciling := metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionFalse}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}
	switch {
	case accepted.Status == metav1.ConditionFalse:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, accepted.Reason, accepted.Message
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, accepted.Reason, "change the policy: see the condition Accepted"
	case accepted.Status == metav1.ConditionUnknown:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, accepted.Reason, accepted.Message
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, accepted.Reason, accepted.Message
	case f.refusal != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, registered.Reason, registered.Message
		stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, registered.Reason, "change the policy: see the condition Registered"
	case f.missing.message != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, f.missing.reason, f.missing.message
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, f.missing.reason, f.missing.message
	case registered.Status != metav1.ConditionTrue:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, registered.Reason, registered.Message
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, registered.Reason, registered.Message
	case effective.Status != metav1.ConditionTrue:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, effective.Reason, effective.Message
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, effective.Reason, effective.Message
	case f.held:
		const why = "failurePolicy has yet to become Fail in the webhook"
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, ReasonPending, why
		reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, ReasonPending, why
	}
	if f.conflict != "" {
		ready.Message = "contested: " + f.conflict + "; " + ready.Message
	}
	return append(out, ready, reconciling, stalled, conflictCondition(f))
}

func conflictCondition(f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionContested, Status: metav1.ConditionFalse}
	if f.conflict != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonOverwritten, f.conflict
	}
	return c
}

// refused says what the API server said, and what is in force instead.
func refused(p *v1alpha1.WebhookPolicy, f facts) string {
	message := "the API server refuses to register it: " + truncate.String(f.refusal, maxMessage/2)
	if f.inForce != 0 && f.inForce != p.Generation {
		message += fmt.Sprintf("; generation %d, which it carried before, stays in force", f.inForce)
	}
	return message
}

func effectiveCondition(f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionEffective, Status: metav1.ConditionTrue}
	if f.proof != nil {
		c.Status, c.Reason, c.Message = f.proof.Status, f.proof.Reason, f.proof.Message
	}
	return c
}

func acceptedCondition(f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted, Message: "every expression compiles"}
	switch {
	case !f.loaded:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonLoading, "this generation has not been compiled yet"
	case !f.accepted:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonInvalid, f.problems
	}
	return c
}

func registeredCondition(p *v1alpha1.WebhookPolicy, f facts, refs []v1alpha1.WebhookReference) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionRegistered, Status: metav1.ConditionFalse, Reason: ReasonPending, Message: f.why}
	switch {
	case !f.loaded:
		c.Reason, c.Message = ReasonLoading, "this generation has not been compiled yet"
	case f.refusal != "":
		c.Reason, c.Message = ReasonRefused, refused(p, f)
	case !f.planned && f.accepted:
		c.Message = awaitingBundle
	case !f.planned:
		c.Reason, c.Message = ReasonInvalid, "a policy that is not accepted is not registered"
	case f.registered && f.inForce != 0 && f.inForce != p.Generation:
		c.Message = awaitingBundle + "; " + interimEffect(p, f)
	case f.awaitsReplicas(p):
		c.Reason, c.Message = ReasonWaitingForReplicas, f.notReady
	case f.takesEffect(p):
		c.Reason, c.Message = ReasonTakingEffect, "waiting 4 seconds at most for API servers to call by the new webhook configuration"
	case f.registered:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRegistered, registeredMessage(p, f, refs)
	case f.waiting:
		c.Reason, c.Message = ReasonNoCertificate, noCertificate(f)
	case f.waitingFor != "":
		c.Reason, c.Message = ReasonWaitingForReplicas, f.waitingFor
	}
	return c
}

// awaitsReplicas reports whether a replica that is alive has not loaded the policy yet.
func (f facts) awaitsReplicas(p *v1alpha1.WebhookPolicy) bool {
	return f.registered && f.notReady != "" && !wasRegistered(p)
}

// takesEffect reports whether API servers may not call by the new configuration yet.
func (f facts) takesEffect(p *v1alpha1.WebhookPolicy) bool { return f.propagating && !wasRegistered(p) }

func noCertificate(f facts) string {
	const waiting = "waiting for the certificate that the API server is to trust"
	if f.blocked == "" {
		return waiting
	}
	return waiting + ": " + f.blocked
}

const awaitingBundle = "waiting for the CA bundle of the backend: see the condition " + v1alpha1.ConditionCAReady

// interimEffect says what is in force instead of a backend that is not registered yet.
func interimEffect(p *v1alpha1.WebhookPolicy, f facts) string {
	if f.placeholder {
		return "until then its requests are answered by failurePolicy " + string(p.Spec.EffectiveFailurePolicy())
	}
	return fmt.Sprintf("until then generation %d stays in force", f.inForce)
}

// registeredMessage says what carries a policy, and what else it has to do with it.
func registeredMessage(p *v1alpha1.WebhookPolicy, f facts, refs []v1alpha1.WebhookReference) string {
	out := "carried by " + names(refs)
	if f.delegationError != "" {
		out += "; the API server does not take its conditions, which Ostiary evaluates alone: " + truncate.String(f.delegationError, maxMessage/2)
	}
	if !f.accepted {
		out += "; its requests are answered by failurePolicy " + string(p.Spec.EffectiveFailurePolicy()) + " until it is mended"
	}
	return out
}

// wasRegistered reports whether this generation has been registered before, and so was
// loaded by all replicas. One that has come since has loaded it before it was
// called; to compare versions again would have a new leader, which read them
// later, take everything back.
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

// effectMessage says what the policy does to requests.
func effectMessage(p *v1alpha1.WebhookPolicy) string {
	mutates, validates, annotates := p.Spec.Mutates(), p.Spec.Refuses(), len(p.Spec.AuditAnnotations) > 0
	actions := strings.TrimPrefix(p.Spec.Actions(), "Mutate,")
	switch {
	case p.Spec.Backend != nil:
		return "in force: the API server calls the backend for the requests that it matches"
	case p.Spec.Plugin != nil && mutates && validates:
		return "in force: the plugin " + string(p.Spec.Plugin.Name) + " mutates the requests that it matches; one that it refuses meets " + actions
	case p.Spec.Plugin != nil && validates:
		return "in force: a request that the plugin " + string(p.Spec.Plugin.Name) + " refuses meets " + actions
	case mutates && validates:
		return "in force: mutates the requests that it matches; one that then fails a validation meets " + actions
	case mutates && annotates:
		return "in force: mutates the requests that it matches, and annotates them in the audit log"
	case mutates:
		return "in force: mutates the requests that it matches"
	case validates:
		return "in force: a request that fails a validation meets " + actions
	default:
		return "in force: annotates the requests that it matches in the audit log"
	}
}

// set puts a condition into the list; one of the kinds that stand only while
// true is taken out instead when it is not.
func set(list *[]metav1.Condition, c metav1.Condition, generation int64, now metav1.Time) {
	if c.Status == metav1.ConditionFalse && standsWhileTrue(c.Type) {
		meta.RemoveStatusCondition(list, c.Type)
		return
	}
	c.ObservedGeneration = generation
	c.Message = truncate.String(c.Message, maxMessage)
	c.LastTransitionTime = now // kept from before where the status stays
	meta.SetStatusCondition(list, c)
}

func standsWhileTrue(kind string) bool {
	return kind == v1alpha1.ConditionReconciling || kind == v1alpha1.ConditionStalled || kind == v1alpha1.ConditionContested
}

func ready(s v1alpha1.WebhookPolicyStatus) metav1.Condition { return find(s, v1alpha1.ConditionReady) }

func find(s v1alpha1.WebhookPolicyStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

func short(s string) string { return truncate.String(s, truncate.EventMessage) }
