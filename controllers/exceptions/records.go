package exceptions

import (
	"cmp"
	stdjson "encoding/json"
	"hash/fnv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// The estimated memory of an exception: a record, the JSON of its spec twice, because decoded texts
// take more, and the compiled condition.
const (
	recordCost    = 1 << 10
	conditionCost = 32 << 10
)

// record is an exception that this replica keeps.
type record struct {
	*exceptions.Entry
	uid types.UID
	// version is the resource version in which this replica saw the generation first, and current
	// the one that it saw last, which changes with the status.
	version, current string
	size             int64
	unknown          []string // fields that this version does not know, with which it has no effect
	status           written
	list             uint64 // in which it was read last
}

// written is what the status of an exception says.
type written struct {
	generation int64
	active     metav1.ConditionStatus
	text       uint64 // the hash of reason and message
	since      metav1.Time
	used       int64
	lastUsed   time.Time
	ending     bool // it says that the end is near
}

// newRecord decodes an exception of either kind.
func newRecord(raw []byte, known versionskew.Fields) (*record, error) {
	var object struct {
		Spec stdjson.RawMessage `json:"spec"`
	}
	e := &v1alpha1.WebhookPolicyException{} // the cluster kind has the same fields
	if err := json.Unmarshal(raw, e); err != nil {
		return nil, err
	}
	unknown, err := known.UnknownInJSON(raw)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	r := &record{
		Entry: exceptions.NewEntry(e), uid: e.UID, version: e.ResourceVersion, current: e.ResourceVersion, unknown: unknown,
		size: recordCost + 2*int64(len(object.Spec)), status: writtenIn(&e.Status),
	}
	if r.Condition != "" {
		r.size += conditionCost
	}
	return r, nil
}

func writtenIn(s *v1alpha1.WebhookPolicyExceptionStatus) written {
	out := written{generation: s.ObservedGeneration, used: s.Used}
	if s.LastUsedTime != nil {
		out.lastUsed = s.LastUsedTime.Time
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionActive); c != nil {
		out.active, out.text, out.since = c.Status, hashOf(c.Reason, c.Message), c.LastTransitionTime
		out.ending = c.Reason == ReasonEndsSoon
	}
	return out
}

func hashOf(reason, message string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(reason + " " + message)) // never fails
	return h.Sum64()
}

// position orders the exceptions of a namespace as exceptions.MaxPerPolicyAndNamespace does: those
// that were created first have an effect.
type position struct {
	created time.Time
	name    string
}

func (r *record) position() position { return position{r.Created, r.Name} }

func (p position) compare(q position) int {
	return cmp.Or(p.created.Compare(q.created), strings.Compare(p.name, q.name))
}

// identity returns the record without what evaluations need, which can be large.
func (r *record) identity() *record {
	e := &exceptions.Entry{Key: r.Key, Generation: r.Generation}
	return &record{Entry: e, uid: r.uid, current: r.current, status: r.status}
}

// space has the exceptions of a namespace, or those of the cluster kind.
type space struct {
	records map[string]*record
	used    int64
	// cut is the oldest exception that is left out, as are all that are younger; nil without one.
	cut *position
	out int // the number of them
}

// youngest returns the record that is left out first.
func (s *space) youngest() *record {
	var out *record
	for _, r := range s.records {
		if out == nil || r.position().compare(out.position()) > 0 {
			out = r
		}
	}
	return out
}

// exclude remembers an exception that is left out.
func (s *space) exclude(r *record, isNew bool) {
	if p := r.position(); s.cut == nil || p.compare(*s.cut) < 0 {
		s.cut = &p
	}
	if isNew {
		s.out++
	}
}
