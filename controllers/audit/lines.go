package audit

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/controllers/internal/objects"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxLines limits the lines of all policies and namespaces, about 400 bytes each.
	maxLines = 50_000
	// maxLineMessage limits the message of a line, in bytes.
	maxLineMessage = 1 << 10
)

// line describes an object that violates a policy.
type line struct {
	id       objectID
	kind     schema.GroupVersionKind
	resource string
	name     string
	uid      string
	verdict  verdict
	rule     string // names of the first validation, and of the pod template
	message  string
}

// order puts failures first, then errors and warnings. Lines of a lower order are kept if
// there are too many.
func (l *line) order(o *line) int {
	rank := [verdicts]int{fail: 0, failed: 1, warn: 2}
	return cmp.Or(cmp.Compare(rank[l.verdict], rank[o.verdict]), cmp.Compare(l.kind.Group, o.kind.Group), cmp.Compare(l.kind.Kind, o.kind.Kind), cmp.Compare(l.name, o.name))
}

// newLine returns the line for an audited object.
func newLine(id objectID, o *objects.Object, kind schema.GroupVersionKind, resource string, got policy.Audited) line {
	l := line{id: id, kind: kind, resource: resource, name: o.Name, uid: o.UID, verdict: verdictOf(got.Decision)}
	for i, v := range got.Violations {
		if i == 0 {
			l.rule = v.Validation
		}
		if i > 0 {
			l.message += "; "
		}
		if v.Template != "" {
			l.message += v.Template + ": "
		}
		if l.message += v.Message; len(l.message) > maxLineMessage {
			break
		}
	}
	l.message = strings.Clone(truncate.String(l.message, maxLineMessage)) // it can be a part of the object
	return l
}

// lacksLine reports whether an object that violates a policy would get a line if it were
// evaluated again.
func (r *results) lacksLine(key pairKey, l line) bool {
	if l.verdict != fail && l.verdict != failed && l.verdict != warn {
		return false
	}
	list := r.lines[key]
	if slices.ContainsFunc(list, func(o line) bool { return o.id == l.id }) {
		return false
	}
	if len(list) < r.limit {
		return r.kept < maxLines
	}
	return r.limit > 0 && l.order(&list[len(list)-1]) < 0
}

// addLine adds a line in order, and drops the last one if there are too many.
func (r *results) addLine(key pairKey, l line) {
	r.removeLine(key, l.id)
	list := r.lines[key]
	if r.kept >= maxLines && len(list) < r.limit || r.limit == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(list, l, func(a, b line) int { return a.order(&b) })
	list = slices.Insert(list, at, l)
	r.kept++
	if len(list) > r.limit {
		list = slices.Delete(list, r.limit, len(list))
		r.kept--
	}
	r.lines[key] = list
	r.changed = true
}

// removeLine reports whether there was a line of the object.
func (r *results) removeLine(key pairKey, id objectID) bool {
	list := r.lines[key]
	at := slices.IndexFunc(list, func(o line) bool { return o.id == id })
	if at < 0 {
		return false
	}
	r.kept--
	r.changed = true
	if list = slices.Delete(list, at, at+1); len(list) == 0 {
		delete(r.lines, key)
		return true
	}
	r.lines[key] = list
	return true
}
