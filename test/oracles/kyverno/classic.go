package main

import (
	"context"
	"fmt"
	"slices"

	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/engine/policycontext"
	"github.com/kyverno/kyverno/pkg/exceptions"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	engineutils "github.com/kyverno/kyverno/pkg/utils/engine"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// classicEngine decides with ClusterPolicies and Policies, as pkg/webhooks/resource does.
type classicEngine struct {
	input         *input
	configuration config.Configuration
	jmespath      jmespath.Interface
	engine        engineapi.Engine
}

func newClassicEngine(in *input) *classicEngine {
	configuration := config.NewDefaultConfiguration(false)
	functions := jmespath.New(configuration)
	isCluster := false
	return &classicEngine{
		input:         in,
		configuration: configuration,
		jmespath:      functions,
		engine: engine.NewEngine(
			configuration,
			functions,
			&in.api,
			nil, // image registries
			imageverifycache.DisabledImageVerifyCache(),
			factories.DefaultContextLoaderFactory(in, factories.WithGlobalContextStore(&globalContext{in, functions})),
			exceptions.New(in),
			&isCluster,
		),
	}
}

// context returns what the engine reads about a request.
func (c *classicEngine) context(request *admissionv1.AdmissionRequest) (*policycontext.PolicyContext, error) {
	out, err := engine.NewPolicyContextFromAdmissionRequest(
		c.jmespath,
		*request,
		kyvernov2.RequestInfo{AdmissionUserInfo: request.UserInfo},
		schema.GroupVersionKind(request.Kind),
		c.configuration,
	)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if request.Kind.Kind != "Namespace" && request.Namespace != "" {
		out = out.WithNamespaceLabels(c.input.namespace(request.Namespace).Labels)
	}
	return out, nil
}

// mutate changes the object of the request.
func (c *classicEngine) mutate(request *admissionv1.AdmissionRequest, d *decision) error {
	current, err := c.context(request)
	if err != nil {
		return err
	}
	failurePolicy := kyvernov1.Ignore // that of the policies so far, as in Kyverno
	for _, p := range c.input.classic {
		if !p.GetSpec().HasMutateStandard() || !isRegistered(p, request.Operation) {
			continue
		}
		if p.GetSpec().GetFailurePolicy(context.Background()) == kyvernov1.Fail {
			failurePolicy = kyvernov1.Fail
		}
		asked := current.WithPolicy(p)
		response := c.engine.Mutate(context.Background(), asked)
		d.add(&response)
		if !response.IsSuccessful() {
			if engineutils.BlockRequest(response, failurePolicy) {
				d.Allowed = false
				return nil
			}
		} else if len(response.GetPatches()) > 0 && request.Operation != admissionv1.Delete { // it has no object
			raw, err := response.PatchedResource.MarshalJSON()
			if err != nil {
				return fmt.Errorf("encoding the changed object: %w", err)
			}
			request.Object.Raw = raw
		}
		current = asked.WithNewResource(response.PatchedResource)
		if err := current.JSONContext().AddResource(response.PatchedResource.Object); err != nil {
			return fmt.Errorf("passing the changed object on: %w", err)
		}
	}
	return nil
}

// isRegistered reports whether the mutating webhook is registered for an operation: by default
// for CREATE and UPDATE, by the rules that mutate.
func isRegistered(p kyvernov1.PolicyInterface, operation admissionv1.Operation) bool {
	if operation == admissionv1.Create || operation == admissionv1.Update {
		return true
	}
	named := func(d kyvernov1.ResourceDescription) bool {
		return slices.Contains(d.Operations, kyvernov1.AdmissionOperation(operation))
	}
	for _, r := range p.GetSpec().Rules {
		if !r.HasMutateStandard() {
			continue
		}
		m := r.MatchResources
		if named(m.ResourceDescription) ||
			slices.ContainsFunc(
				slices.Concat(m.Any, m.All),
				func(f kyvernov1.ResourceFilter) bool { return named(f.ResourceDescription) },
			) {
			return true
		}
	}
	return false
}

// validate denies the request if a rule fails.
func (c *classicEngine) validate(request *admissionv1.AdmissionRequest, d *decision) error {
	current, err := c.context(request)
	if err != nil {
		return err
	}
	failurePolicy := kyvernov1.Ignore
	var responses []engineapi.EngineResponse
	for _, p := range c.input.classic {
		if !p.GetSpec().HasValidate() {
			continue
		}
		if p.GetSpec().GetFailurePolicy(context.Background()) == kyvernov1.Fail {
			failurePolicy = kyvernov1.Fail
		}
		response := c.engine.Validate(context.Background(), current.WithPolicy(p))
		if response.IsNil() {
			continue
		}
		d.add(&response)
		responses = append(responses, response)
	}
	d.Allowed = !slices.ContainsFunc(responses, func(r engineapi.EngineResponse) bool {
		return engineutils.BlockRequest(r, failurePolicy)
	})
	return nil
}

// add adds the messages of rules that are not satisfied.
func (d *decision) add(response *engineapi.EngineResponse) {
	d.addRules(response.PolicyResponse.Rules)
}

func (d *decision) addRules(rules []engineapi.RuleResponse) {
	for i := range rules {
		r := &rules[i]
		switch r.Status() {
		case engineapi.RuleStatusError:
			d.Failed = true
		case engineapi.RuleStatusFail, engineapi.RuleStatusWarn:
		default:
			continue
		}
		d.Messages = append(d.Messages, fmt.Sprintf("%s %s: %s", r.Status(), r.Name(), r.Message()))
	}
}
