package policytest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// maxRepeat is the maximum of repeat.
const maxRepeat = 10_000

// Case is a case that is ready to run.
type Case struct {
	*v1alpha1.Case
	// Request is what the API server sends.
	Request *admissionv1.AdmissionRequest
	// World has what the policies read.
	World *offline.World
	// Version is that of the API server to simulate.
	Version policy.Engine

	suite  *Suite
	field  string
	golden string // path of objectFile
}

// Position returns the position of a field of the case; "" is its name.
func (c *Case) Position(field string) load.Position {
	if field == "" {
		field = "name"
	}
	return c.suite.Source.At(c.field + "." + field)
}

// String is "test/case".
func (c *Case) String() string { return c.suite.Name + "/" + c.Name }

func (s *Suite) loadCases() error {
	var errs []error
	for i := range s.PolicyTest.Cases {
		c := &Case{Case: &s.PolicyTest.Cases[i], suite: s, field: fmt.Sprintf("cases[%d]", i)}
		if err := c.prepare(); err != nil {
			errs = append(errs, err)
			continue
		}
		s.Cases = append(s.Cases, c)
	}
	return errors.Join(errs...)
}

// prepare makes the request and the world of the case.
func (c *Case) prepare() error {
	var err error
	field, text := c.field+".kubernetesVersion", c.KubernetesVersion
	if text == "" {
		field, text = "kubernetesVersion", c.suite.KubernetesVersion
	}
	if c.Version, err = c.suite.version(field, text); err != nil {
		return err
	}
	if c.Repeat < 0 || c.Repeat > maxRepeat {
		return c.suite.Source.Errorf(c.field+".repeat", "want 0 to %d, got %d", maxRepeat, c.Repeat)
	}
	if err := c.checkExpectation(); err != nil {
		return err
	}
	engine, err := c.suite.engine(c.Version)
	if err != nil {
		return err
	}
	if err := c.makeRequest(engine.APIs); err != nil {
		return err
	}
	return c.makeWorld(engine.APIs)
}

func (c *Case) checkExpectation() error { //nolint:cyclop // a table of rules
	e := &c.Expect
	at := func(field, format string, args ...any) error {
		return c.suite.Source.Errorf(c.field+".expect"+field, format, args...)
	}
	decisions := []v1alpha1.Decision{
		v1alpha1.Allow, v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit, v1alpha1.Mutate, v1alpha1.Excepted, v1alpha1.Error,
	}
	if !slices.Contains(decisions, e.Decision) {
		return at(".decision", "want Allow, Deny, Warn, Audit, Mutate, Excepted or Error, got %q", e.Decision)
	}
	hasObject := e.Object != nil || e.ObjectFile != ""
	saysMore := hasObject || e.Warnings != nil || e.Validations != nil || e.AuditAnnotations != nil
	for _, f := range []struct {
		field   string
		invalid bool
		text    string
	}{
		{".reason", e.Decision != v1alpha1.Deny && e.Reason != "", "only a Deny has a reason"},
		{".code", e.Decision != v1alpha1.Deny && e.Code != 0, "only a Deny has a code"},
		{".causes", e.Decision != v1alpha1.Deny && e.Causes != nil, "only a Deny has causes"},
		{".object", e.Decision == v1alpha1.Deny && hasObject, "a Deny has no resulting object"},
		{".decision", e.Decision == v1alpha1.Error && saysMore, "an Error has only a message"},
		{".objectFile", e.Object != nil && e.ObjectFile != "", "set either object or objectFile"},
		{".objectFile", e.ObjectFile != "" && !load.IsManifest(e.ObjectFile), "the name needs the extension .yaml, .yml or .json"},
		{".objectFile", e.ObjectFile != "" && c.suite.bounds.golden == "", "this test cannot name files: use object"},
		{".message", e.Message != "" && !hasMessage(e.Decision), "only Deny, Warn, Audit and Error have a message"},
	} {
		if f.invalid {
			return at(f.field, "%s", f.text)
		}
	}
	if e.ObjectFile != "" {
		c.golden = filepath.Join(filepath.Dir(c.suite.Source.At("").File), e.ObjectFile)
	}
	return nil
}

// hasMessage reports whether a case with a decision has a message.
func hasMessage(d v1alpha1.Decision) bool {
	return d != v1alpha1.Allow && d != v1alpha1.Mutate && d != v1alpha1.Excepted
}

// part returns an object of the case; nil if it is absent.
func (c *Case) part(raw *runtime.RawExtension, field string) (*load.Object, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // an absent object is no error
	}
	return c.suite.Source.New(raw.Raw, c.field+"."+field)
}

func (c *Case) makeRequest(apis *offline.APIs) error {
	object, err := c.part(c.Object, "object")
	if err != nil {
		return err
	}
	old, err := c.part(c.OldObject, "oldObject")
	if err != nil {
		return err
	}
	if object == nil && old == nil {
		return c.suite.Source.Errorf(c.field, "the case has neither object nor oldObject: add one")
	}
	c.Request, err = apis.NewRequest(object, old, offline.RequestOptions{
		Operation: admissionv1.Operation(c.Operation), Subresource: c.Subresource, Resource: c.Resource, DryRun: c.DryRun,
		User: authenticationv1.UserInfo{Username: c.User, Groups: c.Groups, Extra: c.Extra},
	})
	return err
}

// objects returns the objects that the policies read.
func (c *Case) objects(apis *offline.APIs) ([]load.Object, error) {
	out := slices.Clone(c.suite.input.Objects)
	for i := range c.Params {
		o, err := c.part(&c.Params[i], fmt.Sprintf("params[%d]", i))
		if err != nil {
			return nil, err
		}
		out = append(out, *o)
	}
	for i := range c.Objects {
		o, err := c.part(&c.Objects[i], fmt.Sprintf("objects[%d]", i))
		if err != nil {
			return nil, err
		}
		if err := apis.CheckKind(o.GroupVersionKind()); err != nil {
			return nil, o.Errorf("kind", "%v", err)
		}
		out = append(out, *o)
	}
	return out, nil
}

func (c *Case) makeWorld(apis *offline.APIs) error {
	objects, err := c.objects(apis)
	if err != nil {
		return err
	}
	namespaces := c.suite.input.Namespaces
	if c.Namespace != nil {
		if c.Request.Namespace == "" {
			return c.suite.Source.Errorf(c.field+".namespace", "%s are cluster-scoped: remove namespace", c.Request.Resource.Resource)
		}
		namespaces = append(slices.Clone(namespaces), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Request.Namespace, Labels: c.Namespace.Labels, Annotations: c.Namespace.Annotations}})
	}
	for i, a := range c.Authorizer {
		if !slices.Contains([]offline.AnswerDecision{offline.Allow, offline.Deny, offline.NoOpinion, offline.Error}, a.Decision) {
			return c.suite.Source.Errorf(fmt.Sprintf("%s.authorizer[%d].decision", c.field, i), "want Allow, Deny, NoOpinion or Error, got %q", a.Decision)
		}
	}
	images, err := c.images()
	c.World = offline.NewWorld(apis, namespaces, objects, offline.Answers(c.Authorizer))
	c.World.AddImages(images)
	c.World.StopClock()
	c.World.AddExceptions(c.suite.input.Exceptions)
	switch {
	case c.At != nil:
		c.World.SetTime(c.At.Time)
	case !c.suite.at.IsZero():
		c.World.SetTime(c.suite.at)
	}
	return err
}

// images returns the answers of the backends of plugins. Each answer is for a policy with a
// backend.
func (c *Case) images() (offline.ImageAnswers, error) {
	out := offline.ImageAnswers{}
	for i, b := range c.Backends {
		p := slices.IndexFunc(c.suite.policies, func(p offline.Policy) bool { return p.Name == b.Policy })
		if p >= 0 && c.suite.policies[p].Spec.Backend != nil {
			continue // see backend
		}
		at, asks := pluginapi.SecretKey{}, false
		if p >= 0 {
			at, asks = plugins.BackendOf(c.suite.policies[p].WebhookPolicy)
		}
		if !asks {
			return nil, c.suite.Source.Errorf(fmt.Sprintf("%s.backends[%d].policy", c.field, i), "the test has no policy %q with a backend", b.Policy)
		}
		out[at] = imagepolicyv1alpha1.ImageReviewStatus{Allowed: b.Allowed, Reason: b.Message}
	}
	return out, nil
}

// backend returns the answer for a backend.
func (c *Case) backend(name string) *admissionv1.AdmissionResponse {
	i := slices.IndexFunc(c.Backends, func(b v1alpha1.BackendAnswer) bool { return b.Policy == name })
	if i < 0 {
		return nil
	}
	answer := c.Backends[i]
	out := &admissionv1.AdmissionResponse{Allowed: answer.Allowed, Warnings: answer.Warnings}
	if !answer.Allowed {
		out.Result = &metav1.Status{Status: metav1.StatusFailure, Message: answer.Message, Reason: metav1.StatusReasonForbidden, Code: 403,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: answer.Message}}}}
	}
	return out
}

// Problem is a difference between the result and the expectation.
type Problem struct {
	// Field of the case.
	Field string `json:"field"`
	Text  string `json:"text"`
	// Why are the parts of expressions that were false, and the expressions that failed.
	Why []string `json:"why,omitempty"`
}

// Evaluate returns the result of the request of the case.
func (c *Case) Evaluate(ctx context.Context) (*offline.Result, error) {
	return c.run(ctx, nil, policy.Trace{})
}

// Check runs the case, and returns how its result differs from the expectation. A
// difference without an expression that was false has the values of all.
func (c *Case) Check(ctx context.Context) ([]Problem, *offline.Result, error) {
	var recorder explain.Recorder
	problems, result, err := c.check(ctx, nil, recorder.Trace(), false)
	if len(problems) > 0 && len(problems[0].Why) == 0 {
		problems[0].Why = recorder.Values()
	}
	return problems, result, err
}

// run runs the case with an engine; nil is the engine of its suite.
func (c *Case) run(ctx context.Context, engine *offline.Engine, trace policy.Trace) (*offline.Result, error) {
	var err error
	if engine == nil {
		engine, err = c.suite.engine(c.Version)
	}
	if err == nil && c.Repeat > 0 { // with a state of its own
		engine, err = c.suite.newEngine(c.Version, c.suite.policies)
	}
	if err != nil {
		return nil, err
	}
	options := offline.Options{Backend: c.backend}
	for range c.Repeat {
		if _, err := engine.Evaluate(ctx, c.Request, c.World, options); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Position(""), err)
		}
	}
	result, err := engine.Evaluate(policy.WithTrace(ctx, trace), c.Request, c.World, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Position(""), err)
	}
	return result, nil
}

// check runs the case and compares its result.
func (c *Case) check(ctx context.Context, engine *offline.Engine, trace policy.Trace, update bool) ([]Problem, *offline.Result, error) {
	var failures []failure
	var failed []string // names of validations
	var recorder explain.Recorder
	recorded := recorder.Trace()
	invoked, evaluated := trace.Invocation, trace.Expression
	trace.Expression = func(e policy.Evaluated) {
		recorded.Expression(e)
		if evaluated != nil {
			evaluated(e)
		}
	}
	trace.Exception = recorded.Exception
	trace.Invocation = func(i policy.Invoked) {
		failures = append(failures, failuresOf(i)...)
		failed = append(failed, failedValidations(i)...)
		if invoked != nil {
			invoked(i)
		}
	}
	result, err := c.run(ctx, engine, trace)
	if err != nil {
		return nil, nil, err
	}
	if update && c.golden != "" && result.Allowed {
		if err := c.writeGolden(result.Object); err != nil {
			return nil, nil, err
		}
	}
	problems, err := c.compare(ctx, result, failures, failed)
	if len(problems) > 0 && err == nil {
		var used *offline.Engine
		if used, err = c.suite.engine(c.Version); err == nil {
			problems[0].Why = recorder.Why(used)
		}
		if err == nil && len(problems[0].Why) == 0 {
			problems[0].Why, err = c.mismatches(ctx, used, result)
		}
	}
	return problems, result, err
}

// mismatches returns why policies are not evaluated for the request: the rule, the selector or
// the binding that excludes it.
func (c *Case) mismatches(ctx context.Context, engine *offline.Engine, result *offline.Result) (out []string, err error) {
	for _, p := range c.suite.policies {
		if slices.ContainsFunc(result.Outcomes, func(o offline.Outcome) bool { return o.Policy == p.Name && o.Decision != policy.DecisionUnmatched }) {
			continue
		}
		why, err := engine.Mismatch(ctx, p.Name, c.Request, c.World)
		if err != nil {
			return nil, err
		}
		if why != "" {
			out = append(out, p.Name+" is not evaluated: "+why)
		}
	}
	return out, nil
}

func (c *Case) writeGolden(object []byte) error {
	text, err := yaml.JSONToYAML(object)
	if err != nil {
		return fmt.Errorf("encoding the object: %w", err)
	}
	if err := c.suite.bounds.golden.WriteFile(c.golden, text); err != nil {
		return fmt.Errorf("%s: writing the object: %w", c.Position("expect.objectFile"), err)
	}
	return nil
}
