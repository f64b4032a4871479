// Package conversion has what all converters of policies share: the description of a source
// of policies, its results, and their form as YAML.
package conversion

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
)

// Source is a form of policies that is converted.
type Source struct {
	// Title names the policies, as in "Sources are ...".
	Title string
	// Kinds are those of the policies and of what belongs to them. The source converts every
	// object of the kinds, or leaves it out by name. An empty Kind is every kind of the group.
	Kinds []schema.GroupKind
	// WritesNative reports whether the project writes native policies from its own.
	WritesNative bool
	// NotIn is the first release of the project that does not execute the policies, such as
	// "Kyverno 1.20"; empty if all execute them.
	NotIn string
	// Convert converts objects. What cannot be read or expressed is left out in the result;
	// an error ends the command.
	Convert func(in *Input) ([]Conversion, error)
}

// Owns reports whether the source converts a kind.
func (s *Source) Owns(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.Kinds, func(k schema.GroupKind) bool {
		return k.Group == kind.Group && (k.Kind == "" || k.Kind == kind.Kind)
	})
}

// Input is what a source converts.
type Input struct {
	// Objects are those that the source owns, in the order of the input.
	Objects []load.Object
	// All are all objects of the input, for what policies refer to.
	All []load.Object
	// Sources are all that the conversion knows: some write policies for others.
	Sources []Source
	// Now is the current time.
	Now time.Time
	Options
}

// Options are the choices of the user.
type Options struct {
	// Params says what the parameters of Gatekeeper's constraints become.
	Params Params
}

// Params is what parameters of constraints become.
type Params string

const (
	// ParamsObject keeps constraints as the params of policies.
	ParamsObject Params = "object"
	// ParamsConstants writes parameters into the policies.
	ParamsConstants Params = "constants"
)

// Conversion is the result for one object.
type Conversion struct {
	// Source is the object.
	Source load.Object
	// Outputs are the policies that it becomes, and objects that they need.
	Outputs []*Output
	// Rows say what happened to each rule of the source. A source has at least one.
	Rows []Row
	// Original is the source as a native policy; nil if it is not written in CEL.
	Original *Original
}

// Outcome is what happened to a rule.
type Outcome string

const (
	// Converted is a rule with the same decisions.
	Converted Outcome = "converted"
	// Changed is a rule with a difference, which Detail states.
	Changed Outcome = "changed"
	// LeftOut is a rule that no result has. Detail says why.
	LeftOut Outcome = "left out"
)

// Row is the result for one rule of a source.
type Row struct {
	// Rule is the name or the field of the rule; empty is the whole object.
	Rule string
	// Field of the source, for the position; empty is Rule.
	Field string
	// At is the position if no field has it.
	At      load.Position
	Outcome Outcome
	// Detail is how the rule changed, or why it is left out.
	Detail string
	// Alternative is what the user can do instead.
	Alternative string
	// Output is the policy that contains the rule; nil if none does.
	Output *Output
	// Validations are the names of the validations that are the rule; empty if not all of
	// them have one.
	Validations []string
}

// Object is an object with a name and a kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Output is an object to write.
type Output struct {
	// Object with apiVersion and kind.
	Object Object
	// Of is the policy that an exception is from; nil for other objects.
	Of *Output
	// Origins are the objects whose comments, styles and order of fields it keeps. The first
	// is the source itself.
	Origins []Origin
	// Comments are comments at the end of the lines of fields, as
	// "spec.bindings[0].validationActions".
	Comments map[string]string
	// Background is the field of the source that asks to evaluate existing objects; empty if
	// none does.
	Background string
}

// Origin says that a field comes from a field of a source. Empty fields are whole objects.
type Origin struct {
	Field       string
	Source      *load.Object
	SourceField string
	// CommentsOnly means that the field has another form than that of the source, whose comments
	// are put before it. Those of the field Except are left out.
	CommentsOnly bool
	Except       string
}

// BindingName is the name of a binding for all requests of a policy.
const BindingName = "all"

// Policy returns the policy of the output; nil if it is another object.
func (o *Output) Policy() *v1alpha1.WebhookPolicy {
	p, _ := o.Object.(*v1alpha1.WebhookPolicy)
	return p
}

// NewPolicy returns an output with a policy without a spec, with the name, the labels and
// the annotations of its source.
func NewPolicy(source *load.Object, metadata metav1.ObjectMeta) *Output {
	p := &v1alpha1.WebhookPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"},
		ObjectMeta: Metadata(metadata),
	}
	return &Output{Object: p, Origins: []Origin{{Source: source}}}
}

// Add adds a row for a rule.
func (c *Conversion) Add(r Row) { c.Rows = append(c.Rows, r) }

// LeaveOut adds a row for a rule that no result has.
func (c *Conversion) LeaveOut(rule, why, alternative string) {
	c.Add(Row{Rule: rule, Outcome: LeftOut, Detail: why, Alternative: alternative})
}
