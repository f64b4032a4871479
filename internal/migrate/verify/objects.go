package verify

import (
	"context"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// comparison compares decisions about some requests.
type comparison struct {
	recorder func() Recorder
	apis     *offline.APIs
	world    *offline.World
	native   *nativeCluster
	compiler *policy.Compiler
	requests []namedRequest
	result   Result
}

// namedRequest is a request for one of the objects.
type namedRequest struct {
	*admissionv1.AdmissionRequest
	text string
}

// Objects compares the decisions of the sources in CEL with those of their results, when
// each object is created, updated without a change, and deleted. The engine of the API
// server evaluates the sources.
func (v *Verifier) Objects(
	ctx context.Context,
	input,
	objects []load.Object,
	conversions []conversion.Conversion,
) (*Result, error) {
	c, err := newComparison(input, objects, conversions)
	if err != nil {
		return nil, err
	}
	c.recorder = v.Recorder
	for i := range conversions {
		if err := c.source(ctx, &conversions[i]); err != nil {
			return nil, err
		}
	}
	return &c.result, ctx.Err()
}

func newComparison(input, objects []load.Object, conversions []conversion.Conversion) (*comparison, error) {
	known, err := newDefinitions(slices.Concat(input, objects))
	if err != nil {
		return nil, err
	}
	a := assertion{} // for the definitions of other kinds
	for i := range conversions {
		a.outputs = append(a.outputs, outputsOf(conversions[i:i+1], "")...)
	}
	for i := range objects {
		a.object = &objects[i]
		found, err := known.neededBy(&a)
		if err != nil {
			return nil, err
		}
		a.objects = append(a.objects, found[len(known.input):]...)
	}
	in, err := offline.Sort(slices.Concat(input, objects, a.objects))
	if err != nil {
		return nil, err
	}
	c := &comparison{compiler: policy.NewTracingCompiler(policy.LatestEngine)}
	if c.apis, err = offline.NewAPIs(policy.LatestEngine, in.Definitions); err != nil {
		return nil, err
	}
	c.world = offline.NewWorld(c.apis, in.Namespaces, in.Objects, offline.Answers(nil))
	c.native = &nativeCluster{apis: c.apis, namespaces: everyNamespace{c.world}, objects: in.Objects}
	err = c.addRequests(objects)
	return c, err
}

func (c *comparison) addRequests(objects []load.Object) error {
	for i := range objects {
		o := &objects[i]
		for _, ask := range []struct{ object, old *load.Object }{{o, nil}, {o, o}, {nil, o}} {
			r, err := c.apis.NewRequest(ask.object, ask.old, offline.RequestOptions{})
			if err != nil {
				return err
			}
			c.requests = append(c.requests, namedRequest{r, fmt.Sprintf("%s %s", r.Operation, o)})
		}
	}
	return nil
}

// source compares one source with its result. The report has the parts that are left out.
func (c *comparison) source(ctx context.Context, from *conversion.Conversion) error {
	results := outputsOf([]conversion.Conversion{*from}, "")
	if len(results) == 0 {
		return nil
	}
	skip := func(why string) error {
		c.result.skip(from.Source.At(""), from.Source.String(), why)
		return nil
	}
	original := from.Original
	switch {
	case original == nil:
		return skip("only sources in CEL are compared")
	case original.Unlike != "":
		return skip(original.Unlike)
	case original.Param != nil && results[0].Policy().Spec.ParamKind != nil:
		return skip("its params are the constraint: compare the result of --params constants")
	case slices.ContainsFunc(
		conversion.Expressions(&results[0].Policy().Spec),
		func(text string) bool { return celtext.Reads(text, "authorizer") },
	):
		return skip("it asks the authorizer: write a PolicyTest with its answers")
	}
	before, err := c.native.compile(original)
	if err != nil {
		return skip("its expressions are not those of Kubernetes: " + err.Error())
	}
	p := results[0].Policy().DeepCopy()
	p.UID = types.UID(p.Name)
	after, err := offline.NewEngine([]offline.Policy{{WebhookPolicy: p, Source: from.Source}}, c.compiler, c.apis)
	if err != nil {
		return skip(err.Error())
	}
	pair := &comparedPair{comparison: c, from: from, policy: p, before: before, after: after}
	workloads := 0
	for _, r := range c.requests {
		if isWorkload(p, r) {
			workloads++
			continue
		}
		if err := pair.compare(ctx, r); err != nil {
			return err
		}
	}
	if workloads > 0 {
		return skip(
			fmt.Sprintf(
				"%d requests about workloads: Kyverno decides about them with rules that it generates",
				workloads,
			),
		)
	}
	return nil
}

// isWorkload reports whether a policy is evaluated on the pod template of the object.
func isWorkload(p *v1alpha1.WebhookPolicy, r namedRequest) bool {
	return p.Spec.PodTemplates != nil &&
		slices.ContainsFunc(p.Spec.PodTemplates.Kinds, func(k v1alpha1.PodTemplateKind) bool {
			return k.Resource == r.Resource.Resource
		})
}

// comparedPair is a source and its result.
type comparedPair struct {
	*comparison
	from   *conversion.Conversion
	policy *v1alpha1.WebhookPolicy
	before *nativePolicy
	after  *offline.Engine
}

// compare compares the decisions about a request that one of the two evaluates.
func (p *comparedPair) compare(ctx context.Context, r namedRequest) error {
	skip := func(err error) { p.result.skip(p.from.Source.At(""), p.from.Source.String()+", "+r.text, err.Error()) }
	want, evaluated, err := p.before.evaluate(ctx, r.AdmissionRequest)
	if err != nil {
		skip(err)
		return nil
	}
	recorder := p.recorder()
	got, err := p.after.Evaluate(
		policy.WithTrace(ctx, recorder.Trace()),
		r.AdmissionRequest,
		p.world,
		offline.Options{},
	)
	if err != nil {
		return err
	}
	for _, o := range got.Outcomes {
		if o.Err != nil {
			skip(o.Err)
			return nil //nolint:nilerr // it is in the result
		}
		evaluated = evaluated || o.Decision != policy.DecisionUnmatched && o.Decision != policy.DecisionSkip
	}
	if !evaluated {
		return nil
	}
	p.result.Total++
	source, err := decisionText(p.from.Source.Metadata.Name+"/", p.policy, r.Object.Raw, want)
	if err != nil {
		return err
	}
	if source != withoutEffect {
		p.result.Effects++
	}
	result, err := decisionText(p.policy.Name+".", p.policy, r.Object.Raw, got)
	if err != nil {
		return err
	}
	if source == result {
		p.result.Agree++
		return nil
	}
	why, err := p.why(ctx, r, recorder)
	p.result.Different = append(p.result.Different, Difference{
		Position:  p.from.Source.At(""),
		Assertion: p.from.Source.String() + ", " + r.text,
		Text:      fmt.Sprintf("the source %s, and the result %s", source, result),
		Why:       why,
	})
	return err
}

// why returns the expressions of the result that decided, or why it is not evaluated.
func (p *comparedPair) why(ctx context.Context, r namedRequest, recorder Recorder) ([]string, error) {
	if why := recorder.Why(p.after); len(why) > 0 {
		return why, nil
	}
	if values := recorder.Values(); len(values) > 0 {
		return values, nil
	}
	why, err := p.after.Mismatch(ctx, p.policy.Name, r.AdmissionRequest, p.world)
	if why == "" || err != nil {
		return nil, err
	}
	return []string{p.policy.Name + " is not evaluated: " + why}, nil
}
