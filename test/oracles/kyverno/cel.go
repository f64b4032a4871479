package main

import (
	"context"
	"fmt"

	policiesv1beta1 "github.com/kyverno/api/api/policies.kyverno.io/v1beta1"
	celengine "github.com/kyverno/kyverno/pkg/cel/engine"
	"github.com/kyverno/kyverno/pkg/cel/libs"
	"github.com/kyverno/kyverno/pkg/cel/matching"
	mpolcompiler "github.com/kyverno/kyverno/pkg/cel/policies/mpol/compiler"
	mpolengine "github.com/kyverno/kyverno/pkg/cel/policies/mpol/engine"
	vpolcompiler "github.com/kyverno/kyverno/pkg/cel/policies/vpol/compiler"
	vpolengine "github.com/kyverno/kyverno/pkg/cel/policies/vpol/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kubectl-validate/pkg/openapiclient"
)

// schemas is the version of Kubernetes whose schemas merge patches; Kyverno has these built in.
const schemas = "1.32"

// celEngine decides with the CEL kinds, as pkg/webhooks/resource/vpol and mpol do.
type celEngine struct {
	context    libs.Context
	validating vpolengine.Engine
	mutating   mpolengine.Engine
}

func newCELEngine(in *input) (*celEngine, error) {
	objects := libs.NewFakeContextProvider()
	for _, c := range in.configMaps {
		if err := objects.AddResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, c); err != nil {
			return nil, fmt.Errorf("adding a ConfigMap: %w", err)
		}
	}
	e := &celEngine{context: objects}
	if len(in.validating) > 0 {
		provider, err := vpolengine.NewProvider(vpolcompiler.NewCompiler(), in.validating, in.celExceptions)
		if err != nil {
			return nil, fmt.Errorf("compiling validating policies: %w", err)
		}
		e.validating = vpolengine.NewEngine(provider, in.namespace, matching.NewMatcher())
	}
	if len(in.mutating) == 0 {
		return e, nil
	}
	provider, err := mpolengine.NewProvider(mpolcompiler.NewCompiler(), in.mutating, in.celExceptions, objects)
	if err != nil {
		return nil, fmt.Errorf("compiling mutating policies: %w", err)
	}
	e.mutating = mpolengine.NewEngine(
		provider,
		in.namespace,
		matching.NewMatcher(),
		mpolcompiler.NewStaticTypeConverterManager(openapiclient.NewHardcodedBuiltins(schemas)),
		objects,
	)
	return e, nil
}

func (e *celEngine) mutate(request *admissionv1.AdmissionRequest, d *decision) error {
	if e.mutating == nil {
		return nil
	}
	response, err := e.mutating.Handle(
		context.Background(),
		celengine.RequestFromAdmission(e.context, *request),
		mpolengine.And(
			mpolengine.NoTargetMatchConstraintPolicy(),
			func(p policiesv1beta1.MutatingPolicyLike) bool { return isFor(p, request) },
		),
	)
	if err != nil {
		return fmt.Errorf("evaluating mutating policies: %w", err)
	}
	for _, p := range response.Policies {
		d.addRules(p.Rules)
		for i := range p.Rules {
			if p.Rules[i].Status() == engineapi.RuleStatusError &&
				p.Policy.GetFailurePolicy(false) == admissionregistrationv1.Fail {
				d.Allowed = false
			}
		}
	}
	if !d.Allowed || response.PatchedResource == nil || request.Operation == admissionv1.Delete {
		return nil
	}
	raw, err := response.PatchedResource.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding the changed object: %w", err)
	}
	request.Object.Raw = raw
	return nil
}

func (e *celEngine) validate(request *admissionv1.AdmissionRequest, d *decision) error {
	if e.validating == nil {
		return nil
	}
	response, err := e.validating.Handle(
		context.Background(),
		celengine.RequestFromAdmission(e.context, *request),
		func(p policiesv1beta1.ValidatingPolicyLike) bool { return isFor(p, request) },
	)
	if err != nil {
		return fmt.Errorf("evaluating validating policies: %w", err)
	}
	for _, p := range response.Policies {
		d.addRules(p.Rules)
		if !p.Actions.Has(admissionregistrationv1.Deny) {
			continue
		}
		for i := range p.Rules {
			if s := p.Rules[i].Status(); s == engineapi.RuleStatusFail || s == engineapi.RuleStatusError {
				d.Allowed = false
			}
		}
	}
	return nil
}

// isFor reports whether the webhook of a request calls a policy: those with a namespace decide
// about requests in it.
func isFor(p metav1.Object, request *admissionv1.AdmissionRequest) bool {
	return p.GetNamespace() == "" || p.GetNamespace() == request.Namespace
}
