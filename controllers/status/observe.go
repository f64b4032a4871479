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

// Reasons of conditions and events.
const (
	// ReasonAccepted means that all expressions compile and the policy may be registered.
	ReasonAccepted = "Accepted"
	// ReasonInvalid means that the policy has errors which its author must fix.
	ReasonInvalid = "Invalid"
	// ReasonLoading means that this generation is not compiled yet.
	ReasonLoading = "Loading"
	// ReasonRegistered means that webhook configurations contain the policy.
	ReasonRegistered = "Registered"
	// ReasonPending means that a webhook configuration is not written yet.
	ReasonPending = "Pending"
	// ReasonWaitingForReplicas means that a live replica has not loaded the policy.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	// ReasonTakingEffect means that API servers may not use a new configuration yet.
	ReasonTakingEffect = "TakingEffect"
	// ReasonNoCertificate means that there is no serving certificate yet.
	ReasonNoCertificate = "NoCertificate"
	// ReasonParamsNotReady means that params, or objects that a plugin reads, are not
	// available.
	ReasonParamsNotReady = "ParamsNotReady"
	// ReasonSchemaNotReady means that the schema of a kind to mutate is not available.
	ReasonSchemaNotReady = "SchemaNotReady"
	// ReasonRefused means that the API server rejects the webhook configuration.
	ReasonRefused = policies.ReasonRefused
	// ReasonOverwritten is of events alone: another client keeps changing a webhook
	// configuration that contains the policy.
	ReasonOverwritten = "Overwritten"
	// ReasonRisky is of events alone: the policy is enforced, and has a risk.
	ReasonRisky = "Risky"
	// ReasonPanicked means that an evaluation of the policy panicked.
	ReasonPanicked = "Panicked"
	// ReasonEnforcing means that API servers send matching requests to the policy.
	ReasonEnforcing = "Enforcing"
	// ReasonNotIdempotent means that mutations changed an object that they had mutated.
	ReasonNotIdempotent = "NotIdempotent"
)

const maxMessage = 30 << 10 // bytes; API servers accept 32 KiB

// facts are the observed state of a policy.
type facts struct {
	loaded          bool // this generation is compiled
	accepted        bool
	problems        string // errors of a policy that is not accepted
	planned         bool
	registered      bool
	why             string // why it is not registered
	notReady        string // a live replica that has not loaded the registered version
	placeholder     bool   // failurePolicy applies instead of an earlier generation that is unknown
	delegationError string // the API server's error about match conditions
	waiting         bool   // for a serving certificate
	missing         missingDependency
	refusal         string // the API server's error about the webhook
	inForce         int64  // the generation that is or will be registered
	conflict        string // which client keeps changing the configuration
	waitingFor      string // the replica for which the registration waits
	propagating     bool   // API servers may not use the configuration yet
	blocked         string // why there is no serving certificate
	proof           *canary.Verdict
	held            bool // registered with failurePolicy Ignore instead of Fail
}

// observe returns the status that a policy should have. It keeps the transition
// times of conditions whose status does not change.
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

// gather returns the facts of a policy and the webhooks that contain it.
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

// failurePolicy is the stricter one if a policy is called in both phases: bindings
// do not change that of the mutating phase.
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

// conditions are those of a policy. Ready is true if no blocker applies.
// Reconciling and Stalled are present only while they are true (kstatus).
func conditions(p *v1alpha1.WebhookPolicy, f facts, refs []v1alpha1.WebhookReference) []metav1.Condition {
	accepted, registered := acceptedCondition(f), registeredCondition(p, f, refs)
	out := []metav1.Condition{accepted, registered}
	effective := effectiveCondition(f)
	if f.proof != nil {
		out = append(out, effective)
	}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ReasonEnforcing, Message: effectMessage(p)}
	reconciling := metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionFalse}
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}
	for _, blocker := range []struct {
		applies bool
		cause   metav1.Condition
		fixIn   string // the condition that says what the author has to change
	}{
		{applies: accepted.Status == metav1.ConditionFalse, cause: accepted, fixIn: accepted.Type},
		{applies: accepted.Status == metav1.ConditionUnknown, cause: accepted},
		{applies: f.refusal != "", cause: registered, fixIn: registered.Type},
		{applies: f.missing.message != "", cause: metav1.Condition{Reason: f.missing.reason, Message: f.missing.message}},
		{applies: registered.Status != metav1.ConditionTrue, cause: registered},
		{applies: effective.Status != metav1.ConditionTrue, cause: effective},
		{applies: f.held, cause: metav1.Condition{Reason: ReasonPending, Message: "the webhook still has failurePolicy Ignore"}},
	} {
		if !blocker.applies {
			continue
		}
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, blocker.cause.Reason, blocker.cause.Message
		if blocker.fixIn != "" {
			stalled.Status, stalled.Reason, stalled.Message = metav1.ConditionTrue, ready.Reason, "change the policy: see condition "+blocker.fixIn
		} else {
			reconciling.Status, reconciling.Reason, reconciling.Message = metav1.ConditionTrue, ready.Reason, ready.Message
		}
		break
	}
	if f.conflict != "" {
		ready.Message = f.conflict + "; " + ready.Message
	}
	return append(out, ready, reconciling, stalled)
}

// refused quotes the API server, and names the generation that stays registered.
func refused(p *v1alpha1.WebhookPolicy, f facts) string {
	message := "the API server rejects the webhook configuration: " + truncate.String(f.refusal, maxMessage/2)
	if f.inForce != 0 && f.inForce != p.Generation {
		message += fmt.Sprintf("; generation %d stays registered", f.inForce)
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
	c := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted, Message: "all expressions compile"}
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
		c.Reason, c.Message = ReasonInvalid, "not registered: the policy is not accepted"
	case f.registered && f.inForce != 0 && f.inForce != p.Generation:
		c.Message = awaitingBundle + "; " + interimEffect(p, f)
	case f.awaitsReplicas(p):
		c.Reason, c.Message = ReasonWaitingForReplicas, f.notReady
	case f.takesEffect(p):
		c.Reason, c.Message = ReasonTakingEffect, "waiting up to 4 s until API servers use the new webhook configuration"
	case f.registered:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonRegistered, registeredMessage(p, f, refs)
	case f.waiting:
		c.Reason, c.Message = ReasonNoCertificate, noCertificate(f)
	case f.waitingFor != "":
		c.Reason, c.Message = ReasonWaitingForReplicas, f.waitingFor
	}
	return c
}

// awaitsReplicas reports whether a live replica has not loaded a new policy.
func (f facts) awaitsReplicas(p *v1alpha1.WebhookPolicy) bool {
	return f.registered && f.notReady != "" && !wasRegistered(p)
}

// takesEffect reports whether API servers may not use a new configuration yet.
func (f facts) takesEffect(p *v1alpha1.WebhookPolicy) bool { return f.propagating && !wasRegistered(p) }

func noCertificate(f facts) string {
	const waiting = "waiting for a serving certificate"
	if f.blocked == "" {
		return waiting
	}
	return waiting + ": " + f.blocked
}

const awaitingBundle = "waiting for the CA bundle of the backend: see condition " + v1alpha1.ConditionCAReady

// interimEffect says what applies until the backend is registered.
func interimEffect(p *v1alpha1.WebhookPolicy, f facts) string {
	if f.placeholder {
		return "until then, failurePolicy " + string(p.Spec.EffectiveFailurePolicy()) + " applies to matching requests"
	}
	return fmt.Sprintf("until then, generation %d stays registered", f.inForce)
}

// registeredMessage names the configurations that contain a policy.
func registeredMessage(p *v1alpha1.WebhookPolicy, f facts, refs []v1alpha1.WebhookReference) string {
	out := "registered in " + names(refs)
	if f.delegationError != "" {
		out += "; the API server rejects its match conditions, so Ostiary evaluates them: " + truncate.String(f.delegationError, maxMessage/2)
	}
	if !f.accepted {
		out += "; failurePolicy " + string(p.Spec.EffectiveFailurePolicy()) + " applies to matching requests until the policy is fixed"
	}
	return out
}

// wasRegistered reports whether the status says that this generation is registered:
// all replicas had loaded it then. Replicas that start later load it before they are
// called. A new leader, which may read versions later, must not report otherwise.
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
	if p.Spec.Backend != nil {
		return "matching requests are sent to the backend"
	}
	var effects []string
	if p.Spec.Mutates() {
		effects = append(effects, "matching requests are mutated")
	}
	if p.Spec.Refuses() {
		subject := "requests that fail a validation are "
		if p.Spec.Plugin != nil {
			subject = "requests that plugin " + string(p.Spec.Plugin.Name) + " rejects are "
		}
		effects = append(effects, subject+consequences(p))
	}
	if len(p.Spec.AuditAnnotations) > 0 {
		effects = append(effects, "matching requests are annotated in the audit log")
	}
	return strings.Join(effects, "; ")
}

// consequences are those of the validationActions.
func consequences(p *v1alpha1.WebhookPolicy) string {
	words := map[string]string{"Deny": "denied", "Warn": "answered with a warning", "Audit": "recorded in the audit log"}
	var out []string
	for action := range strings.SplitSeq(p.Spec.Actions(), ",") {
		if word := words[action]; word != "" {
			out = append(out, word)
		}
	}
	return strings.Join(out, " and ")
}

// set adds a condition to the list, or removes one that is present only while true.
func set(list *[]metav1.Condition, c metav1.Condition, generation int64, now metav1.Time) {
	if c.Status == metav1.ConditionFalse && presentOnlyWhileTrue(c.Type) {
		meta.RemoveStatusCondition(list, c.Type)
		return
	}
	c.ObservedGeneration = generation
	c.Message = truncate.String(c.Message, maxMessage)
	c.LastTransitionTime = now // SetStatusCondition keeps the earlier one if the status is equal
	meta.SetStatusCondition(list, c)
}

func presentOnlyWhileTrue(kind string) bool {
	return kind == v1alpha1.ConditionReconciling || kind == v1alpha1.ConditionStalled
}

func ready(s v1alpha1.WebhookPolicyStatus) metav1.Condition { return find(s, v1alpha1.ConditionReady) }

func find(s v1alpha1.WebhookPolicyStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}

func short(s string) string { return truncate.String(s, truncate.EventMessage) }
