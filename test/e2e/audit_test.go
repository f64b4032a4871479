package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// auditEvent is what the tests read of a line of the audit log.
type auditEvent struct {
	Verb string
	User struct{ Username string }
	// ImpersonatedUser has a name where a request was made with the permissions of another.
	ImpersonatedUser struct{ Username string }
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	// Annotations say whether the request was allowed, and what policies noted.
	Annotations    map[string]string
	StageTimestamp time.Time
}

// readAudit calls see for every request in an audit log.
func readAudit(log io.Reader, see func(auditEvent)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var event auditEvent
		if json.Unmarshal(lines.Bytes(), &event) == nil { // the last line may be half written
			see(event)
		}
	}
	return lines.Err()
}

// permission is one thing that an account may do.
type permission struct{ group, resource, verb, name, namespace string }

func (p permission) String() string {
	text := p.verb + " " + p.resource
	if p.group != "" {
		text += "." + p.group
	}
	if p.name != "" {
		text += " " + p.name
	}
	if p.namespace != "" {
		text += " in " + p.namespace
	}
	return text
}

func (e auditEvent) permission() permission {
	resource := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		resource += "/" + e.ObjectRef.Subresource
	}
	return permission{e.ObjectRef.APIGroup, resource, e.Verb, e.ObjectRef.Name, e.ObjectRef.Namespace}
}

// requestLog is what an account asked for, and what became of that.
type requestLog struct {
	account string
	leaving spans // when it lost its permissions on purpose
	asked   int
	refused map[string]int
	used    map[permission]bool
}

func newRequestLog(account string, leaving spans) *requestLog {
	return &requestLog{account: account, leaving: leaving, refused: map[string]int{}, used: map[permission]bool{}}
}

// see counts a request.
func (y *requestLog) see(e auditEvent) {
	if e.User.Username != y.account || e.ImpersonatedUser.Username != "" {
		return
	}
	y.asked++
	p := e.permission()
	switch e.Annotations["authorization.k8s.io/decision"] {
	case "forbid":
		if !y.leaving.hold(e.StageTimestamp) {
			y.refused[p.String()]++
		}
	case "allow":
		for _, name := range []string{p.name, ""} {
			for _, namespace := range []string{p.namespace, ""} {
				y.used[permission{p.group, p.resource, p.verb, name, namespace}] = true
			}
		}
	}
}

// refusalProblems demands that nothing was refused.
func (y *requestLog) refusalProblems() (problems []string) {
	if y.asked < 100 {
		problems = append(problems, fmt.Sprintf("only %d requests of Ostiary in the audit log: this shows nothing", y.asked))
	}
	for _, what := range slices.Sorted(maps.Keys(y.refused)) {
		problems = append(problems, fmt.Sprintf("it was refused %d times: %s", y.refused[what], what))
	}
	return problems
}

// useProblems demands that each permission that was granted was used, or has an
// excuse, and that no excuse is for nothing.
func (y *requestLog) useProblems(granted []permission, excuses map[string]string) (problems []string) {
	if len(granted) < 20 {
		return []string{fmt.Sprintf("%d permissions were found: this shows nothing", len(granted))}
	}
	left := maps.Clone(excuses)
	for _, p := range granted {
		reason, excused := excuses[p.String()]
		delete(left, p.String())
		watch := p
		watch.verb = "watch"
		if p.verb == "list" && slices.Contains(granted, watch) {
			continue // newer clients watch from the start, and list only where an API server cannot do that
		}
		switch {
		case y.used[p] && excused && !p.optional():
			problems = append(problems, fmt.Sprintf("%s is used after all: it needs no excuse (%s)", p, reason))
		case !y.used[p] && !excused:
			problems = append(problems, fmt.Sprintf("never used: %s: take the rule away, or have these tests use it", p))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(left)) {
		problems = append(problems, fmt.Sprintf("an excuse for %s, which is not granted", what))
	}
	return problems
}

// optional are those of the excuses that chance may take away.
func (p permission) optional() bool {
	return p.resource == "namespaces" || p.resource == "events" || p.verb == "get" && strings.HasSuffix(p.resource, "webhookconfigurations")
}

func expand(rules []rbacv1.PolicyRule, namespace string) []permission {
	var out []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, permission{group, resource, verb, name, namespace})
					}
				}
			}
		}
	}
	return out
}

// spans are stretches of time.
type spans [][2]time.Time

func (s *spans) add(start time.Time) { *s = append(*s, [2]time.Time{start, time.Now()}) }

func (s spans) hold(at time.Time) bool {
	for _, span := range s {
		if !at.Before(span[0]) && !at.After(span[1]) {
			return true
		}
	}
	return false
}
