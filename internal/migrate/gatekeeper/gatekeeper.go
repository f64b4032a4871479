package gatekeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Source returns the conversion of constraints with their templates, and of mutators.
func Source() conversion.Source {
	return conversion.Source{
		Title: "Gatekeeper's mutators, and its constraints whose templates are in CEL or of its public library",
		Kinds: []schema.GroupKind{
			{Group: templatesGroup, Kind: "ConstraintTemplate"},
			{Group: constraintsGroup},
			{Group: mutationsGroup},
			{Group: expansionGroup},
		},
		WritesNative: true,
		Convert:      convertObjects,
	}
}

// templateDefinition is a template of the input.
type templateDefinition struct {
	constraintTemplate
	object load.Object
	source *celSource
	// field is the place of the source in the template; empty if the CEL is not in the template.
	field string
	// public is the template of the public library that it is, in a version; nil if it is none, or is in CEL.
	public  *publicTemplate
	version string
	// failed is why the template cannot be converted, and what to do instead.
	failed, alternative string
	used                bool
	reported            bool // it has a conversion of its own
}

func convertObjects(in *conversion.Input) ([]conversion.Conversion, error) {
	resources, err := newResources(in.All)
	if err != nil {
		return nil, err
	}
	public, err := publicTemplates()
	if err != nil {
		return nil, err
	}
	definitions, out := definitionsOf(in, public)
	for i := range in.Objects {
		o := in.Objects[i]
		c := conversion.Conversion{Source: o}
		switch o.GroupVersionKind().Group {
		case templatesGroup:
			continue
		case constraintsGroup:
			convertConstraint(&c, definitions[o.Kind], in.Params, resources)
		case mutationsGroup:
			convertMutator(&c, resources)
		default:
			c.LeaveOut("", "Ostiary expands no objects", "use podTemplates in the policies")
		}
		out = append(out, c)
	}
	for _, d := range definitions {
		c := conversion.Conversion{Source: d.object}
		switch {
		case d.reported:
			continue
		case d.failed != "":
			c.LeaveOut("spec.targets", d.failed, d.alternative)
		case !d.used:
			d.judgeUnused(&c, resources)
		default:
			continue
		}
		out = append(out, c)
	}
	place := make(map[string]int, len(in.Objects))
	for i := range in.Objects {
		place[in.Objects[i].String()] = i
	}
	slices.SortStableFunc(out, func(a, b conversion.Conversion) int {
		return place[a.Source.String()] - place[b.Source.String()]
	})
	return out, nil
}

// definitionsOf returns the templates by the kinds that they define, and conversions of
// those that cannot be read.
func definitionsOf(
	in *conversion.Input,
	public []publicTemplate,
) (map[string]*templateDefinition, []conversion.Conversion) {
	out := map[string]*templateDefinition{}
	var left []conversion.Conversion
	for i := range in.Objects {
		if in.Objects[i].GroupVersionKind().Group != templatesGroup {
			continue
		}
		d := &templateDefinition{object: in.Objects[i]}
		c := conversion.Conversion{Source: d.object}
		if c.Decode(&d.constraintTemplate) {
			d.read(public)
		} else {
			left = append(left, c)
			d.failed, d.alternative, d.reported = "it cannot be read", "correct it", true
		}
		kind := d.Spec.CRD.Spec.Names.Kind
		if earlier := out[kind]; earlier != nil && !earlier.reported {
			left = append(left, earlier.replaced())
		}
		out[kind] = d
	}
	return out, left
}

// replaced says that another template defines the same kind.
func (d *templateDefinition) replaced() conversion.Conversion {
	c := conversion.Conversion{Source: d.object}
	if d.failed != "" {
		c.LeaveOut("spec.targets", d.failed, d.alternative)
		return c
	}
	c.LeaveOut(
		"spec.crd.spec.names.kind",
		"a later ConstraintTemplate of the input defines the kind too, and its constraints use that one",
		"remove one of them",
	)
	return c
}

// read finds the source for CEL.
func (d *templateDefinition) read(public []publicTemplate) {
	if len(d.Spec.Targets) != 1 {
		d.failed = fmt.Sprintf("a template has one target, got %d", len(d.Spec.Targets))
		d.alternative = "correct the field"
		return
	}
	codes := d.Spec.Targets[0].Code
	at := slices.IndexFunc(codes, func(c templateCode) bool { return c.Engine == engineCEL })
	if at < 0 {
		d.takePublic(public)
		return
	}
	field := fmt.Sprintf("spec.targets[0].code[%d].source", at)
	d.source, d.field = &celSource{}, field
	unknown, err := load.DecodeKnown(codes[at].Source, d.source)
	switch {
	case err != nil:
		d.failed, d.alternative = fmt.Sprintf("%s: %v", field, err), "correct the field"
	case len(unknown) > 0:
		d.failed = fmt.Sprintf(
			"this command does not know the field %s.%s, so the effect of the template is not known",
			field,
			unknown[0],
		)
		d.alternative = "correct or remove the field"
	}
}

// convertConstraint converts a constraint.
func convertConstraint(
	c *conversion.Conversion,
	d *templateDefinition,
	params conversion.Params,
	resources *resourceFinder,
) {
	k := &gatekeeperConstraint{}
	if !c.Decode(k) {
		return
	}
	switch {
	case d == nil:
		c.LeaveOut("kind", "the input has no ConstraintTemplate of the kind "+k.Kind, "add its file with -f")
		return
	case d.failed != "":
		c.LeaveOut("", fmt.Sprintf("the ConstraintTemplate %s is left out", d.Name), d.alternative)
		d.used = true
		return
	}
	d.used = true
	b := &builder{
		Conversion: c,
		constraint: k,
		definition: d,
		from:       &k.Spec.Match,
		operations: d.Spec.Targets[0].Operations,
		resources:  resources,
	}
	b.output = conversion.NewPolicy(&c.Source, k.ObjectMeta)
	b.output.Origins = []conversion.Origin{{Field: "metadata", Source: &c.Source, SourceField: "metadata"}}
	b.policy = b.output.Policy()
	b.spec()
	b.match()
	b.actions()
	b.noteRounding()
	err := b.parameters(params)
	if d.public == nil {
		err = errors.Join(err, b.original())
	}
	if err != nil {
		c.LeaveOutInvalid(err)
		return
	}
	b.finish()
}

// builder makes the policy for one constraint or mutator.
type builder struct {
	*conversion.Conversion
	constraint *gatekeeperConstraint
	definition *templateDefinition
	from       *requestMatch
	operations []admissionregistrationv1.OperationType
	// versions are those of the kinds; empty is all.
	versions  []string
	mutates   bool
	resources *resourceFinder
	output    *conversion.Output
	policy    *v1alpha1.WebhookPolicy
	changes   []conversion.Row
	failed    bool
}

func (b *builder) leaveOut(field, why, alternative string) {
	b.failed = true
	b.LeaveOut(field, why, alternative)
}

func (b *builder) change(field, how string) {
	b.changes = append(
		b.changes,
		conversion.Row{Rule: field, Outcome: conversion.Changed, Detail: how, Output: b.output},
	)
}

func (b *builder) finish() {
	if b.failed {
		return
	}
	if conversion.NamesCriticalResources(b.policy) {
		b.policy.Spec.AllowCriticalResources = true
	}
	b.Outputs = append(b.Outputs, b.output)
	if len(b.changes) == 0 {
		b.Add(conversion.Row{Outcome: conversion.Converted, Detail: b.origin(), Output: b.output})
	}
	b.Rows = append(b.Rows, b.changes...)
}

// origin says where the CEL comes from if the source has none.
func (b *builder) origin() string {
	if b.definition == nil || b.definition.public == nil {
		return ""
	}
	return fmt.Sprintf(
		"the Rego is that of version %s of the public library: the policy has CEL with the same decisions, and other messages",
		b.definition.version,
	)
}

// anyObject is the expression of the variable that Gatekeeper declares.
const anyObject = `has(request.operation) && request.operation == "DELETE" && object == null ? oldObject : object`

// spec copies the source of the template.
func (b *builder) spec() {
	from := b.definition.source
	s := &b.policy.Spec
	s.Bindings = []v1alpha1.Binding{{Name: conversion.BindingName}}
	s.FailurePolicy = from.FailurePolicy
	s.MatchConditions = slices.Clone(from.MatchConditions)
	object := anyObject
	if b.definition.public != nil { // its CEL is for objects of all kinds
		object = "dyn(" + anyObject + ")"
	}
	s.Variables = []admissionregistrationv1.Variable{{Name: "anyObject", Expression: object}}
	s.Variables = append(s.Variables, from.Variables...)
	b.lookups()
	if source := b.definition.field; source != "" {
		for _, field := range []string{"matchConditions", "variables", "validations"} {
			b.output.Origins = append(b.output.Origins, conversion.Origin{
				Field: "spec." + field, Source: &b.definition.object, SourceField: source + "." + field,
			})
		}
	}
	validations := from.Validations
	if o := b.optional(); o != nil {
		validations = slices.Concat(validations, o.Validations)
	}
	for _, v := range validations {
		s.Validations = append(s.Validations, v1alpha1.Validation{
			Expression:        v.Expression,
			Message:           strings.Join(strings.Fields(v.Message), " "),
			MessageExpression: v.MessageExpression,
		})
	}
}

// Names of enforcement points at which Gatekeeper decides requests, in lower case.
func requestPoints() []string { return []string{"*", "validation.gatekeeper.sh", "vap.k8s.io"} }

// actions converts the enforcement action.
func (b *builder) actions() {
	spec := &b.constraint.Spec
	names := []string{strings.ToLower(spec.EnforcementAction)}
	field := "spec.enforcementAction"
	if names[0] == "scoped" {
		names, field = b.scopedActions(), "spec.scopedEnforcementActions"
	}
	actions := map[string]admissionregistrationv1.ValidationAction{
		"":       admissionregistrationv1.Deny,
		"deny":   admissionregistrationv1.Deny,
		"warn":   admissionregistrationv1.Warn,
		"dryrun": admissionregistrationv1.Audit,
	}
	binding := &b.policy.Spec.Bindings[0]
	for _, name := range names {
		action, ok := actions[name]
		if !ok {
			b.leaveOut(field, fmt.Sprintf("the action %q is not known", name), "write deny, warn or dryrun")
			return
		}
		if !slices.Contains(binding.ValidationActions, action) {
			binding.ValidationActions = append(binding.ValidationActions, action)
		}
	}
	if slices.Contains(binding.ValidationActions, admissionregistrationv1.Deny) { // it sends the message to the client
		binding.ValidationActions = slices.DeleteFunc(
			binding.ValidationActions,
			func(a admissionregistrationv1.ValidationAction) bool { return a == admissionregistrationv1.Warn },
		)
	}
}

// scopedActions returns the actions for requests.
func (b *builder) scopedActions() (names []string) {
	for _, s := range b.constraint.Spec.ScopedEnforcementActions {
		for _, p := range s.EnforcementPoints {
			if slices.Contains(requestPoints(), strings.ToLower(p.Name)) {
				names = append(names, strings.ToLower(s.Action))
			}
		}
	}
	if len(names) > 0 {
		return names
	}
	b.change("spec.scopedEnforcementActions", "no action is for requests: the action is Audit, which denies none")
	return []string{"dryrun"}
}

// resourceFinder finds the resources of kinds.
type resourceFinder struct{ apis *offline.APIs }

// newResources returns the resources of Kubernetes, and those of the definitions among
// some objects.
func newResources(objects []load.Object) (*resourceFinder, error) {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for i := range objects {
		if objects[i].GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
			continue
		}
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := objects[i].Read(d); err != nil {
			return nil, err
		}
		definitions = append(definitions, d)
	}
	apis, err := offline.NewAPIs(policy.LatestEngine, definitions)
	if err != nil {
		return nil, fmt.Errorf("reading the resources of Kubernetes: %w", err)
	}
	return &resourceFinder{apis: apis}, nil
}

// byGroup returns the names of the resources of a kind, by group. An empty group or "*" is every
// group.
func (r *resourceFinder) byGroup(kind string, inGroup func(group string) bool) map[string][]string {
	out := map[string][]string{}
	for gv, list := range r.apis.Lists() {
		if !inGroup(gv.Group) {
			continue
		}
		for _, resource := range list {
			if resource.Kind == kind && !strings.Contains(resource.Name, "/") &&
				!slices.Contains(out[gv.Group], resource.Name) {
				out[gv.Group] = append(out[gv.Group], resource.Name)
			}
		}
	}
	return out
}

// knows reports whether the resources of a group are known.
func (r *resourceFinder) knows(group string) bool {
	for gv := range r.apis.Lists() {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// encodeJSON writes a value as JSON. It comes from JSON.
func encodeJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(text)
}
