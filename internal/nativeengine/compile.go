package nativeengine

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compiler compiles the expressions of one policy as the plugins of the API server do,
// which do not export it. Their evaluators report errors only when they run.
type compiler struct {
	*cel.CompositedCompiler
	declared cel.OptionalVariableDeclarations
	errs     []error
}

func newCompiler(
	params *admissionregistrationv1.ParamKind,
	variables []admissionregistrationv1.Variable,
) (*compiler, error) {
	made, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("making the compiler: %w", err)
	}
	c := &compiler{
		CompositedCompiler: made,
		declared:           cel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true},
	}
	for _, v := range variables {
		result := c.CompileAndStoreVariable(
			&validating.Variable{Name: v.Name, Expression: v.Expression},
			c.declared,
			environment.StoredExpressions,
		)
		if result.Error != nil {
			c.errs = append(c.errs, fmt.Errorf("variable %s: %w", v.Name, result.Error))
		}
	}
	return c, nil
}

func (c *compiler) conditions(
	accessors []cel.ExpressionAccessor,
	declared cel.OptionalVariableDeclarations,
) cel.ConditionEvaluator {
	out := c.CompileCondition(accessors, declared, environment.StoredExpressions)
	c.errs = append(c.errs, out.CompilationErrors()...)
	return out
}

func (c *compiler) matcher(
	name string,
	conditions []admissionregistrationv1.MatchCondition,
	f *admissionregistrationv1.FailurePolicyType,
) matchconditions.Matcher {
	if len(conditions) == 0 {
		return nil
	}
	accessors := make([]cel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		accessors[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	return matchconditions.NewMatcher(c.conditions(accessors, c.declared), f, "policy", "validate", name)
}

func compileValidating(p *admissionregistrationv1.ValidatingAdmissionPolicy) (validating.Validator, error) {
	s := &p.Spec
	c, err := newCompiler(s.ParamKind, s.Variables)
	if err != nil {
		return validating.NewValidator(nil, nil, nil, nil, s.FailurePolicy, err), err
	}
	validations := make([]cel.ExpressionAccessor, len(s.Validations))
	messages := make([]cel.ExpressionAccessor, len(s.Validations))
	for i, v := range s.Validations {
		validations[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	annotations := make([]cel.ExpressionAccessor, len(s.AuditAnnotations))
	for i, a := range s.AuditAnnotations {
		annotations[i] = &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	inMessages := c.declared
	inMessages.HasAuthorizer = false
	out := validating.NewValidator(
		c.conditions(validations, c.declared),
		c.matcher(p.Name, s.MatchConditions, s.FailurePolicy),
		c.conditions(annotations, c.declared),
		c.conditions(messages, inMessages),
		s.FailurePolicy, nil)
	return out, errors.Join(c.errs...)
}

func compileMutating(p *admissionregistrationv1.MutatingAdmissionPolicy) (mutating.PolicyEvaluator, error) {
	s := &p.Spec
	c, err := newCompiler(s.ParamKind, s.Variables)
	if err != nil {
		return mutating.PolicyEvaluator{Error: err}, err
	}
	out := mutating.PolicyEvaluator{
		CompositedCompiler: c.CompositedCompiler,
		Matcher:            c.matcher(p.Name, s.MatchConditions, s.FailurePolicy),
	}
	declared := c.declared
	declared.HasPatchTypes = true
	for i, m := range s.Mutations {
		switch {
		case m.JSONPatch != nil:
			e := c.CompileMutatingEvaluator(
				&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression},
				declared,
				environment.StoredExpressions,
			)
			c.errs = append(c.errs, e.CompilationErrors()...)
			out.Mutators = append(out.Mutators, patch.NewJSONPatcher(e))
		case m.ApplyConfiguration != nil:
			e := c.CompileMutatingEvaluator(
				&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression},
				declared,
				environment.StoredExpressions,
			)
			c.errs = append(c.errs, e.CompilationErrors()...)
			out.Mutators = append(out.Mutators, patch.NewApplyConfigurationPatcher(e))
		default:
			c.errs = append(c.errs, fmt.Errorf("spec.mutations[%d] has neither jsonPatch nor applyConfiguration", i))
		}
	}
	return out, errors.Join(c.errs...)
}
