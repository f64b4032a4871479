package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/controllers/canary"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

// Params holds the objects that policies or plugins read.
type Params interface {
	// State reports whether the objects of a kind that some paramRefs select, or all of them,
	// are available. problem is empty if they only have to be read.
	State(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) (synced bool, problem string)
	// Excess names the namespaces whose objects exceed the memory, and what to do about them;
	// "" if there are none.
	Excess(kind *admissionregistrationv1.ParamKind, refs ...*admissionregistrationv1.ParamRef) string
	Subscribe(ctx context.Context) <-chan struct{}
}

// Images holds the image policy backends of plugins.
type Images interface {
	policy.Images
	Subscribe(ctx context.Context) <-chan struct{}
}

// Schemas holds the schemas of the kinds that policies mutate.
type Schemas interface {
	// Missing describes the schema that a policy's mutations need and that is not
	// available. transient is true while it is being read.
	Missing(p *v1alpha1.WebhookPolicy) (missing string, transient bool)
	Subscribe(ctx context.Context) <-chan struct{}
}

// Types holds the results of type checking.
type Types interface {
	// Found returns nil while a policy has not been checked.
	Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking
	Subscribe(ctx context.Context) <-chan struct{}
}

// Conflicts holds the clients that keep changing generated configurations.
type Conflicts interface {
	// OtherManagers returns a description of the client, by name of the configuration.
	OtherManagers() map[string]string
	Subscribe(ctx context.Context) <-chan struct{}
}

// Gate reports which registrations wait for replicas.
type Gate interface {
	// WaitReason returns why the registration of a policy waits.
	WaitReason(policy string) string
	// IsPropagating reports whether API servers may not yet use the last write.
	IsPropagating(policy string) bool
	Changes(ctx context.Context) <-chan struct{}
	// NotReady names a replica that has not loaded a policy's resource version.
	NotReady(ctx context.Context, version string) string
	Reports(ctx context.Context) <-chan struct{}
}

// Backends reports on external webhooks.
type Backends interface {
	Report(p *v1alpha1.WebhookPolicy) backends.Report
	Subscribe(ctx context.Context) <-chan struct{}
}

// Certificate reports why there is no serving certificate.
type Certificate interface {
	// Blocked is empty if there is one, or if no action is needed.
	Blocked() string
	// Subscribe returns a channel that receives after each change.
	Subscribe(ctx context.Context) <-chan struct{}
}

// Canary reports whether API servers reach Ostiary.
type Canary interface {
	Verdict(phase registration.Phase) canary.Verdict
	Subscribe(ctx context.Context) <-chan struct{}
}

// Audit has the results for stored objects.
type Audit interface {
	// Status returns nil while a policy has not been evaluated.
	Status(p *v1alpha1.WebhookPolicy) *v1alpha1.AuditStatus
	Subscribe(ctx context.Context) <-chan struct{}
}

// inputs holds the inputs of a status that do not come from the store of policies.
type inputs struct {
	missing missingDependency
	// waitReason names the replica that the registration waits for.
	waitReason string
	// propagating says that API servers may still use the previous configuration.
	propagating bool
	// notReady names a replica that has not loaded a resource version. It may be nil.
	notReady func(version string) string
	// certificateProblem says why there is no serving certificate.
	certificateProblem string
	// reachable is the condition Reachable, nil if nothing tests it.
	reachable *metav1.Condition
	// caReady is the condition CAReady, nil for a policy without a backend.
	caReady *metav1.Condition
	types   *admissionregistrationv1.TypeChecking
	audit   *v1alpha1.AuditStatus
	// rules are those that match no request.
	rules unmatched
	// conflicts may be nil.
	conflicts Conflicts
}

// conflict names the clients that keep changing the configurations of a policy.
func (in inputs) conflict(policy string, plan registration.Plan) string {
	if in.conflicts == nil {
		return ""
	}
	otherManagers := in.conflicts.OtherManagers()
	if len(otherManagers) == 0 {
		return ""
	}
	var out []string
	for i := range plan.Groups {
		group := &plan.Groups[i]
		otherManager := otherManagers[group.Configuration.GetName()]
		if _, member := slices.BinarySearch(group.Members, policy); otherManager != "" && member {
			out = append(out, fmt.Sprintf("%s keeps changing %s, and Ostiary restores it with increasing back-off: stop that client from managing it",
				otherManager, group.Configuration.GetName()))
		}
	}
	return strings.Join(out, "; ")
}

// missingDependency is an object or schema that a policy needs and that is not
// available.
type missingDependency struct {
	reason, message string
	transient       bool // it is being read
}

func (r *Reconciler) inputs(ctx context.Context, p *v1alpha1.WebhookPolicy) inputs {
	in := inputs{missing: r.missingDependency(p), conflicts: r.Conflicts, rules: r.unmatched.of(p, r.Resources)}
	if r.Gate != nil {
		in.waitReason = r.Gate.WaitReason(p.Name)
		in.propagating = r.Gate.IsPropagating(p.Name)
		in.notReady = func(version string) string { return r.Gate.NotReady(ctx, version) }
	}
	if r.Types != nil {
		in.types = r.Types.Found(p)
	}
	if r.Audit != nil {
		in.audit = r.Audit.Status(p)
	}
	if r.Certificate != nil {
		in.certificateProblem = r.Certificate.Blocked()
	}
	if r.Canary != nil && p.Spec.Backend == nil {
		v := r.verdict(&p.Spec)
		in.reachable = &metav1.Condition{Status: v.Status, Reason: v.Reason, Message: v.Message}
	}
	if r.Backends != nil && p.Spec.Backend != nil {
		in.addBackend(r.Backends.Report(p))
	}
	return in
}

func (in *inputs) addBackend(report backends.Report) {
	in.caReady = meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionCAReady)
	in.reachable = meta.FindStatusCondition(report.Conditions, v1alpha1.ConditionReachable)
	if c := report.Missing; c != nil {
		in.missing = missingDependency{reason: c.Reason, message: c.Message, transient: report.Temporary}
	}
}

// verdict returns the verdict for the phases in which a policy is called: a negative
// one if there is one.
func (r *Reconciler) verdict(spec *v1alpha1.WebhookPolicySpec) canary.Verdict {
	validate := r.Canary.Verdict(registration.PhaseValidate)
	if !spec.Mutates() {
		return validate
	}
	mutate := r.Canary.Verdict(registration.PhaseMutate)
	if mutate.Status == metav1.ConditionTrue && spec.Validates() {
		return validate
	}
	return mutate
}

func (r *Reconciler) missingDependency(p *v1alpha1.WebhookPolicy) missingDependency {
	known := r.Params
	if p.Spec.Plugin != nil {
		known = r.PluginObjects
	}
	for _, kind := range kindsOf(p) {
		if known == nil {
			break
		}
		refs := p.Spec.ParamRefs()
		switch synced, problem := known.State(&kind, refs...); {
		case problem != "":
			return missingDependency{reason: ReasonParamsNotReady, message: problem}
		case !synced:
			return missingDependency{reason: ReasonParamsNotReady, message: fmt.Sprintf("objects of kind %s in %s are being listed", kind.Kind, kind.APIVersion), transient: true}
		}
		if excess := known.Excess(&kind, refs...); excess != "" {
			return missingDependency{reason: ReasonParamsNotReady, message: excess}
		}
	}
	if secret, ok := plugins.BackendOf(p); ok && r.Images != nil {
		if _, err := r.Images.Backend(secret); err != nil {
			return missingDependency{reason: ReasonParamsNotReady, message: err.Error()}
		}
	}
	if r.Schemas != nil {
		switch missing, transient := r.Schemas.Missing(p); {
		case transient:
			return missingDependency{reason: ReasonSchemaNotReady, message: "the schemas of the mutated kinds are being read", transient: true}
		case missing != "":
			return missingDependency{reason: ReasonSchemaNotReady, message: missing}
		}
	}
	return missingDependency{}
}

// kindsOf returns the kinds of the objects that a policy or its plugin reads, and a
// paramKind that no binding uses: it has to exist too.
func kindsOf(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.ParamKind {
	if p.Spec.ParamKind != nil {
		return []admissionregistrationv1.ParamKind{*p.Spec.ParamKind}
	}
	return plugins.KindsOf(p)
}

// changes returns a channel that receives after each change of an input of a
// status, until ctx ends.
func (r *Reconciler) changes(ctx context.Context) <-chan struct{} {
	var all events.Broadcaster
	out := all.Subscribe(ctx)
	follow := func(in <-chan struct{}) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-in:
				all.Notify()
			}
		}
	}
	go follow(r.Store.Subscribe(ctx))
	if r.PluginObjects != nil {
		go follow(r.PluginObjects.Subscribe(ctx))
	}
	if r.Params != nil {
		go follow(r.Params.Subscribe(ctx))
	}
	if r.Images != nil {
		go follow(r.Images.Subscribe(ctx))
	}
	if r.Schemas != nil {
		go follow(r.Schemas.Subscribe(ctx))
	}
	if r.Types != nil {
		go follow(r.Types.Subscribe(ctx))
	}
	if r.Resources != nil {
		go follow(r.Resources.Subscribe(ctx))
	}
	r.followAudit(ctx, follow)
	if r.Conflicts != nil {
		go follow(r.Conflicts.Subscribe(ctx))
	}
	if r.Certificate != nil {
		go follow(r.Certificate.Subscribe(ctx))
	}
	if r.Canary != nil {
		go follow(r.Canary.Subscribe(ctx))
	}
	if r.Gate != nil {
		go follow(r.Gate.Changes(ctx))
		go follow(r.Gate.Reports(ctx))
	}
	if r.Backends != nil {
		go follow(r.Backends.Subscribe(ctx))
	}
	return out
}

func (r *Reconciler) followAudit(ctx context.Context, follow func(<-chan struct{})) {
	if r.Audit != nil {
		go follow(r.Audit.Subscribe(ctx))
	}
}
