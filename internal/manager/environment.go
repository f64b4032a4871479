package manager

import (
	"fmt"

	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/ostiary/ostiary/controllers/authorization"
	"github.com/ostiary/ostiary/controllers/resources"
	"github.com/ostiary/ostiary/controllers/sources"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/internal/metrics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/queue"
)

// To check that mutations are idempotent, the first recheckFirst of each policy, and then
// one in recheckEvery, are applied again to their own result. Each check costs one
// evaluation in the background.
const (
	recheckFirst = 10
	recheckEvery = 1000
)

// environment returns the dependencies of evaluations.
func (r *replica) environment(counts *metrics.Policies) (policy.Environment, error) {
	bounded := rest.CopyConfig(r.config)
	bounded.Timeout = sources.LiveReadTimeout
	client, err := kubernetes.NewForConfig(bounded)
	if err != nil {
		return policy.Environment{}, fmt.Errorf("making a client for matching: %w", err)
	}
	namespaces := sources.Namespaces{Cached: r.manager.GetCache(), Live: r.manager.GetAPIReader()}
	log := r.log.WithName("policies")
	reporter := &status.RuntimeReporter{Events: r.manager.GetEventRecorder("ostiary"), Clock: clock.RealClock{}, Replica: r.host}
	return policy.Environment{
		Namespaces:     namespaces,
		Kinds:          r.sources.Resources,
		Pods:           sources.NewPods(r.client.CoreV1()),
		Params:         r.sources.Params,
		ParamKinds:     r.sources.Params,
		Listed:         r.sources.PluginObjects,
		Images:         r.sources.Images,
		Matcher:        resources.Matcher{Matcher: matching.NewMatcher(sources.NamespaceLister{Namespaces: namespaces}, client), Resources: r.sources.Resources},
		Authorizer:     authorization.New(r.client.AuthorizationV1().SubjectAccessReviews(), ctrlmetrics.Registry),
		BreakGlass:     r.options.BreakGlass,
		TypeConverters: r.sources.Schemas,
		Objects:        r.sources.Resources.Interfaces(scheme.Scheme),
		Now:            clock.RealClock{}.Now,
		Pause:          queue.Pause,
		Observe:        counts.Observe,
		Failed:         counts.ValidationFailed,
		ReportsValues:  r.options.ValuesReported(),
		Recheck: &policy.Recheck{First: recheckFirst, Every: recheckEvery, Later: reporter.CheckInBackground, Found: func(found policy.Repeat) {
			counts.NotIdempotent(found.Policy)
			reporter.ReportNotIdempotent(found)
		}},
		Panicked: func(found policy.PanicReport) {
			counts.Panicked(found.Policy)
			if found.Stack != nil { // at most every few seconds
				log.Error(found.Err, "evaluation panicked", "policy", found.Policy, "generation", found.Generation, "stack", string(found.Stack))
				reporter.ReportPanic(found)
			}
		},
	}, nil
}
