package policytest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/common/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Coverage counts the results of the expressions of all tested policies. It is safe for
// concurrent use.
type Coverage struct {
	mu    sync.Mutex
	order []*Line
	lines map[string]*Line // by policy and field
}

// Line is the coverage of one expression, or of a plugin or backend.
type Line struct {
	Policy string `json:"policy"`
	Field  string `json:"field"`
	// Validation is the name of the validation, empty without one.
	Validation string        `json:"validation,omitempty"`
	Position   load.Position `json:"position"`
	// True and False count results of conditions and validations; True counts other
	// results, such as changes of a mutation. Failed counts errors. Skipped counts
	// requests for which the policy was called and the expression not evaluated.
	True    int `json:"true"`
	False   int `json:"false"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	// Missing are the results that no case has.
	Missing []string `json:"missing,omitempty"`

	both    bool   // False counts too
	yes, no string // the wanted results; empty for one that is not possible
}

func newCoverage(suites []*Suite) *Coverage {
	c := &Coverage{lines: map[string]*Line{}}
	for _, s := range suites {
		for i := range s.policies {
			c.addPolicy(&s.policies[i])
		}
	}
	return c
}

func (c *Coverage) addPolicy(p *offline.Policy) {
	spec := &p.Spec
	add := func(field, yes, no string) {
		key := p.Name + " " + field
		if c.lines[key] == nil {
			l := &Line{Policy: p.Name, Field: field, Position: p.Source.At(field), both: no != "", yes: yes, no: no}
			c.lines[key], c.order = l, append(c.order, l)
		}
	}
	condition := func(field, expression string) {
		yes, no := "true", "false"
		switch strings.TrimSpace(expression) { // a constant has one result
		case "true":
			no = ""
		case "false":
			yes = ""
		}
		add(field, yes, no)
	}
	for i := range spec.Lookups {
		add(fmt.Sprintf("spec.lookups[%d]", i), "objects found", "no objects found")
	}
	for i := range spec.Variables {
		add(fmt.Sprintf("spec.variables[%d].expression", i), "evaluated", "")
	}
	for i, m := range spec.MatchConditions {
		condition(fmt.Sprintf("spec.matchConditions[%d].expression", i), m.Expression)
	}
	for i := range spec.Mutations {
		field := "applyConfiguration"
		if spec.Mutations[i].JSONPatch != nil {
			field = "jsonPatch"
		}
		add(fmt.Sprintf("spec.mutations[%d].%s.expression", i, field), "evaluated", "")
	}
	for i, v := range spec.Validations {
		condition(fmt.Sprintf("spec.validations[%d].expression", i), v.Expression)
		c.lines[fmt.Sprintf("%s spec.validations[%d].expression", p.Name, i)].Validation = v.Name
		if v.MessageExpression != "" {
			add(fmt.Sprintf("spec.validations[%d].messageExpression", i), "used", "")
		}
	}
	for i := range spec.AuditAnnotations {
		add(fmt.Sprintf("spec.auditAnnotations[%d].valueExpression", i), "evaluated", "")
	}
	if spec.Plugin != nil {
		add("spec.plugin", "an effect", noEffectOf(spec.Plugin))
	}
	if spec.Backend != nil {
		add("spec.backend", "an effect", "no effect")
	}
}

// noEffectOf returns the result of a plugin for a request that it leaves alone; empty if there is none.
func noEffectOf(p *v1alpha1.Plugin) string {
	if p.Name == v1alpha1.PluginAlwaysDeny {
		return ""
	}
	return "no effect"
}

// trace returns the trace of one case, and a function that adds it at the end.
func (c *Coverage) trace(policies []offline.Policy) (trace policy.Trace, finish func(*offline.Result)) {
	found := map[string][]policy.Evaluated{}
	called := map[string]bool{}
	affected := map[string]bool{}
	trace.Lookup = func(l policy.LookedUp) {
		key := l.Policy + " lookups." + l.Lookup
		found[key] = append(found[key], policy.Evaluated{Value: types.Bool(len(l.Found) > 0), Err: l.Err})
	}
	trace.Expression = func(e policy.Evaluated) {
		if e.Stored {
			return
		}
		e.State = nil // it is large
		found[e.Policy+" "+e.Field] = append(found[e.Policy+" "+e.Field], e)
		called[e.Policy] = true
	}
	trace.Invocation = func(i policy.Invoked) {
		called[i.Policy] = true
		affected[i.Policy] = affected[i.Policy] || i.Changed
		for _, d := range i.Decisions {
			affected[i.Policy] = affected[i.Policy] || d.Denied
		}
	}
	return trace, func(r *offline.Result) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range policies {
			c.addCase(policies[i].WebhookPolicy, found, called, affected)
		}
		c.addBackends(r)
	}
}

func (c *Coverage) addCase(p *v1alpha1.WebhookPolicy, found map[string][]policy.Evaluated, called, affected map[string]bool) {
	for _, l := range c.order {
		if l.Policy != p.Name || l.Field == "spec.backend" {
			continue
		}
		results := found[l.Policy+" "+l.traced(p)]
		switch {
		case l.Field == "spec.plugin":
			l.count(called[p.Name] && affected[p.Name], called[p.Name] && !affected[p.Name])
		case len(results) == 0 && called[p.Name]:
			l.Skipped++
		}
		failures := found[l.Policy+" "+strings.TrimSuffix(l.Field, "messageExpression")+"expression"]
		for i, e := range results {
			switch {
			case e.Err != nil:
				l.Failed++
			case strings.HasSuffix(l.Field, ".messageExpression"):
				// The engine evaluates it also for a validation that is true.
				l.count(i < len(failures) && failures[i].Value == types.False, false)
			case l.both:
				l.count(e.Value == types.True, e.Value == types.False)
			default:
				l.True++
			}
		}
	}
}

// traced returns the field by which a trace names the line.
func (l *Line) traced(p *v1alpha1.WebhookPolicy) string {
	for i := range p.Spec.Lookups {
		if l.Field == fmt.Sprintf("spec.lookups[%d]", i) {
			return "lookups." + p.Spec.Lookups[i].Name
		}
	}
	return l.Field
}

func (l *Line) count(yes, no bool) {
	if yes {
		l.True++
	}
	if no {
		l.False++
	}
}

func (c *Coverage) addBackends(r *offline.Result) {
	if r == nil {
		return
	}
	for _, o := range r.Outcomes {
		if l := c.lines[o.Policy+" spec.backend"]; l != nil {
			l.count(o.Decision == policy.DecisionDeny || o.Decision == policy.DecisionMutate, o.Decision == policy.DecisionAllow)
		}
	}
	for _, m := range r.Conditions {
		if l := c.lines[m.Policy+" "+m.Field]; l != nil {
			l.count(m.Matches, !m.Matches)
		}
	}
}

// Lines returns all lines, in the order of the tests.
func (c *Coverage) Lines() []*Line {
	for _, l := range c.order {
		l.Missing = nil
		if l.yes != "" && l.True == 0 {
			l.Missing = append(l.Missing, l.yes)
		}
		if l.no != "" && l.False == 0 {
			l.Missing = append(l.Missing, l.no)
		}
	}
	return c.order
}

// Percent returns the part of the wanted results that cases have.
func (c *Coverage) Percent() float64 {
	wanted, missing := 0, 0
	for _, l := range c.Lines() {
		for _, result := range []string{l.yes, l.no} {
			if result != "" {
				wanted++
			}
		}
		missing += len(l.Missing)
	}
	if wanted == 0 {
		return 100
	}
	return 100 * float64(wanted-missing) / float64(wanted)
}
