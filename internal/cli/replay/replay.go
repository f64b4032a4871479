// Package replay evaluates policies on the requests in audit logs of API servers.
package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

// unknown is the decision of a policy that cannot be evaluated: it reads the old object of
// an update or looks up objects, which a log does not have, or an object in another version.
const unknown policy.Decision = "unknown"

// maxMessage is the maximum of bytes of the message of an example.
const maxMessage = 1 << 10

// absent is the decision of a policy that one side of a comparison does not have.
const absent = "absent"

// Policies are the policies of a replay.
type Policies struct {
	Engine *offline.Engine
	World  *offline.World
	// AtRequests evaluates each request at the time when the API server received it, if the log has it, and not at that of the world.
	AtRequests bool
}

// Replay evaluates the requests of some logs, and returns what the policies decide. With
// other policies, it returns what they decide differently. It calls read with the number of
// bytes that it has read from a log; nil is allowed.
func Replay(ctx context.Context, logs []string, stdin io.Reader, policies, others *Policies, read func(bytes int)) (*Summary, error) {
	r := &replayer{policies: newSide(policies), compares: others != nil}
	if r.compares {
		r.others = newSide(others)
	}
	workers := runtime.GOMAXPROCS(0)
	batches := make(chan batch, workers)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(batches)
		return readLogs(ctx, logs, stdin, read, func(b batch) error {
			select {
			case batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	summaries := make([]*Summary, workers)
	for i := range workers {
		summaries[i] = newSummary()
		group.Go(func() error { return r.work(ctx, batches, summaries[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	total := newSummary()
	for _, s := range summaries {
		total.add(s)
	}
	if total.Events == 0 && total.FirstMalformed != nil {
		return nil, total.FirstMalformed
	}
	total.finish()
	return total, nil
}

// side are policies, and what is known about them.
type side struct {
	*Policies
	names []string
	rules []admissionregistrationv1.NamedRuleWithOperations
	// readsOld are the policies that can read the old object of an update. ratchets are those
	// whose failed validations it can let pass.
	readsOld, ratchets map[string]bool
	// unseen says for policies with lookups that the files have no object of a resource.
	unseen map[string]string
}

func newSide(p *Policies) *side {
	s := &side{Policies: p, names: p.Engine.Names(), readsOld: map[string]bool{}, ratchets: map[string]bool{}, unseen: map[string]string{}}
	for _, name := range s.names {
		spec := &p.Engine.Policy(name).Spec
		if spec.MatchConstraints != nil {
			s.rules = append(s.rules, spec.MatchConstraints.ResourceRules...)
		}
		text, err := json.Marshal(spec)
		for i := range spec.Lookups {
			if r := &spec.Lookups[i].Resource; !p.World.HasObjects(r) {
				s.unseen[name] = fmt.Sprintf("the policy looks up %s, which the log does not have: name a dump of them with -f", r.GroupResource())
			}
		}
		for i := range spec.Validations {
			s.ratchets[name] = s.ratchets[name] || spec.Ratchets(i)
		}
		s.readsOld[name] = err != nil || spec.Plugin != nil || bytes.Contains(text, []byte("oldObject"))
	}
	return s
}

// mayMatch reports whether a rule names the resource. Most events need no more.
func (s *side) mayMatch(r *reference) bool {
	return slices.ContainsFunc(s.rules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(rule.Resources, func(entry string) bool {
			name, _, _ := strings.Cut(entry, "/")
			return name == "*" || name == r.Resource
		})
	})
}

// replayer replays requests. It is immutable.
type replayer struct {
	policies, others *side
	compares         bool
}

func (r *replayer) work(ctx context.Context, batches <-chan batch, s *Summary) error {
	for b := range batches {
		line := b.line
		for text := range bytes.Lines(b.text) {
			if err := r.line(ctx, place{batch: &b, line: line}, text, s); err != nil {
				return err
			}
			line++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// place is a place in a log.
type place struct {
	*batch
	line int
}

// line replays one line: an event, or an EventList.
func (r *replayer) line(ctx context.Context, here place, text []byte, s *Summary) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	e, err := decodeEvent(text)
	if err != nil {
		if !bytes.HasSuffix(text, []byte("\n")) { // of a log that is being written
			s.Truncated = true
			return nil
		}
		s.malformed(here, "not an audit event: "+truncate.String(err.Error(), maxText))
		return nil
	}
	if e.Kind != "EventList" {
		return r.event(ctx, here, e, s)
	}
	for _, item := range e.Items {
		event, err := decodeEvent(item)
		if err != nil {
			s.malformed(here, "not a list of audit events: "+truncate.String(err.Error(), maxText))
			return nil
		}
		if err := r.event(ctx, here, event, s); err != nil {
			return err
		}
	}
	return nil
}

// namesGroup reports whether a policy can match a resource of an API group.
func (r *replayer) namesGroup(group string) bool {
	return r.policies.Engine.NamesGroup(group) || r.compares && r.others.Engine.NamesGroup(group)
}

func (r *replayer) mayMatch(o *reference) bool {
	return r.policies.mayMatch(o) || r.compares && r.others.mayMatch(o)
}

func (r *replayer) event(ctx context.Context, here place, e *event, s *Summary) error {
	if e.Kind != "Event" {
		s.malformed(here, fmt.Sprintf("the line has the kind %q: name audit logs of API servers", truncate.String(e.Kind, maxText)))
		return nil
	}
	s.Events++
	if e.ObjectRef == nil || !r.mayMatch(e.ObjectRef) {
		return nil
	}
	request, skipped := requestOf(e, r.policies.Engine.APIs)
	if request == nil {
		if skipped != skippedRead && (skipped != skippedKind || r.namesGroup(e.ObjectRef.APIGroup)) {
			s.Skipped[skipped]++
		}
		return nil
	}
	s.Requests++
	ours, err := r.policies.decide(ctx, e, request)
	if err != nil {
		return fmt.Errorf("%s:%d: evaluating the request: %w", here.file, here.line, err)
	}
	for name, decision := range ours {
		s.decide(name, decision)
	}
	if !r.compares {
		r.count(ctx, here, e, request, ours, s)
		return nil
	}
	theirs, err := r.others.decide(ctx, e, request)
	if err != nil {
		return fmt.Errorf("%s:%d: evaluating the request with the other policies: %w", here.file, here.line, err)
	}
	r.compare(ctx, here, e, request, ours, theirs, s)
	return nil
}

// decide returns the decision of each policy that matches the request.
func (s *side) decide(ctx context.Context, e *event, request *admissionv1.AdmissionRequest) (map[string]string, error) {
	result, err := s.Engine.Evaluate(ctx, request, s.World, offline.Options{LeaveOut: true, At: s.timeOf(e)})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	order := policy.Decisions()
	for _, o := range result.Outcomes {
		if o.Err != nil || s.lacks(request, &o) != "" {
			o.Decision = unknown
		}
		// A policy can decide in both phases: the more important decision counts.
		known, ok := out[o.Policy]
		if !ok || slices.Index(order, o.Decision) < slices.Index(order, policy.Decision(known)) {
			out[o.Policy] = string(o.Decision)
		}
	}
	return out, nil
}

// timeOf returns the time of a request; zero is that of the world.
func (s *side) timeOf(e *event) time.Time {
	if !s.AtRequests {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, e.Received)
	if err != nil {
		return time.Time{}
	}
	return at
}

// passes reports whether a decision has no effect that rows count.
func passes(decision string) bool {
	switch policy.Decision(decision) {
	case policy.DecisionAllow, policy.DecisionSkip, policy.DecisionUnmatched, absent:
		return true
	}
	return false
}

func (r *replayer) count(
	ctx context.Context, here place, e *event, request *admissionv1.AdmissionRequest, ours map[string]string, s *Summary,
) {
	for name, decision := range ours {
		if !passes(decision) {
			s.count(keyOf(name, "", decision, request), func() Example { return r.example(ctx, here, e, request, name) })
		}
	}
}

func (r *replayer) compare(
	ctx context.Context, here place, e *event, request *admissionv1.AdmissionRequest, ours, theirs map[string]string, s *Summary,
) {
	count := func(name, before, decision string) {
		if before != decision && (!passes(before) || !passes(decision)) {
			s.count(keyOf(name, before, decision, request), func() Example { return r.example(ctx, here, e, request, name) })
		}
	}
	for name, decision := range ours {
		count(name, r.others.without(theirs, name), decision)
	}
	for name, before := range theirs {
		if _, ok := ours[name]; !ok {
			count(name, before, r.policies.without(ours, name))
		}
	}
}

// without returns the decision of a policy: if it has not decided, whether it exists.
func (s *side) without(decisions map[string]string, name string) string {
	switch decision, ok := decisions[name]; {
	case ok:
		return decision
	case slices.Contains(s.names, name):
		return string(policy.DecisionUnmatched)
	}
	return absent
}

func keyOf(policy, before, decision string, request *admissionv1.AdmissionRequest) Key {
	resource := request.Resource.Resource
	if request.SubResource != "" {
		resource += "/" + request.SubResource
	}
	if request.Resource.Group != "" {
		resource += "." + request.Resource.Group
	}
	return Key{Policy: policy, Before: before, Decision: decision, User: request.UserInfo.Username, Namespace: request.Namespace, Resource: resource}
}

// example returns the example of a row, with the message of the policy.
func (r *replayer) example(ctx context.Context, here place, e *event, request *admissionv1.AdmissionRequest, name string) Example {
	out := Example{File: here.file, Line: here.line, AuditID: truncate.String(e.AuditID, maxText), Time: truncate.String(e.Received, maxText), Object: truncate.String(request.Name, maxText), order: here.order}
	options := offline.Options{Details: true, LeaveOut: true, At: r.policies.timeOf(e)}
	result, err := r.policies.Engine.Evaluate(ctx, request, r.policies.World, options)
	if err != nil {
		return out
	}
	for i := range result.Outcomes {
		if o := &result.Outcomes[i]; o.Policy == name {
			out.Message = truncate.String(r.policies.messageOf(request, o), maxMessage)
		}
	}
	return out
}

// messageOf returns what a policy says about a request.
func (s *side) messageOf(request *admissionv1.AdmissionRequest, o *offline.Outcome) string {
	if why := s.lacks(request, o); o.Err == nil && why != "" {
		return why
	}
	return strings.Join(o.Messages(), "; ")
}

// lacks returns why the decision of a policy needs an object that is not known; "" if it does not.
func (s *side) lacks(request *admissionv1.AdmissionRequest, o *offline.Outcome) string {
	switch {
	case s.unseen[o.Policy] != "" && !s.isSkipped(o):
		return s.unseen[o.Policy]
	case request.Operation != admissionv1.Update:
	case s.readsOld[o.Policy]:
		return "the policy reads oldObject, which the log does not have"
	case s.ratchets[o.Policy] && !passes(string(o.Decision)):
		return "the policy has ratchet, which depends on the stored object, and the log does not have it"
	}
	return ""
}

// isSkipped reports whether the policy does not apply to the request, whatever its lookups find.
func (s *side) isSkipped(o *offline.Outcome) bool {
	readsLookups := slices.ContainsFunc(s.Engine.Policy(o.Policy).Spec.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return strings.Contains(c.Expression, "lookups")
	})
	return o.Decision == policy.DecisionUnmatched || o.Decision == policy.DecisionSkip && !readsLookups
}
