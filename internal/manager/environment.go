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

// newEnvironment returns the dependencies of evaluations. violated gets each violation.
func newEnvironment(
	p process, objects *sources.Sources, counts *metrics.Policies, violated func(policy.ViolationReport),
) (policy.Environment, error) {
	bounded := rest.CopyConfig(p.config)
	bounded.Timeout = sources.LiveReadTimeout
	client, err := kubernetes.NewForConfig(bounded)
	if err != nil {
		return policy.Environment{}, fmt.Errorf("making a client for matching: %w", err)
	}
	namespaces := sources.Namespaces{Cached: p.manager.GetCache(), Live: p.manager.GetAPIReader()}
	log := p.log.WithName("policies")
	recorder := p.manager.GetEventRecorder("ostiary")
	reporter := &status.RuntimeReporter{Events: recorder, Clock: clock.RealClock{}, Replica: p.host}
	matcher := matching.NewMatcher(sources.NamespaceLister{Namespaces: namespaces}, client)
	return policy.Environment{
		Namespaces:     namespaces,
		Kinds:          objects.Resources,
		Pods:           sources.NewPods(p.client.CoreV1()),
		Params:         objects.Params,
		ParamKinds:     objects.Params,
		Lookups:        objects.Lookups,
		Listed:         objects.PluginObjects,
		Images:         objects.Images,
		Matcher:        resources.Matcher{Matcher: matcher, Resources: objects.Resources},
		Authorizer:     authorization.New(p.client.AuthorizationV1().SubjectAccessReviews(), ctrlmetrics.Registry),
		BreakGlass:     p.options.BreakGlass,
		TypeConverters: objects.Schemas,
		Objects:        objects.Resources.Interfaces(scheme.Scheme),
		Now:            clock.RealClock{}.Now,
		Pause:          queue.Pause,
		Observe:        counts.Observe,
		Evaluated:      counts.Evaluated,
		Failed:         counts.ValidationFailed,
		Violated:       violated,
		ReportsValues:  p.options.ValuesReported(),
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
