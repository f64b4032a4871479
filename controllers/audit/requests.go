package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ostiary/ostiary/controllers/violations"
	"github.com/ostiary/ostiary/internal/audit/results"
)

const (
	// requestSource is the source and the name of reports about requests.
	requestSource = results.ReportSource + "-admission"
	// maxRequestReports limits the namespaces with such a report.
	maxRequestReports = 100
	// requestInterval is the minimum time between two changes of these reports.
	requestInterval = time.Minute
)

// requests keeps the violations by requests that the reports have.
type requests struct {
	found         []violations.Finding
	read, changed time.Time
}

// refresh reads them again if it is time, and reports whether they have changed. After an
// error, the earlier ones stay.
func (q *requests) refresh(ctx context.Context, read func(context.Context) ([]violations.Finding, error), now time.Time) bool {
	if now.Sub(q.read) < pollInterval || now.Sub(q.changed) < requestInterval {
		return false
	}
	q.read = now
	found, err := read(ctx)
	if err != nil || slices.Equal(found, q.found) {
		return false
	}
	q.found, q.changed = found, now
	return true
}

// reports returns a report for each namespace, of those with the most violations. The report
// of the cluster has cluster-scoped objects and the sum of what no other report has.
func (q *requests) reports() []results.Report {
	byNamespace := map[string][]violations.Finding{}
	rest := violations.Finding{Policy: violations.Others}
	for _, f := range q.found { // the most violations first
		if f.Policy == violations.Others || byNamespace[f.Namespace] == nil && len(byNamespace) >= maxRequestReports {
			rest.Denied, rest.Warned, rest.Audited, rest.Failed = rest.Denied+f.Denied, rest.Warned+f.Warned, rest.Audited+f.Audited, rest.Failed+f.Failed
			rest.Previewed += f.Previewed
			continue
		}
		byNamespace[f.Namespace] = append(byNamespace[f.Namespace], f)
	}
	if rest != (violations.Finding{Policy: violations.Others}) {
		byNamespace[""] = append(byNamespace[""], rest)
	}
	var out []results.Report
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		r := results.Report{Source: requestSource, Namespace: namespace}
		found := byNamespace[namespace]
		slices.SortFunc(found, func(a, b violations.Finding) int { return cmp.Compare(a.Policy, b.Policy) })
		for _, f := range found {
			addRequests(&r, f)
		}
		out = append(out, r)
	}
	return out
}

// addRequests adds a result for the requests that violate a policy.
func addRequests(r *results.Report, f violations.Finding) {
	verdict := results.Warned
	switch {
	case f.Denied+f.Audited > 0:
		verdict = results.Violated
	case f.Failed > 0:
		verdict = results.Errored
	}
	properties := map[string]any{}
	var parts []string
	for _, number := range []struct {
		name, text string
		n          uint64
	}{
		{"denied", "denied", f.Denied},
		{"warned", "warned about", f.Warned},
		{"audited", "audited", f.Audited},
		{"failed", "not evaluated because of an error", f.Failed},
		{"previewed", "would be changed", f.Previewed},
	} {
		if number.n > 0 {
			properties[number.name] = strconv.FormatUint(number.n, 10)
			parts = append(parts, fmt.Sprintf("%d %s", number.n, number.text))
		}
	}
	message := fmt.Sprintf("requests of the last %d hours: %s", int(violations.Window.Hours()), strings.Join(parts, ", "))
	r.Add(f.Policy, verdict, message, properties)
}
