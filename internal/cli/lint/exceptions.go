package lint

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/config/crd"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/offline"
)

// checkExceptions checks the exceptions of files with the policies of the same files, as Ostiary and
// an API server would at a time.
func (l *linter) checkExceptions(ctx context.Context, in *offline.Input, at time.Time) error {
	if len(in.Exceptions) == 0 {
		return nil
	}
	definition, err := newSchema(crd.WebhookPolicyExceptions)
	if err != nil {
		return err
	}
	for _, x := range in.Exceptions {
		errs, err := definition.check(ctx, x.Source.Raw)
		if err != nil {
			return x.Source.Errorf("", "%v", err)
		}
		for _, e := range errs {
			l.exception(x, Error, e.Field, e.ErrorBody())
		}
		if len(errs) == 0 {
			l.effect(x, namedPolicy(in, x.GetSpec().PolicyName), at)
		}
	}
	return nil
}

func namedPolicy(in *offline.Input, name string) *v1alpha1.WebhookPolicySpec {
	i := slices.IndexFunc(in.Policies, func(p offline.Policy) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &in.Policies[i].Spec
}

// effect warns about an exception without an effect, or with less than it says.
func (l *linter) effect(x offline.Exception, spec *v1alpha1.WebhookPolicySpec, at time.Time) {
	e := exceptions.NewEntry(x.Exception)
	if reason, message := e.State(spec, at, l.compiler); reason != "" {
		severity := Warning
		if reason == exceptions.ReasonInvalidCondition || reason == exceptions.ReasonInvalidSelector {
			severity = Error
		}
		l.exception(x, severity, exceptions.Field(reason), message)
		return
	}
	for _, name := range e.UnknownValidations(spec) {
		l.exception(x, Warning, "spec.validations", fmt.Sprintf("the policy %q has no validation %q: correct or remove it", e.Policy, name))
	}
	for i, m := range x.GetSpec().Match {
		for j, resource := range m.Resources {
			if !exceptions.MayMatch(spec, m.Group, resource) {
				l.exception(x, Warning, fmt.Sprintf("spec.match[%d].resources[%d]", i, j),
					fmt.Sprintf("the rules of the policy %q never match %q of the API group %q: correct or remove it", e.Policy, resource, m.Group))
			}
		}
	}
}

func (l *linter) exception(x offline.Exception, s Severity, field, text string) {
	at := x.Source.At(field)
	l.findings = append(l.findings, Finding{
		Severity: s, Rule: ruleException, Policy: x.GetSpec().PolicyName, Field: field, File: at.File, Line: at.Line, Column: at.Column,
		Message: fmt.Sprintf("exception %q: %s", x.GetName(), text),
	})
}
