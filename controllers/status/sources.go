package status

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

// Source is what statuses depend on besides the loaded policies. Each constructor of
// this file returns one for another part of Ostiary.
type Source struct {
	// observe adds what the source knows about a policy to the inputs of its status. It
	// reads memory only, because it runs for all policies after each change.
	observe func(ctx context.Context, p *v1alpha1.WebhookPolicy, in *inputs)
	// subscribe returns a channel that receives after each change of what observe adds,
	// until ctx ends.
	subscribe func(ctx context.Context) <-chan struct{}
	// concerns reports whether a change can concern a policy; nil for all policies. A source whose
	// changes users cause, for few policies, has it.
	concerns func(*v1alpha1.WebhookPolicy) bool
}

// subscriber is implemented by all parts of Ostiary that a Source observes.
type subscriber interface {
	// Subscribe returns a channel that receives after each change, until ctx ends.
	Subscribe(ctx context.Context) <-chan struct{}
}

// objects are those that policies or plugins read.
type objects interface {
	// State reports whether the objects of a kind that some paramRefs select, or all of them,
	// are available. problem is empty if they only have to be read.
	State(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (synced bool, problem string)
	// Excess names the namespaces whose objects exceed the memory, and what to do about them;
	// "" if there are none.
	Excess(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) string
	// NotFound says that no object exists that a paramRef selects for any request; "" otherwise.
	NotFound(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) string
	subscriber
}

// Params is the Source for the objects that policies read as params.
func Params(known objects) Source {
	readsParams := func(p *v1alpha1.WebhookPolicy) bool { return p.Spec.Plugin == nil && p.Spec.ParamKind != nil }
	return Source{subscribe: known.Subscribe, concerns: readsParams, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		if readsParams(p) {
			in.addMissing(missingObjects(known, p))
			in.absentParams = absentParams(known, p)
		}
	}}
}

// PluginObjects is the Source for the objects that plugins list.
func PluginObjects(known objects) Source {
	hasPlugin := func(p *v1alpha1.WebhookPolicy) bool { return p.Spec.Plugin != nil }
	return Source{subscribe: known.Subscribe, concerns: hasPlugin, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		if hasPlugin(p) {
			in.addMissing(missingObjects(known, p))
		}
	}}
}

func missingObjects(known objects, p *v1alpha1.WebhookPolicy) missingDependency {
	refs := p.Spec.ParamRefs()
	for _, kind := range kindsOf(p) {
		switch synced, problem := known.State(&kind, refs...); {
		case problem != "":
			return missingDependency{reason: ReasonParamsNotReady, message: problem}
		case !synced:
			message := fmt.Sprintf("objects of kind %s in %s are being listed", kind.Kind, kind.APIVersion)
			return missingDependency{reason: ReasonParamsNotReady, message: message, transient: true}
		}
		if excess := known.Excess(&kind, refs...); excess != "" {
			return missingDependency{reason: ReasonParamsNotReady, message: excess}
		}
	}
	return missingDependency{}
}

// maxAbsent is the number of bindings without params that a message describes.
const maxAbsent = 3

// absentParams says what happens to requests because params that bindings name do not exist. It is
// empty if they exist, or if parameterNotFoundAction allows that they do not.
func absentParams(known objects, p *v1alpha1.WebhookPolicy) string {
	if p.Spec.ParamKind == nil {
		return ""
	}
	var out []string
	more := 0
	for i, b := range p.Spec.Bindings {
		ref := b.ParamRef
		if ref == nil || ref.ParameterNotFoundAction != nil && *ref.ParameterNotFoundAction == admissionregistrationv1.AllowAction {
			continue
		}
		absent := known.NotFound(p.Spec.ParamKind, ref)
		switch {
		case absent == "":
		case len(out) == maxAbsent:
			more++
		default:
			out = append(out, fmt.Sprintf("%s, because %s at spec.bindings[%d].paramRef: create it, or set parameterNotFoundAction: Allow",
				effectOfAbsence(p, i), absent, i))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more bindings have no params", more))
	}
	return strings.Join(out, "; ")
}

// effectOfAbsence says what happens to the requests of a binding without params.
func effectOfAbsence(p *v1alpha1.WebhookPolicy, binding int) string {
	isWhole := p.Spec.Bindings[binding].MatchResources == nil
	switch {
	case p.Spec.EffectiveFailurePolicy() == admissionregistrationv1.Ignore:
		return fmt.Sprintf("the binding %q has no effect with failurePolicy Ignore", p.Spec.Bindings[binding].Name)
	case isWhole:
		return "every matching request is denied"
	}
	return fmt.Sprintf("every request that the binding %q matches is denied", p.Spec.Bindings[binding].Name)
}

// kindsOf returns the kinds of the objects that a policy or its plugin reads, and a
// paramKind that no binding uses: it has to exist too.
func kindsOf(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.ParamKind {
	if p.Spec.ParamKind != nil {
		return []admissionregistrationv1.ParamKind{*p.Spec.ParamKind}
	}
	return plugins.KindsOf(p)
}

// Images is the Source for the backends of plugins that review images.
func Images(known interface {
	pluginapi.Images
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		secret, ok := plugins.BackendOf(p)
		if !ok {
			return
		}
		if _, err := known.Backend(secret); err != nil {
			in.addMissing(missingDependency{reason: ReasonParamsNotReady, message: err.Error()})
		}
	}}
}

// Schemas is the Source for the schemas of the kinds that policies mutate.
func Schemas(known interface {
	// Missing describes the schema that a policy's mutations need and that is not
	// available. transient is true while it is being read.
	Missing(p *v1alpha1.WebhookPolicy) (missing string, transient bool)
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		missing, transient := known.Missing(p)
		if transient {
			missing = "the schemas of the mutated kinds are being read"
		}
		if missing != "" {
			in.addMissing(missingDependency{reason: ReasonSchemaNotReady, message: missing, transient: transient})
		}
	}}
}

// Types is the Source for the results of type checking and of rehearsals.
func Types(known interface {
	// Found returns nil while a policy has not been checked.
	Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking
	// Rehearsed returns nil if this leader has not rehearsed a policy.
	Rehearsed(p *v1alpha1.WebhookPolicy) *rehearsal.Result
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		in.types, in.rehearsed = known.Found(p), known.Rehearsed(p)
	}}
}

// Conflicts is the Source for clients that keep changing generated configurations.
func Conflicts(known interface {
	// OtherManagers returns a description of the client, by name of the configuration.
	OtherManagers() map[string]string
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, _ *v1alpha1.WebhookPolicy, in *inputs) {
		in.otherManagers = known.OtherManagers()
	}}
}

// Replicas is the Source for registrations that wait for replicas or API servers.
func Replicas(gate interface {
	// WaitReason returns why the registration of a policy waits.
	WaitReason(policy string) string
	// IsPropagating reports whether API servers may not yet use the last write.
	IsPropagating(policy string) bool
	// Changes returns a channel that receives after changes of these two, until ctx ends.
	Changes(ctx context.Context) <-chan struct{}
	// NotReady names a replica that cannot answer for a policy yet.
	NotReady(ctx context.Context, e *policies.Entry) string
	// Reports returns a channel that receives after changes of NotReady, until ctx ends.
	Reports(ctx context.Context) <-chan struct{}
}) Source {
	return Source{
		subscribe: func(ctx context.Context) <-chan struct{} { return events.Merge(ctx, gate.Changes, gate.Reports) },
		observe: func(ctx context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
			in.waitReason = gate.WaitReason(p.Name)
			in.propagating = gate.IsPropagating(p.Name)
			in.notReady = func(e *policies.Entry) string { return gate.NotReady(ctx, e) }
		},
	}
}

// Backends is the Source for external webhooks.
func Backends(known interface {
	Report(p *v1alpha1.WebhookPolicy) backends.Report
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		if p.Spec.Backend == nil {
			return
		}
		report := known.Report(p)
		in.caReady = meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionCAReady)
		in.reachable = meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionReachable)
		if c := report.Missing; c != nil {
			in.addMissing(missingDependency{reason: c.Reason, message: c.Message, transient: report.Temporary})
		}
	}}
}

// Certificate is the Source for the serving certificate.
func Certificate(known interface {
	// Blocked returns why there is no certificate. It is empty if there is one, or if no
	// action is needed.
	Blocked() string
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, _ *v1alpha1.WebhookPolicy, in *inputs) {
		in.certificateProblem = known.Blocked()
	}}
}

// canaries report whether API servers reach Ostiary.
type canaries interface {
	Verdict(phase registration.Phase) canary.Verdict
	subscriber
}

// Canary is the Source for the calls of API servers to Ostiary.
func Canary(known canaries) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		if p.Spec.Backend != nil {
			return // API servers call the backend, not Ostiary
		}
		v := verdict(known, &p.Spec)
		in.reachable = &metav1.Condition{Status: v.Status, Reason: v.Reason, Message: v.Message}
	}}
}

// verdict returns the verdict for the phases in which a policy is called: a negative
// one if there is one.
func verdict(known canaries, spec *v1alpha1.WebhookPolicySpec) canary.Verdict {
	validate := known.Verdict(registration.PhaseValidate)
	if !spec.Mutates() {
		return validate
	}
	mutate := known.Verdict(registration.PhaseMutate)
	if mutate.Status == metav1.ConditionTrue && spec.Validates() {
		return validate
	}
	return mutate
}

// Audit is the Source for the results of stored objects.
func Audit(known interface {
	// Summary returns the last result of a policy, which can be that of an earlier generation. It is
	// the zero value while none is known.
	Summary(policy string) results.Summary
	subscriber
}) Source {
	return Source{subscribe: known.Subscribe, observe: func(_ context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
		in.audits, in.audit = true, known.Summary(p.Name)
	}}
}
