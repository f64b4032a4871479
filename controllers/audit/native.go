package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/params"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

// maxProblem limits the text about a native policy that does not compile, in bytes.
const maxProblem = 1024

// Native configures the audit of native policies.
type Native struct {
	Compiler func() *policy.Compiler
	// NewParams returns a store for the params of native policies, which has not started.
	NewParams func() *params.Store
}

// nativePolicies watches native policies with their bindings, and compiles them. Its other methods
// belong to the goroutine that scans. They accept nil, without native policies.
type nativePolicies struct {
	compiler           func() *policy.Compiler
	params             *params.Store
	host               policy.Environment
	policies, bindings cache.SharedIndexInformer
	listeners          events.Broadcaster
	failure            atomic.Pointer[string]
	known              map[string]nativePolicy // by name
}

// nativePolicy is a native policy with its bindings.
type nativePolicy struct {
	version  string // changes with the policy, its bindings and the compiler
	policy   *v1alpha1.WebhookPolicy
	compiled *policy.Compiled
	problem  string
}

// newNativePolicies returns nativePolicies that watch until ctx ends.
func newNativePolicies(ctx context.Context, o *Native, client kubernetes.Interface, host policy.Environment) *nativePolicies {
	n := &nativePolicies{compiler: o.Compiler, params: o.NewParams(), host: host}
	n.host.Params, n.host.ParamKinds = n.params, n.params
	n.host.Panicked = nil // events are about WebhookPolicies
	n.policies = admissioninformers.NewValidatingAdmissionPolicyInformer(client, 0, cache.Indexers{})
	n.bindings = admissioninformers.NewValidatingAdmissionPolicyBindingInformer(client, 0, cache.Indexers{})
	n.watch(ctx, n.policies, "validatingadmissionpolicies")
	n.watch(ctx, n.bindings, "validatingadmissionpolicybindings")
	go func() { _ = n.params.Start(ctx) }() // returns no error
	return n
}

func (n *nativePolicies) watch(ctx context.Context, informer cache.SharedIndexInformer, resource string) {
	changed := func(any) { n.listeners.Notify() }
	// These fail only for an informer that runs.
	_ = informer.SetTransform(withoutManagedFields)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		text := explain(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: resource}, err)
		n.failure.Store(&text)
		n.listeners.Notify()
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed})
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			n.listeners.Notify()
		}
	}()
}

func withoutManagedFields(o any) (any, error) {
	if object, err := meta.Accessor(o); err == nil {
		object.SetManagedFields(nil)
	}
	return o, nil
}

// subscriptions returns what changes the native policies or their params.
func (n *nativePolicies) subscriptions() []func(context.Context) <-chan struct{} {
	if n == nil {
		return nil
	}
	return []func(context.Context) <-chan struct{}{n.listeners.Subscribe, n.params.Subscribe}
}

func (n *nativePolicies) synced() bool { return n.policies.HasSynced() && n.bindings.HasSynced() }

// ready reports whether the native policies are known, or why not.
func (n *nativePolicies) ready() bool { return n == nil || n.synced() || n.failure.Load() != nil }

// plan adds the native policies that have a binding.
func (n *nativePolicies) plan(p *planner) {
	if n == nil {
		return
	}
	if why := n.failure.Load(); why != nil && !n.synced() {
		p.problems[results.NativeKind] = results.Problem{Why: *why}
		return
	}
	n.compile()
	var needs []policy.ParamNeed
	for _, k := range n.known {
		needs = append(needs, k.compiled.ParamNeeds()...)
	}
	n.params.Want(needs)
	for name, k := range n.known {
		spec := &k.policy.Spec
		if why := cmp.Or(k.problem, audit.Unaudited(spec, k.compiled), unreadParams(n.params, spec)); why != "" {
			p.exclude(results.NativePrefix+name, k.policy, why)
			continue
		}
		p.add(target{
			name: results.NativePrefix + name, policy: k.policy, version: versionOfTarget(k.compiled, n.params, 0, k.policy), host: &n.host,
		})
	}
}

// compile compiles what has changed.
func (n *nativePolicies) compile() {
	bindings := map[string][]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	for _, o := range n.bindings.GetStore().List() {
		if b, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); ok {
			bindings[b.Spec.PolicyName] = append(bindings[b.Spec.PolicyName], b)
		}
	}
	after := map[string]nativePolicy{}
	for _, o := range n.policies.GetStore().List() {
		p, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok || len(bindings[p.Name]) == 0 {
			continue
		}
		bound := bindings[p.Name]
		slices.SortFunc(bound, func(a, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) int {
			return cmp.Compare(a.Name, b.Name)
		})
		compiler := n.compiler()
		version := fmt.Sprintf("%p %s %d", compiler, p.UID, p.Generation)
		for _, b := range bound {
			version += fmt.Sprintf(" %s %s", b.UID, b.ResourceVersion)
		}
		if after[p.Name] = n.known[p.Name]; after[p.Name].version != version {
			after[p.Name] = compileNative(compiler, version, audit.FromNative(p, bound))
		}
	}
	n.known = after
}

func compileNative(compiler *policy.Compiler, version string, p *v1alpha1.WebhookPolicy) nativePolicy {
	compiled, errs := compiler.Compile(p)
	k := nativePolicy{version: version, policy: p, compiled: compiled}
	if len(errs) > 0 {
		k.problem = truncate.String("the policy does not compile: "+errs.ToAggregate().Error(), maxProblem)
	}
	return k
}
