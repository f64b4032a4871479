package results

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxLines limits the lines of all policies and namespaces, about 400 bytes each.
	maxLines = 50_000
	// maxLineMessage limits the message of a line, in bytes.
	maxLineMessage = 1 << 10
)

// Line describes an object that violates a policy.
type Line struct {
	ID       ObjectID
	Kind     schema.GroupVersionKind
	Resource string
	Name     string
	UID      string
	// Controller of the object; "" without one.
	Controller string
	Verdict    Verdict
	Rule       string // name of the first validation
	// Exception is why an excepted object passes; nil for others.
	Exception *exceptions.Entry
	Message   string
	// Workload is the one whose new Pods are denied; empty without one.
	Workload string
}

// compare puts failures first, then errors and warnings. Lines of a lower order are kept if
// there are too many.
func (l *Line) compare(o *Line) int {
	return cmp.Or(
		cmp.Compare(l.Verdict.rank(), o.Verdict.rank()),
		cmp.Compare(l.Kind.Group, o.Kind.Group),
		cmp.Compare(l.Kind.Kind, o.Kind.Kind),
		cmp.Compare(l.Name, o.Name),
	)
}

// line returns the line for an audited object.
func (p *Pass) line(o *Object, got audit.Result) Line {
	l := Line{ID: o.ID, Kind: p.resource.kind, Resource: p.resource.Resource, Name: o.Name, UID: o.UID}
	l.Controller, l.Verdict, l.Workload = o.Controller, VerdictOf(got), got.Workload
	l.Rule, l.Message = describe(got)
	if l.Verdict == Excepted {
		l.Exception = got.Violations[0].Exception
	}
	return l
}

// describe returns the name of the first validation that an object fails, and all messages. What
// exceptions let pass is described only if there is nothing else.
func describe(got audit.Result) (rule, message string) {
	for _, v := range got.Violations {
		if v.Exception != nil && got.Decision != policy.DecisionExcepted {
			continue
		}
		if message == "" {
			rule = v.Validation
		} else {
			message += "; "
		}
		if v.Template != "" {
			message += v.Template + ": "
		}
		if message += v.Message; len(message) > maxLineMessage {
			break
		}
	}
	return rule, strings.Clone(truncate.String(message, maxLineMessage)) // it can be a part of the object
}

// lacksLine reports whether an object that violates a policy would get a line if it were
// evaluated again.
func (t *Table) lacksLine(pair Pair, l Line) bool {
	if !l.Verdict.isDescribed() {
		return false
	}
	list := t.lines[pair]
	if slices.ContainsFunc(list, func(o Line) bool { return o.ID == l.ID }) {
		return false
	}
	if len(list) < t.limit {
		return t.kept < maxLines
	}
	return t.limit > 0 && l.compare(&list[len(list)-1]) < 0
}

// addLine adds a line in order, and drops the last one if there are too many.
func (t *Table) addLine(pair Pair, l Line) {
	t.removeLine(pair, l.ID)
	list := t.lines[pair]
	if t.kept >= maxLines && len(list) < t.limit || t.limit == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(list, l, func(a, b Line) int { return a.compare(&b) })
	list = slices.Insert(list, at, l)
	t.kept++
	if len(list) > t.limit {
		list = slices.Delete(list, t.limit, len(list))
		t.kept--
	}
	t.lines[pair] = list
	t.changed = true
}

// removeLine reports whether there was a line of the object.
func (t *Table) removeLine(pair Pair, id ObjectID) bool {
	list := t.lines[pair]
	at := slices.IndexFunc(list, func(o Line) bool { return o.ID == id })
	if at < 0 {
		return false
	}
	t.kept--
	t.changed = true
	if list = slices.Delete(list, at, at+1); len(list) == 0 {
		delete(t.lines, pair)
		return true
	}
	t.lines[pair] = list
	return true
}

// freeLine removes the line of an object. If others have none for lack of space, the next
// pass finds one.
func (t *Table) freeLine(known *resource, pair Pair, id ObjectID) {
	if t.removeLine(pair, id) && t.findings(pair) > int64(len(t.lines[pair])) {
		known.refill = true
	}
}
