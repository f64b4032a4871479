// Package verify runs the tests of other projects on converted policies, and compares these
// with their sources.
package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1alpha1 "github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// Verifier compares converted policies with their sources. Its fields are what the program
// around it does: this package neither reads files nor knows how PolicyTests are evaluated.
type Verifier struct {
	// Read reads the objects of a file or a directory that a test names.
	Read func(ctx context.Context, path string) ([]load.Object, error)
	// Check runs a PolicyTest with one case on some objects. It returns how the result
	// differs from the expectation, and if it does not, the messages of failed validations.
	Check func(ctx context.Context, test load.Object, objects []load.Object) ([]Problem, []string, error)
	// Recorder returns a recorder for the evaluation of one request.
	Recorder func() Recorder
}

// Problem is a difference between a result and an expectation.
type Problem struct {
	Text string
	// Why are the parts of expressions that were false, and the expressions that failed.
	Why []string
}

// Recorder keeps what policies evaluate for a request.
type Recorder interface {
	Trace() policy.Trace
	// Why returns what made validations and match conditions false, or fail.
	Why(engine *offline.Engine) []string
	// Values returns the values of validations and match conditions.
	Values() []string
}

// Owns reports whether a kind is a test of another project.
func Owns(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: "cli.kyverno.io", Kind: "Test"} ||
		kind == schema.GroupKind{Group: "test.gatekeeper.sh", Kind: "Suite"}
}

// Result is the result of all tests of the input, or of a comparison.
type Result struct {
	Agree int `json:"agree"`
	Total int `json:"total"`
	// Effects are the compared decisions of sources that deny, warn, audit or change.
	Effects int `json:"effects,omitempty"`
	// Different are the assertions that do not agree.
	Different []Difference `json:"different,omitempty"`
	// Skipped are the assertions that cannot be evaluated.
	Skipped []Skip `json:"skipped,omitempty"`
	// Unreadable reports that a test or one of its files cannot be read.
	Unreadable bool `json:"unreadable,omitempty"`
	// Tests are the assertions as PolicyTests.
	Tests []*v1alpha1.PolicyTest `json:"-"`
}

// HasFindings reports whether something does not agree or cannot be read.
func (r *Result) HasFindings() bool { return r != nil && (len(r.Different) > 0 || r.Unreadable) }

// Difference is an assertion with another result.
type Difference struct {
	Position  load.Position `json:"position"`
	Assertion string        `json:"assertion"`
	Text      string        `json:"text"`
	// Why are the expressions that decided, with their values.
	Why []string `json:"why,omitempty"`
}

// Skip is an assertion that cannot be evaluated.
type Skip struct {
	Position  load.Position `json:"position"`
	Assertion string        `json:"assertion"`
	Why       string        `json:"why"`
}

// assertion is an expected result for one object.
type assertion struct {
	source  *load.Object
	field   string
	text    string
	outputs []*conversion.Output
	// validations are those that the assertion is about; empty is all.
	validations []string
	skipped     string
	fails       bool // a validation fails
	object      *load.Object
	old         *load.Object
	change      func(*v1alpha1.Case) // adds to the case
	// patched is the object after mutations; nil is unchanged.
	patched *load.Object
	mutates bool
	// counts are the wanted numbers of messages.
	counts []messageCount
	// objects are read besides: Namespaces, params.
	objects []load.Object
	// createdOnly is an UPDATE of a Test, which has no stored object that ratchets.
	createdOnly bool
}

// Tests evaluates the tests among some objects with converted policies.
func (v *Verifier) Tests(
	ctx context.Context,
	objects []load.Object,
	conversions []conversion.Conversion,
) (*Result, error) {
	known, err := newDefinitions(objects)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	for i := range objects {
		if !Owns(objects[i].GroupVersionKind().GroupKind()) {
			continue
		}
		f := &testReader{verifier: v, test: &objects[i], conversions: conversions, known: map[string][]load.Object{}}
		all, err := f.assertions(ctx)
		if err != nil {
			r.Unreadable = true
			r.skip(objects[i].At(""), "the test "+objects[i].Metadata.Name, err.Error())
			continue
		}
		for j := range all {
			v.addAssertion(ctx, r, &all[j], known)
		}
	}
	return r, ctx.Err()
}

func (f *testReader) assertions(ctx context.Context) ([]assertion, error) {
	if f.test.Kind == "Suite" {
		return f.suite(ctx)
	}
	return f.kyverno(ctx)
}

func (r *Result) skip(at load.Position, assertion, why string) {
	r.Skipped = append(r.Skipped, Skip{Position: at, Assertion: assertion, Why: why})
}

// addAssertion evaluates an assertion, and adds it to the result.
func (v *Verifier) addAssertion(ctx context.Context, r *Result, a *assertion, known *knownKinds) {
	at := a.source.At(a.field)
	if a.skipped == "" && len(a.outputs) == 0 {
		a.skipped = "the policy is left out"
	}
	if a.skipped != "" {
		r.skip(at, a.text, a.skipped)
		return
	}
	test := a.test(fmt.Sprintf("assertion-%d", len(r.Tests)+1))
	problems, err := v.run(ctx, a, test, known)
	if err != nil {
		r.skip(at, a.text, err.Error())
		return
	}
	if len(a.validations) == 0 && !a.createdOnly { // a PolicyTest is about whole policies
		r.Tests = append(r.Tests, test)
	}
	r.Total++
	if len(problems) == 0 {
		r.Agree++
		return
	}
	d := Difference{Position: at, Assertion: a.text}
	for _, p := range problems {
		d.Text = strings.TrimPrefix(d.Text+"; "+p.Text, "; ")
		d.Why = append(d.Why, p.Why...)
	}
	r.Different = append(r.Different, d)
}

// test returns the assertion as a PolicyTest.
func (a *assertion) test(name string) *v1alpha1.PolicyTest {
	t := &v1alpha1.PolicyTest{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	for _, o := range a.outputs {
		t.Policies = append(t.Policies, o.Object.GetName())
	}
	c := v1alpha1.Case{Name: a.text, Expect: v1alpha1.Expectation{Decision: v1alpha1.Allow}}
	if a.object != nil {
		c.Object = &runtime.RawExtension{Raw: a.object.Raw}
	}
	if a.old != nil {
		c.OldObject = &runtime.RawExtension{Raw: a.old.Raw}
	}
	if a.change != nil {
		a.change(&c)
	}
	switch {
	case a.fails:
		c.Expect.Decision = decisionOf(a.outputs)
	case a.mutates && a.patched != nil:
		c.Expect.Decision = v1alpha1.Mutate
		c.Expect.Object = &runtime.RawExtension{Raw: a.patched.Raw}
	}
	for i := range a.objects {
		if k := a.objects[i].Kind; k != "Namespace" && k != "CustomResourceDefinition" {
			c.Params = append(c.Params, runtime.RawExtension{Raw: a.objects[i].Raw})
		}
	}
	t.Cases = []v1alpha1.Case{c}
	return t
}

// decisionOf returns the decision of policies about a request that fails.
func decisionOf(outputs []*conversion.Output) v1alpha1.Decision {
	decision := v1alpha1.Audit
	for _, o := range outputs {
		for _, b := range o.Policy().Spec.EffectiveBindings() {
			switch {
			case slices.Contains(b.ValidationActions, admissionregistrationv1.Deny):
				return v1alpha1.Deny
			case slices.Contains(b.ValidationActions, admissionregistrationv1.Warn):
				decision = v1alpha1.Warn
			}
		}
	}
	return decision
}

// run runs the test of an assertion.
func (v *Verifier) run(
	ctx context.Context,
	a *assertion,
	t *v1alpha1.PolicyTest,
	known *knownKinds,
) ([]Problem, error) {
	raw, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding the test: %w", err)
	}
	read, err := load.Text(ctx, t.Name, raw)
	if err != nil {
		return nil, err
	}
	objects, err := known.neededBy(a)
	if err != nil {
		return nil, err
	}
	objects = append(objects, a.objects...)
	for _, o := range a.outputs {
		text, err := restrictPolicy(o, a.validations, a.createdOnly).YAML()
		if err != nil {
			return nil, err
		}
		policies, err := load.Text(ctx, o.Object.GetName(), text)
		if err != nil {
			return nil, err
		}
		objects = append(objects, policies...)
	}
	problems, messages, err := v.Check(ctx, read[0], objects)
	if err != nil || len(problems) > 0 {
		return problems, err
	}
	for _, want := range a.counts {
		if text := want.check(messages); text != "" {
			problems = append(problems, Problem{Text: text})
		}
	}
	return problems, nil
}

// testReader finds what a test refers to.
type testReader struct {
	verifier    *Verifier
	test        *load.Object
	conversions []conversion.Conversion
	known       map[string][]load.Object // by path
}

// file reads a file of the test.
func (f *testReader) file(ctx context.Context, field, name string) ([]load.Object, error) {
	if strings.Contains(name, "://") {
		return nil, f.test.Errorf(field, "%q is not a file: this command reads no URLs; save it in a file", name)
	}
	path := f.path(name)
	if known, ok := f.known[path]; ok {
		return known, nil
	}
	objects, err := f.verifier.Read(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("%w\n%w", f.test.Errorf(field, "reading the files of the test"), err)
	}
	f.known[path] = objects
	return objects, nil
}

func (f *testReader) path(name string) string {
	return filepath.Join(filepath.Dir(f.test.At("").File), name)
}

// files reads several files.
func (f *testReader) files(ctx context.Context, field string, names []string) ([]load.Object, error) {
	var out []load.Object
	for i, name := range names {
		objects, err := f.file(ctx, fmt.Sprintf("%s[%d]", field, i), name)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

// conversionsOf returns the conversions of objects in some files, or in directories.
func (f *testReader) conversionsOf(names []string) (out []conversion.Conversion) {
	for i := range f.conversions {
		file := filepath.Clean(f.conversions[i].Source.At("").File)
		if slices.ContainsFunc(names, func(name string) bool {
			path := f.path(name)
			return file == path || strings.HasPrefix(file, path+string(filepath.Separator))
		}) {
			out = append(out, f.conversions[i])
		}
	}
	return out
}

// restrictPolicy returns a policy with some of its validations, with all if none is named, and
// without ratchet for an UPDATE that has no stored object.
func restrictPolicy(o *conversion.Output, names []string, createdOnly bool) *conversion.Output {
	if len(names) == 0 && !createdOnly {
		return o
	}
	p := o.Policy().DeepCopy()
	p.Spec.Ratchet = p.Spec.Ratchet && !createdOnly
	p.Spec.Validations = slices.DeleteFunc(p.Spec.Validations, func(v policyv1alpha1.Validation) bool {
		return len(names) > 0 && !slices.Contains(names, v.Name)
	})
	return &conversion.Output{Object: p}
}

// validationsOf returns the names of the validations that are a rule, if one policy has them
// besides others.
func validationsOf(conversions []conversion.Conversion, rule string) []string {
	for _, c := range conversions {
		for _, row := range c.Rows {
			if row.Rule == rule && row.Output != nil && row.Output.Policy() != nil &&
				len(row.Validations) < len(row.Output.Policy().Spec.Validations) {
				return row.Validations
			}
		}
	}
	return nil
}

// outputsOf returns the policies of conversions that contain a rule. An empty rule is all.
func outputsOf(conversions []conversion.Conversion, rule string) (out []*conversion.Output) {
	for _, c := range conversions {
		for _, row := range c.Rows {
			o := row.Output
			if o != nil && o.Policy() != nil && (rule == "" || row.Rule == "" || row.Rule == rule) &&
				!slices.Contains(out, o) {
				out = append(out, o)
			}
		}
	}
	return out
}
