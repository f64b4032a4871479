// Package lint finds what Ostiary and an API server reject or warn about when a policy is
// applied, without a cluster.
package lint

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ostiary/ostiary/config/crd"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rehearsal"
	"github.com/ostiary/ostiary/internal/typecheck"
	"github.com/ostiary/ostiary/internal/validation"
)

// Severity is the effect of a Finding.
type Severity string

const (
	// Error means that the policy cannot be applied.
	Error Severity = "error"
	// Warning means that it can be applied, with a warning.
	Warning Severity = "warning"
)

// The rules of findings.
const (
	ruleRead   = "read"   // it is not a policy
	ruleSchema = "schema" // the CustomResourceDefinition rejects it
	ruleReview = "review" // Ostiary rejects it
	ruleRisk   = "risk"   // Ostiary warns about it
	ruleTypes  = "types"  // an expression does not fit the schema of a kind

	ruleException = "exception" // it has no effect, or less than it says
	ruleRehearsal = "rehearsal" // a request fails with an error, or goes around the policy
)

// Finding is one problem of a policy.
type Finding struct {
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"`
	Policy   string   `json:"policy,omitempty"`
	Field    string   `json:"field,omitempty"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"`
	Column   int      `json:"column,omitempty"`
	Message  string   `json:"message"`

	kind advice.Kind
}

func compareFindings(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Message, b.Message))
}

// linter checks policies for one version of Kubernetes.
type linter struct {
	engine   policy.Engine
	compiler *policy.Compiler
	schema   *schema
	types    *types
	apis     *offline.APIs
	served   apiresources.Lists
	findings []Finding

	rehearser *rehearsal.Rehearser
}

// Errors returns the errors of Check, without warnings and without a check of types.
func Errors(ctx context.Context, objects []load.Object, e policy.Engine) ([]Finding, error) {
	l := &linter{engine: e, compiler: policy.NewCompilerFor(e)}
	in := l.read(objects)
	var err error
	if l.schema, err = newSchema(crd.WebhookPolicies); err != nil {
		return nil, err
	}
	for i := range in.Policies {
		if _, _, err := l.rejected(ctx, &in.Policies[i]); err != nil {
			return nil, err
		}
	}
	return l.findings, ctx.Err()
}

// Check returns the findings about all policies and exceptions of some files, in the order of files
// and lines. The time decides which exceptions have ended. The problems are about what could not be read, and become findings.
func Check(
	ctx context.Context, objects []load.Object, problems []error, e policy.Engine, at time.Time,
) (findings []Finding, policies int, err error) {
	l := &linter{engine: e, compiler: policy.NewCompilerFor(e)}
	in := l.read(objects)
	for _, problem := range problems {
		l.unreadable(problem)
	}
	if l.schema, err = newSchema(crd.WebhookPolicies); err != nil {
		return nil, 0, err
	}
	if err := l.readAPIs(in); err != nil {
		return nil, 0, err
	}
	for i := range in.Policies {
		if err := l.policy(ctx, &in.Policies[i]); err != nil {
			return nil, 0, err
		}
	}
	if err := l.checkExceptions(ctx, in, at); err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(l.findings, compareFindings)
	return l.findings, len(in.Policies), ctx.Err()
}

// Refusals returns what rehearsals of the policies find that refuses ordinary objects: errors
// of expressions, and validations that no object satisfies. The policies of which not every kind of
// request was rehearsed are in incomplete, with the reason.
func Refusals(
	ctx context.Context,
	objects []load.Object,
	e policy.Engine,
) (findings []Finding, incomplete []string, err error) {
	l := &linter{engine: e, compiler: policy.NewCompilerFor(e)}
	in, _ := offline.Divide(objects)
	if err := l.readAPIs(in); err != nil {
		return nil, nil, err
	}
	for i := range in.Policies {
		p := &in.Policies[i]
		rehearsed := l.rehearser.Rehearse(ctx, p.WebhookPolicy, l.cluster())
		for _, w := range rehearsed.Warnings {
			if rehearsal.IsRefusal(w) {
				l.warn(p, ruleRehearsal, w)
			}
		}
		why := rehearsed.Stopped
		if rehearsed.Resources == 0 {
			why = "none of its kinds is known: add their CustomResourceDefinitions with -f"
		}
		if why != "" {
			incomplete = append(incomplete, p.Name+" ("+why+")")
		}
	}
	return l.findings, incomplete, ctx.Err()
}

// readAPIs reads what checks of types and rehearsals need.
func (l *linter) readAPIs(in *offline.Input) error {
	apis, err := offline.NewAPIs(l.engine, in.Definitions)
	if err != nil {
		return err
	}
	l.apis, l.served = apis, apis.Lists()
	if l.rehearser, err = rehearsal.New(l.engine); err != nil {
		return err
	}
	l.types, err = newTypes(l.engine, in.Definitions)
	return err
}

// read decodes the objects. Those that cannot be decoded are findings.
func (l *linter) read(objects []load.Object) *offline.Input {
	in, problems := offline.Divide(objects)
	for _, problem := range problems {
		l.unreadable(problem)
	}
	return in
}

// unreadable adds the errors of an object.
func (l *linter) unreadable(err error) {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, e := range several.Unwrap() {
			l.unreadable(e)
		}
		return
	}
	finding := Finding{Severity: Error, Rule: ruleRead, Message: err.Error()}
	var located *load.Error
	if errors.As(err, &located) {
		finding.File, finding.Line, finding.Column, finding.Message = located.File, located.Line, located.Column, located.Text
	}
	l.findings = append(l.findings, finding)
}

// policy checks a policy as it would be checked when it is applied: a failed step ends it.
func (l *linter) policy(ctx context.Context, p *offline.Policy) error {
	rejected, warnings, err := l.rejected(ctx, p)
	if rejected || err != nil {
		return err
	}
	for _, w := range warnings {
		l.warn(p, ruleRisk, w)
	}
	found, err := l.types.check(ctx, p.WebhookPolicy, l.served)
	for _, w := range found {
		l.warn(p, ruleTypes, w)
	}
	if err != nil {
		return err
	}
	rehearsed := l.rehearser.Rehearse(ctx, p.WebhookPolicy, l.cluster())
	for _, w := range rehearsal.Beside(found, rehearsed.Warnings) {
		l.warn(p, ruleRehearsal, w)
	}
	if rehearsed.Stopped != "" && ctx.Err() == nil {
		text := "not every kind of request was rehearsed, because " + rehearsed.Stopped
		l.warn(p, ruleRehearsal, advice.Warning{Field: "spec.matchConstraints.resourceRules", Text: text})
	}
	return nil
}

// cluster is what a rehearsal needs of the API server for which the policies are meant.
func (l *linter) cluster() rehearsal.Cluster {
	return rehearsal.Cluster{
		Served: l.served, TypeConverters: l.apis, Objects: l.apis.ObjectInterfaces(),
		Documents: func(k apiresources.Kind) *typecheck.Document { return l.types.custom[k.GroupVersionKind] },
	}
}

// rejected adds the errors for which a policy cannot be applied. Without errors, it
// returns warnings.
func (l *linter) rejected(ctx context.Context, p *offline.Policy) (rejected bool, warnings []advice.Warning, err error) {
	errs, err := l.schema.check(ctx, p.Source.Raw)
	if err != nil {
		return false, nil, p.Source.Errorf("", "%v", err)
	}
	rule := ruleSchema
	if len(errs) == 0 {
		rule = ruleReview
		var v validation.Result
		v, warnings = validation.Review(l.compiler, p.WebhookPolicy, validation.ClusterInfo{Resources: l.served})
		errs = v.Errors
	}
	for _, e := range errs {
		l.add(p, Error, rule, advice.Warning{Field: e.Field, Text: e.ErrorBody()})
	}
	return len(errs) > 0, warnings, nil
}

func (l *linter) warn(p *offline.Policy, rule string, w advice.Warning) { l.add(p, Warning, rule, w) }

func (l *linter) add(p *offline.Policy, s Severity, rule string, w advice.Warning) {
	at := p.Source.At(w.Field)
	l.findings = append(l.findings, Finding{
		Severity: s, Rule: rule, Policy: p.Name, Field: w.Field, File: at.File, Line: at.Line, Column: at.Column,
		Message: w.Text, kind: w.Kind,
	})
}
