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

// Params know the objects that policies read as params.
type Params interface {
	// State tells whether objects of a kind are known, and what the problem is if
	// it is not only a matter of time.
	State(kind *admissionregistrationv1.ParamKind) (synced bool, problem string)
	Subscribe(ctx context.Context) <-chan struct{}
}

// Images know the backends that plugins ask about images.
type Images interface {
	policy.Images
	Subscribe(ctx context.Context) <-chan struct{}
}

// Schemas know those of the kinds that policies mutate.
type Schemas interface {
	// Missing says what a policy's mutations lack, and whether that may be only a
	// matter of time.
	Missing(p *v1alpha1.WebhookPolicy) (missing string, passing bool)
	Subscribe(ctx context.Context) <-chan struct{}
}

// Types know what a check of a policy's expressions found.
type Types interface {
	// Found is nil while a policy has not been checked.
	Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking
	Subscribe(ctx context.Context) <-chan struct{}
}

// Conflicts know who else writes the generated configurations.
type Conflicts interface {
	// OtherManagers describes, by configuration, the clients that keep changing it.
	OtherManagers() map[string]string
	Subscribe(ctx context.Context) <-chan struct{}
}

// Gate knows which registrations wait for replicas.
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

// Backends know the webhooks that somebody else hosts.
type Backends interface {
	Report(p *v1alpha1.WebhookPolicy) backends.Report
	Subscribe(ctx context.Context) <-chan struct{}
}

// Certificate knows why there is no certificate to register webhooks with.
type Certificate interface {
	// Blocked is empty while there is one, or nobody needs to do anything.
	Blocked() string
	// Subscribe gives a channel that receives after each change.
	Subscribe(ctx context.Context) <-chan struct{}
}

// Proof knows whether API servers reach Ostiary.
type Proof interface {
	Verdict(phase registration.Phase) canary.Verdict
	Subscribe(ctx context.Context) <-chan struct{}
}

// inputs is what is known of a policy beside its being compiled and registered.
type inputs struct {
	missing missingDependency
	// waitingFor says which replica the registration waits for.
	waitingFor string
	// propagating says that API servers may still call as before.
	propagating bool
	// notReady says which replica has not loaded a resource version. It may be nil.
	notReady func(version string) string
	// blocked says why there is no certificate to register webhooks with.
	blocked string
	// proof is the verdict about the phases that the policy is called in, nil
	// where nobody asks.
	proof *canary.Verdict
	types *admissionregistrationv1.TypeChecking
	// conflicts may be nil.
	conflicts Conflicts
	// backend is nil for a policy that has none.
	backend *backends.Report
}

// conflict names the clients that keep changing the configurations of a policy.
func (b inputs) conflict(policy string, plan registration.Plan) string {
	if b.conflicts == nil {
		return ""
	}
	managers := b.conflicts.OtherManagers()
	if len(managers) == 0 {
		return ""
	}
	var out []string
	for i := range plan.Groups {
		group := &plan.Groups[i]
		name := group.Configuration.GetName()
		if _, member := slices.BinarySearch(group.Members, policy); member && managers[name] != "" {
			out = append(out, fmt.Sprintf("%s keeps changing %s, which Ostiary restores with increasing back-off: stop that client from managing it", managers[name], name))
		}
	}
	return strings.Join(out, "; ")
}

// missing is something that a policy needs to be evaluated and that is not there.
type missingDependency struct {
	reason, message string
	temporary       bool // it is only a matter of time
}

func (r *Reconciler) inputs(ctx context.Context, p *v1alpha1.WebhookPolicy) inputs {
	b := inputs{missing: r.missingDependency(p), conflicts: r.Conflicts}
	if r.Gate != nil {
		b.waitingFor = r.Gate.WaitReason(p.Name)
		b.propagating = r.Gate.IsPropagating(p.Name)
		b.notReady = func(version string) string { return r.Gate.NotReady(ctx, version) }
	}
	if r.Types != nil {
		b.types = r.Types.Found(p)
	}
	if r.Backends != nil && p.Spec.Backend != nil {
		report := r.Backends.Report(p)
		if len(report.Conditions) > 0 {
			b.backend = &report
		}
		if c := report.Missing; c != nil {
			b.missing = missingDependency{reason: c.Reason, message: c.Message, temporary: report.Temporary}
		}
	}
	if r.Certificate != nil {
		b.blocked = r.Certificate.Blocked()
	}
	if r.Proof != nil && p.Spec.Backend == nil {
		b.proof = r.verdict(&p.Spec)
	}
	return b
}

// setBackend sets the conditions that only policies with a backend have, or
// removes them from those of one that has it no more.
func (b inputs) setBackend(list *[]metav1.Condition, generation int64, now metav1.Time) {
	if b.backend == nil {
		meta.RemoveStatusCondition(list, v1alpha1.ConditionCAReady)
		meta.RemoveStatusCondition(list, v1alpha1.ConditionReachable)
		return
	}
	for _, c := range b.backend.Conditions {
		set(list, c, generation, now)
	}
}

// verdict is that of the phase, among those that a policy is called in, in which
// API servers do not reach Ostiary, if there is one.
func (r *Reconciler) verdict(spec *v1alpha1.WebhookPolicySpec) *canary.Verdict {
	validate := r.Proof.Verdict(registration.PhaseValidate)
	if !spec.Mutates() {
		return &validate
	}
	mutate := r.Proof.Verdict(registration.PhaseMutate)
	if mutate.Status == metav1.ConditionTrue && spec.Validates() {
		return &validate
	}
	return &mutate
}

func (r *Reconciler) missingDependency(p *v1alpha1.WebhookPolicy) missingDependency {
	known := r.Params
	if p.Spec.Plugin != nil {
		known = r.Listed
	}
	for _, kind := range kindsOf(p) {
		if known == nil {
			break
		}
		switch synced, problem := known.State(&kind); {
		case problem != "":
			return missingDependency{reason: ReasonParamsNotReady, message: problem}
		case !synced:
			return missingDependency{reason: ReasonParamsNotReady, message: fmt.Sprintf("objects of kind %s in %s are being listed", kind.Kind, kind.APIVersion), temporary: true}
		}
	}
	if at, asks := plugins.BackendOf(p); asks && r.Images != nil {
		if _, err := r.Images.Backend(at); err != nil {
			return missingDependency{reason: ReasonParamsNotReady, message: err.Error()}
		}
	}
	if r.Schemas != nil {
		switch missing, passing := r.Schemas.Missing(p); {
		case passing:
			return missingDependency{reason: ReasonSchemaNotReady, message: "the schemas of the kinds to mutate are being read", temporary: true}
		case missing != "":
			return missingDependency{reason: ReasonSchemaNotReady, message: missing}
		}
	}
	return missingDependency{}
}

// kindsOf are the kinds of the objects that a policy reads, by itself or by its plugin.
func kindsOf(p *v1alpha1.WebhookPolicy) []admissionregistrationv1.ParamKind {
	if p.Spec.ReadsParams() {
		return []admissionregistrationv1.ParamKind{*p.Spec.ParamKind}
	}
	return plugins.KindsOf(p)
}

// changes gives a channel that receives when anything changes that a status is
// made of.
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
	if r.Listed != nil {
		go follow(r.Listed.Subscribe(ctx))
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
	if r.Conflicts != nil {
		go follow(r.Conflicts.Subscribe(ctx))
	}
	if r.Certificate != nil {
		go follow(r.Certificate.Subscribe(ctx))
	}
	if r.Proof != nil {
		go follow(r.Proof.Subscribe(ctx))
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
