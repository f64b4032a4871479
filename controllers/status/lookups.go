package status

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/lookups"
	definitions "github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// maxLookupMessage is the limit of the definition for the message of a lookup.
const maxLookupMessage = 1024

// lookupsInput is what is known about the lookups of a policy.
type lookupsInput struct {
	statuses []v1alpha1.LookupStatus // empty for a policy without lookups
	// problem says why requests are errors, loading what is being listed, and waiting names a replica that
	// is not ready. The first one of each is reported.
	problem, loading, waiting string
}

// rules are those of the condition LookupsReady, none for a policy without lookups.
func (l *lookupsInput) rules() []rule {
	return []rule{
		{l.problem != "", metav1.ConditionFalse, ReasonLookupsNotReady, l.problem},
		{l.loading != "", metav1.ConditionFalse, ReasonPending, l.loading},
		{l.waiting != "", metav1.ConditionFalse, ReasonWaitingForReplicas, l.waiting},
		{len(l.statuses) > 0, metav1.ConditionTrue, ReasonComplete, "every replica has read the objects of every lookup"},
	}
}

// Lookups is the Source for the lookups of policies. peers are the other replicas, whose changes changed reports.
func Lookups(known interface {
	State(d definitions.Definition) lookups.State
	subscriber
}, peers func(context.Context) (versionskew.Peers, error), changed func(context.Context) <-chan struct{},
) Source {
	hasLookups := func(p *v1alpha1.WebhookPolicy) bool { return len(p.Spec.Lookups) > 0 }
	return Source{
		subscribe: func(ctx context.Context) <-chan struct{} { return events.Merge(ctx, known.Subscribe, changed) },
		concerns:  hasLookups,
		observe: func(ctx context.Context, p *v1alpha1.WebhookPolicy, in *inputs) {
			if !hasLookups(p) {
				return
			}
			others, err := peers(ctx)
			for i := range p.Spec.Lookups {
				l := &p.Spec.Lookups[i]
				d := definitions.DefinitionOf(l)
				in.lookups.add(l, known.State(d), others.MissingLookup(lookups.Name(d)))
			}
			if err != nil && in.lookups.waiting == "" {
				in.lookups.waiting = err.Error()
			}
		},
	}
}

// add adds a lookup, and the replica that it waits for, if any.
func (l *lookupsInput) add(of *v1alpha1.Lookup, is lookups.State, waiting string) {
	status := v1alpha1.LookupStatus{Name: of.Name, LeftOut: is.LeftOut}
	switch {
	case is.Problem != "":
		status.Message = is.Problem
		addFirst(&l.problem, of, is.Problem)
	case is.Loading:
		status.Message = "the objects are being listed"
		addFirst(&l.loading, of, status.Message)
	case is.LeftOut > 0:
		status.Message = fmt.Sprintf("left out because storedKeys or value fail: %d objects, such as %s", is.LeftOut, is.Example)
	}
	if !is.Loading {
		status.Objects = ptr.To(is.Objects)
	}
	if waiting != "" {
		addFirst(&l.waiting, of, waiting)
	}
	status.Message = truncate.String(status.Message, maxLookupMessage)
	l.statuses = append(l.statuses, status)
}

// addFirst keeps the message about the first lookup that has one.
func addFirst(message *string, of *v1alpha1.Lookup, text string) {
	if *message == "" {
		*message = "lookup " + of.Name + ": " + text
	}
}
