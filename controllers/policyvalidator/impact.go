package policyvalidator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rollout"
)

const (
	// impactAccount is the ServiceAccount that Ostiary impersonates to list objects. Its permissions limit what authors
	// of policies learn about them.
	impactAccount = "ostiary-audit"
	// impactWithin and impactObjects bound the evaluation of one policy on stored objects.
	impactWithin  = 2 * time.Second
	impactObjects = 5000
	// impactMargin is the time that is left for the answer.
	impactMargin = 500 * time.Millisecond
	// impactExamples is the number of denied objects, and impactKinds that of kinds, that a warning names.
	impactExamples = 3
	impactKinds    = 5
	// impactWarnings is the number of warnings about denied objects of all kinds.
	impactWarnings = 5
	// impactAsked is the number of kinds of a policy that denies nothing whose permissions are checked.
	impactAsked = 20
	// notListed follows the kinds that Ostiary may not list.
	notListed = `Ostiary may not list them: allow the verb list in a ClusterRole with the label ` +
		`admission.ostiary.dev/aggregate-to-audit: "true"`
)

// Impact evaluates new and changed policies on stored objects. It is safe for concurrent use, and evaluates one policy at
// a time.
type Impact struct {
	reader objects.Reader
	host   policy.Environment
	exempt []string
	within time.Duration
	busy   atomic.Bool

	namespace string // of Ostiary
}

// NewImpact returns an Impact that lists objects as the account ostiary-audit in a namespace.
func NewImpact(config *rest.Config, namespace string, exempt []string, host policy.Environment) (*Impact, error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: serviceaccount.MakeUsername(namespace, impactAccount)}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for stored objects: %w", err)
	}
	host.Observe, host.Failed, host.Violated, host.Panicked, host.Recheck = nil, nil, nil, nil, nil // these are about requests
	// Without them, mutations, which deny no stored object, are left out.
	host.TypeConverters = nil
	reader := objects.Reader{Client: client.CoreV1().RESTClient(), Wait: context.Context.Err}
	return &Impact{reader: reader, host: host, exempt: guard.ExemptNamespaces(exempt), within: impactWithin, namespace: namespace}, nil
}

// denies reports whether a policy denies objects or pod templates, with the actions that its rollouts have now.
func denies(p *v1alpha1.WebhookPolicy) bool {
	p = rollout.InEffect(p)
	t := p.Spec.PodTemplates
	return p.Spec.Denies() || t != nil && slices.Contains(t.ValidationActions, admissionregistrationv1.Deny)
}

// changesDecisions reports whether a policy decides about stored objects in another way than before; nil is no policy.
func changesDecisions(before, after *v1alpha1.WebhookPolicy) bool {
	return before == nil || !equality.Semantic.DeepEqual(decisive(&before.Spec), decisive(&after.Spec))
}

// decisive returns a spec without the fields that do not affect which stored objects a policy denies.
func decisive(spec *v1alpha1.WebhookPolicySpec) *v1alpha1.WebhookPolicySpec {
	out := spec.DeepCopy()
	out.TimeoutSeconds, out.Mutations, out.ReinvocationPolicy, out.Order, out.BreakGlass = nil, nil, nil, nil, false
	for i := range out.Validations {
		v := &out.Validations[i]
		v.Name, v.Message, v.MessageExpression, v.Reason = "", "", "", nil
	}
	return out
}

// warnings returns warnings about the stored objects that a policy would deny, and about those that it has not evaluated.
// The numbers answer questions that the author asks about the content of objects, so the author must be allowed to list
// them. It returns none while it evaluates another policy. passes reports whether it found an object that the policy allows.
func (i *Impact) warnings(ctx context.Context, p *v1alpha1.WebhookPolicy, author authenticationv1.UserInfo,
	c *policy.Compiled, served Served) (found []string, passes bool) {
	if len(p.Spec.Validations) == 0 && len(p.Spec.Mutations) > 0 {
		return nil, false
	}
	if why := c.Unauditable(); why != "" {
		return []string{"existing objects were not evaluated: the policy cannot be evaluated on stored objects: " + why}, false
	}
	if !i.busy.CompareAndSwap(false, true) {
		return nil, false
	}
	defer i.busy.Store(false)
	limit := time.Now().Add(i.within)
	if end, ok := ctx.Deadline(); ok && end.Add(-impactMargin).Before(limit) {
		limit = end.Add(-impactMargin)
	}
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	if err := i.readsParams(ctx, c); err != nil {
		return []string{"existing objects were not evaluated: the params of the policy cannot be read yet: " + err.Error()}, false
	}
	if err := i.readsLookups(ctx, c); err != nil {
		return []string{"existing objects were not evaluated: the lookups of the policy cannot be read yet: " + err.Error()}, false
	}
	s := scan{evaluator: audit.NewEvaluator(p, c, i.exempt), left: impactObjects, workloads: map[string]struct{}{}}
	resources, more := audit.Resources(&p.Spec, served)
	if more {
		s.omitted = append(s.omitted, fmt.Sprintf("kinds beyond the first %d", audit.MaxResources))
	}
	for _, of := range resources {
		r := resource(of)
		if !i.mayList(ctx, author, r) {
			s.unpermitted = append(s.unpermitted, r.plural())
			continue
		}
		i.scan(ctx, &s, r)
	}
	return s.warnings(i.within), s.passed > 0
}

// uncounted returns warnings about a policy that denies nothing, if the audit cannot count the objects that violate it. It
// asks about a bounded number of kinds.
func (i *Impact) uncounted(ctx context.Context, p *v1alpha1.WebhookPolicy, c *policy.Compiled, served Served) []string {
	if len(p.Spec.Validations) == 0 {
		return nil
	}
	if why := c.Unauditable(); why != "" {
		return []string{"existing objects that violate the policy are not counted: " + why}
	}
	var forbidden []string
	resources, _ := audit.Resources(&p.Spec, served)
	for _, of := range resources[:min(len(resources), impactAsked)] {
		if r := resource(of); i.isForbidden(ctx, r) {
			forbidden = append(forbidden, r.plural())
		}
	}
	if len(forbidden) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("existing objects that violate the policy are not counted (%s): "+notListed, enumerate(forbidden))}
}

// isForbidden reports whether the account of the audit may not list a resource. Without an answer it may.
func (i *Impact) isForbidden(ctx context.Context, r resource) bool {
	account := serviceaccount.UserInfo(i.namespace, impactAccount, "")
	decision, _, err := i.host.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: account, Verb: "list", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, ResourceRequest: true,
	})
	return err == nil && decision != authorizer.DecisionAllow
}

// mayList reports whether a user may list a resource in all namespaces. Without an answer the user may not.
func (i *Impact) mayList(ctx context.Context, u authenticationv1.UserInfo, r resource) bool {
	info := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
	for key, values := range u.Extra {
		info.Extra[key] = values
	}
	decision, _, err := i.host.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: info, Verb: "list", APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// readsParams returns an error if the params of a policy cannot be read: each object would then be denied. This is the case
// for what no loaded policy selects.
func (i *Impact) readsParams(ctx context.Context, c *policy.Compiled) error {
	for _, need := range c.ParamNeeds() {
		need.Ref = need.Ref.DeepCopy()
		need.Ref.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
		if _, err := policy.ReadParams(ctx, i.host.Params, need, metav1.NamespaceDefault); err != nil {
			return err
		}
	}
	return nil
}

// readsLookups returns an error if the lookups of a policy cannot be read, for the same reason.
func (i *Impact) readsLookups(ctx context.Context, c *policy.Compiled) error {
	for _, need := range c.LookupNeeds() {
		if _, err := i.host.Lookups.Lookup(ctx, need, lookups.Query{}); err != nil {
			return err
		}
	}
	return nil
}

// scan is the evaluation of one policy.
type scan struct {
	evaluator *audit.Evaluator
	left      int // objects
	passed    int // objects that the policy allows
	found     []string
	workloads map[string]struct{} // whose new Pods would be denied

	// Kinds of which objects were not evaluated: because of a limit, because the author or Ostiary may not list them, or
	// because of another error.
	omitted, unpermitted, forbidden, failed []string
}

// impact is the result for one kind.
type impact struct {
	matched int
	passed  int
	changed denials // as they are
	created denials // only if they are created again
}

// denials are objects that the policy would deny.
type denials struct {
	number   int
	examples []string
}

// scan evaluates the policy on the objects of a resource.
func (i *Impact) scan(ctx context.Context, s *scan, r resource) {
	var got impact
	err := r.list(ctx, i.reader, &s.left, func(o *audit.Object) {
		if result := s.evaluator.Evaluate(ctx, o, i.host); ctx.Err() == nil {
			got.add(o, result)
			if result.Workload != "" {
				s.workloads[result.Workload] = struct{}{}
			}
		}
	})
	s.passed += got.passed
	switch {
	case errors.Is(err, errLimit) || ctx.Err() != nil:
		s.omitted = append(s.omitted, r.plural())
		s.found = append(s.found, got.warnings(r.plural(), "at least %d of the first %d existing %s")...)
		return
	case apierrors.IsForbidden(err):
		s.forbidden = append(s.forbidden, r.plural())
	case err != nil && !apierrors.IsNotFound(err): // the API server has stopped to serve it
		s.failed = append(s.failed, r.plural()+": "+err.Error())
	}
	s.found = append(s.found, got.warnings(r.plural(), "%d of %d existing %s")...)
}

// warnings returns the warnings about objects of a kind, each beginning with the numbers of denied and matched ones.
func (g *impact) warnings(kinds, format string) (out []string) {
	if n := g.changed.number; n > 0 {
		out = append(out, fmt.Sprintf(format, n, g.matched, kinds)+" would be denied on their next change: "+g.changed.names())
	}
	if n := g.created.number; n > 0 {
		out = append(out, fmt.Sprintf(format, n, g.matched, kinds)+
			" would be denied if they were created again, for example by a rollout: "+g.created.names())
	}
	return out
}

func (g *impact) add(o *audit.Object, result audit.Result) {
	if result.Decision == policy.DecisionUnmatched {
		return
	}
	g.matched++
	if result.Decision == policy.DecisionAllow || result.Decision == policy.DecisionAnnotate {
		g.passed++
	}
	if !result.Denied || result.Workload != "" && isOnlyTemplate(result) { // the workload is named apart
		return
	}
	d := &g.changed
	if result.Operation == admissionv1.Create {
		d = &g.created
	}
	d.number++
	if len(d.examples) < impactExamples {
		name := o.Name
		if o.Namespace != "" && o.Resource.Resource != "namespaces" {
			name = o.Namespace + "/" + o.Name
		}
		d.examples = append(d.examples, name)
	}
}

// isOnlyTemplate reports whether only the pod template of an object is denied. An update that does
// not change the template passes.
func isOnlyTemplate(result audit.Result) bool {
	return !slices.ContainsFunc(result.Violations, func(v policy.Violation) bool {
		return v.Template == "" && v.Exception == nil
	})
}

func (d *denials) names() string {
	text := strings.Join(d.examples, ", ")
	if d.number > len(d.examples) {
		text += ", …"
	}
	return text
}

func (s *scan) warnings(within time.Duration) []string {
	out := s.found
	if more := len(out) - impactWarnings; more > 0 { // they leave room for other warnings
		left := fmt.Sprintf("%d more warnings about existing objects of other kinds were left out", more)
		out = append(out[:impactWarnings:impactWarnings], left)
	}
	if n := len(s.workloads); n > 0 {
		number, first := strconv.Itoa(n), slices.Sorted(maps.Keys(s.workloads))[:min(n, impactExamples)]
		if len(s.omitted) > 0 {
			number = "at least " + number
		}
		out = append(out, fmt.Sprintf("new Pods of %s existing workloads would be denied, for example at their next "+
			"restart, scaling or drain: %s",
			number, (&denials{number: n, examples: first}).names()))
	}
	if len(s.omitted) > 0 {
		out = append(out, fmt.Sprintf("not all existing objects were evaluated (%s): the limit is %s and %d objects",
			enumerate(s.omitted), within, impactObjects))
	}
	if len(s.unpermitted) > 0 {
		out = append(out, fmt.Sprintf("existing objects were not evaluated (%s): you may not list them in all namespaces",
			enumerate(s.unpermitted)))
	}
	if len(s.forbidden) > 0 {
		out = append(out, fmt.Sprintf("existing objects were not evaluated (%s): "+notListed, enumerate(s.forbidden)))
	}
	if len(s.failed) > 0 {
		out = append(out, "existing objects were not evaluated: listing them failed: "+enumerate(s.failed))
	}
	return out
}

// enumerate joins the first kinds.
func enumerate(kinds []string) string {
	if more := len(kinds) - impactKinds; more > 0 {
		return strings.Join(kinds[:impactKinds], ", ") + fmt.Sprintf(" and %d more kinds", more)
	}
	return strings.Join(kinds, ", ")
}
