package gatekeeper

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/mergeschema"
)

// The kinds of mutators that are converted.
const (
	kindAssign         = "Assign"
	kindAssignMetadata = "AssignMetadata"
	kindAssignImage    = "AssignImage"
	kindModifySet      = "ModifySet"
)

// mutator is an object of one of these kinds.
type mutator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		ApplyTo    []appliedKinds    `json:"applyTo,omitempty"`
		Match      requestMatch      `json:"match,omitempty"`
		Location   string            `json:"location"`
		Parameters mutatorParameters `json:"parameters,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// appliedKinds are kinds to which a mutator applies.
type appliedKinds struct {
	Groups     []string                                `json:"groups,omitempty"`
	Versions   []string                                `json:"versions,omitempty"`
	Kinds      []string                                `json:"kinds,omitempty"`
	Operations []admissionregistrationv1.OperationType `json:"operations,omitempty"`
}

// mutatorParameters are those of all kinds.
type mutatorParameters struct {
	PathTests []pathTest `json:"pathTests,omitempty"`
	// Assign is for Assign and AssignMetadata.
	Assign *assignment `json:"assign,omitempty"`
	// The parts of an image are for AssignImage.
	AssignDomain string `json:"assignDomain,omitempty"`
	AssignPath   string `json:"assignPath,omitempty"`
	AssignTag    string `json:"assignTag,omitempty"`
	// Operation and Values are for ModifySet.
	Operation string `json:"operation,omitempty"`
	Values    *struct {
		FromList []any `json:"fromList,omitempty"`
	} `json:"values,omitempty"`
}

// foreign returns a parameter that the kind does not have; empty if there is none.
func (p *mutatorParameters) foreign(kind string) string {
	assigns := kind == kindAssign || kind == kindAssignMetadata
	switch {
	case p.Assign != nil && !assigns:
		return "assign"
	case p.AssignDomain+p.AssignPath+p.AssignTag != "" && kind != kindAssignImage:
		return "assignDomain, assignPath or assignTag"
	case (p.Operation != "" || p.Values != nil) && kind != kindModifySet:
		return "operation or values"
	}
	return ""
}

// metadataField is the field that only AssignMetadata changes.
const metadataField = "metadata"

type pathTest struct {
	SubPath   string `json:"subPath"`
	Condition string `json:"condition"`
}

type assignment struct {
	Value        any `json:"value,omitempty"`
	FromMetadata *struct {
		Field string `json:"field"`
	} `json:"fromMetadata,omitempty"`
	ExternalData any `json:"externalData,omitempty"`
}

// convertMutator converts a mutator.
func convertMutator(c *conversion.Conversion, resources *resourceFinder) {
	if !slices.Contains([]string{kindAssign, kindAssignMetadata, kindAssignImage, kindModifySet}, c.Source.Kind) {
		c.LeaveOut("", "this command does not convert the kind "+c.Source.Kind, "write a WebhookPolicy with a mutation")
		return
	}
	m := &mutator{}
	if !c.Decode(m) {
		return
	}
	location, err := parseLocation(m.Spec.Location)
	if err != nil {
		c.LeaveOutInvalid(c.Source.Errorf("spec.location", "%v", err))
		return
	}
	b := &builder{Conversion: c, from: &m.Spec.Match, resources: resources, mutates: true}
	b.output = conversion.NewPolicy(&c.Source, m.ObjectMeta)
	b.output.Origins = []conversion.Origin{{Field: "metadata", Source: &c.Source, SourceField: "metadata"}}
	b.policy = b.output.Policy()
	// Gatekeeper registers its mutations with this policy.
	b.policy.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
	b.applyTo(m)
	b.match()
	if name := m.Spec.Parameters.foreign(m.Kind); name != "" {
		b.leaveOut("spec.parameters", fmt.Sprintf("%s has no parameter %s", m.Kind, name), "correct or remove it")
	}
	b.mutation(m, location)
	b.finish()
}

// mutation converts what the mutator does.
func (b *builder) mutation(m *mutator, location []locationNode) {
	switch m.Kind {
	case kindAssignImage:
		b.assignImage(m, location)
		return
	case kindModifySet:
		b.modifySet(m, location)
		return
	}
	value, ok := b.value(m)
	switch {
	case !ok:
	case m.Kind == kindAssignMetadata:
		b.assignMetadata(location, value)
	default:
		b.assign(m, location, func(string) string { return value })
	}
}

// applyTo takes the kinds from applyTo. Those of match are a condition.
func (b *builder) applyTo(m *mutator) {
	if len(m.Spec.ApplyTo) == 0 {
		return
	}
	if len(b.from.Kinds) > 0 {
		b.condition("selected-kinds", kindsCondition(b.from.Kinds))
	}
	matching := *b.from
	matching.Kinds = nil
	first := &m.Spec.ApplyTo[0]
	sameVersions := true
	for i, a := range m.Spec.ApplyTo {
		sameVersions = sameVersions && slices.Equal(a.Versions, first.Versions)
		if !slices.Equal(a.Operations, first.Operations) {
			b.leaveOut(
				fmt.Sprintf("spec.applyTo[%d].operations", i),
				"it has other operations than the first element",
				"write a mutator for each",
			)
		}
		matching.Kinds = append(
			matching.Kinds,
			selectedKinds{APIGroups: a.Groups, Kinds: a.Kinds, versions: a.Versions},
		)
	}
	b.from = &matching
	if !slices.Contains(first.Operations, admissionregistrationv1.OperationAll) {
		b.operations = first.Operations
	}
	if sameVersions {
		b.versions = first.Versions
	} else {
		b.condition("versions", kindsCondition(matching.Kinds))
	}
}

// value returns the assigned value as CEL.
func (b *builder) value(m *mutator) (string, bool) {
	a := m.Spec.Parameters.Assign
	if a == nil {
		a = &assignment{}
	}
	const field = "spec.parameters.assign"
	switch {
	case a.ExternalData != nil:
		b.leaveOut(field+".externalData", "policies of Ostiary call no servers", "use an external webhook")
	case a.FromMetadata != nil && a.FromMetadata.Field == "namespace":
		// The namespace of a request about a Namespace is its name, but the object has none.
		return `request.kind.kind == "Namespace" && request.kind.group == "" ? "" : request.?namespace.orValue("")`, true
	case a.FromMetadata != nil && a.FromMetadata.Field == "name":
		return `object.metadata.?name.orValue("")`, true
	case a.FromMetadata != nil:
		b.leaveOut(
			field+".fromMetadata.field",
			fmt.Sprintf("the field %q is not known", a.FromMetadata.Field),
			"write name or namespace",
		)
	default:
		switch a.Value.(type) {
		case bool, string, int64, float64:
			text, _ := literalText(a.Value)
			return text, true
		}
		b.leaveOut(
			field+".value",
			"the value is no text, number or boolean: Gatekeeper replaces such values, and ApplyConfiguration "+
				"merges them",
			"write a WebhookPolicy with a JSONPatch",
		)
	}
	return "", false
}

// assignMetadata adds a label or an annotation that the object does not have.
func (b *builder) assignMetadata(location []locationNode, value string) {
	if len(location) != 3 || location[0].name != metadataField ||
		!slices.Contains([]string{"labels", "annotations"}, location[1].name) || slices.ContainsFunc(
		location,
		func(n locationNode) bool { return n.key != "" },
	) {
		b.leaveOut(
			"spec.location",
			"AssignMetadata is for one label or annotation",
			"write metadata.labels.x or metadata.annotations.x",
		)
		return
	}
	field, key := location[1].name, celtext.QuoteText(location[2].name)
	b.condition("absent", fmt.Sprintf("!(%s in object.metadata.?%s.orValue({}))", key, field))
	b.apply(fmt.Sprintf("Object{metadata: Object.metadata{%s: {%s: %s}}}", field, key, value))
}

func (b *builder) apply(expression string) {
	b.policy.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
	}}
}

// assign sets a field, in all elements of a list with a wildcard. The value can depend on
// the current one, an optional.
func (b *builder) assign(m *mutator, location []locationNode, value func(current string) string) {
	if location[0].name == metadataField || !isExpressible(location) {
		b.leaveOut(
			"spec.location",
			"the location has several wildcards, a list that is not merged by name, or a name that CEL reserves",
			"write a WebhookPolicy with a JSONPatch",
		)
		return
	}
	filter, ok := b.pathTests(m, location)
	if !ok {
		return
	}
	if !b.isMerged(m, location) {
		b.assignByPatch(location, filter, value)
		return
	}
	if list := changedElements(location, filter); list != "" {
		b.condition("elements", list+".size() > 0")
	}
	b.apply(setField("Object", "object", location, filter, value, ""))
}

// isMerged reports whether API servers merge all that has the location. An apply configuration
// may not contain fields that they replace as a whole.
func (b *builder) isMerged(m *mutator, location []locationNode) bool {
	var kinds []schema.GroupVersionKind
	for _, a := range m.Spec.ApplyTo {
		for _, group := range a.Groups {
			for _, version := range a.Versions {
				for _, kind := range a.Kinds {
					kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
				}
			}
		}
	}
	at := mergeschema.OfKinds(kinds...)
	for _, n := range location {
		if at = at.Field(n.name); !at.IsKnown() || at.IsAtomic() {
			return false
		}
		if n.key != "" {
			if at = at.Element(); !at.IsKnown() || at.IsAtomic() {
				return false
			}
		}
	}
	return true
}

// assignByPatch sets a field by a JSONPatch.
func (b *builder) assignByPatch(location []locationNode, filter []string, value func(current string) string) {
	s, ok := newFieldPatch(location, filter)
	if !ok {
		b.leaveOut(
			"spec.location",
			"API servers may replace a part of the location as a whole, and it is not below all elements of one list",
			"write a WebhookPolicy with a JSONPatch",
		)
		return
	}
	parts := append(s.parents(), s.setIf(s.fields, "", value(s.current(len(s.fields)))))
	b.patch(strings.Join(parts, " + "))
}

func (b *builder) patch(expression string) {
	b.policy.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression},
	}}
}

// pathTests adds the tests of paths as match conditions, and returns those about elements e
// of the list with the wildcard.
func (b *builder) pathTests(m *mutator, location []locationNode) (filter []string, ok bool) {
	for i, test := range m.Spec.Parameters.PathTests {
		field := fmt.Sprintf("spec.parameters.pathTests[%d]", i)
		path, err := parseLocation(test.SubPath)
		if err != nil || !isPrefix(path, location) {
			b.leaveOut(field+".subPath", "it is no prefix of the location", "correct it in the source")
			return nil, false
		}
		expression, ofElement, ok := pathExists(path)
		switch {
		case !ok:
			b.leaveOut(
				field+".subPath",
				"a test of one element of a list has no form in CEL here",
				"write a WebhookPolicy",
			)
			return nil, false
		case test.Condition == "MustNotExist":
			expression = "!" + expression
		case test.Condition != "MustExist":
			b.leaveOut(
				field+".condition",
				fmt.Sprintf("the condition %q is not known", test.Condition),
				"write MustExist or MustNotExist",
			)
			return nil, false
		}
		if ofElement {
			filter = append(filter, expression)
		} else {
			b.condition(fmt.Sprintf("path-%d", i), expression)
		}
	}
	return filter, true
}

// isPrefix reports whether a path is the beginning of a location. It can end at a list.
func isPrefix(path, location []locationNode) bool {
	last := len(path) - 1
	return len(path) <= len(location) && slices.Equal(path[:last], location[:last]) &&
		path[last].name == location[last].name &&
		(path[last].key == "" || path[last] == location[last])
}

// pathExists returns whether a path exists, as CEL; for a path through a list with a wildcard,
// about its element e.
func pathExists(path []locationNode) (expression string, ofElement, ok bool) {
	expression = "object"
	for i, n := range path {
		switch {
		case n.isGlob():
			expression, ofElement = "e", true
			if i == len(path)-1 {
				return "true", true, true
			}
		case n.key != "":
			return "", false, false
		default:
			expression += ".?" + n.name
		}
	}
	return expression + ".hasValue()", ofElement, true
}

// changedElements returns the elements that are changed; empty without a wildcard.
func changedElements(location []locationNode, filter []string) string {
	list := "object"
	for _, n := range location {
		if n.key != "" && !n.isGlob() {
			return "" // a list within an element that may not exist
		}
		list += ".?" + n.name
		if n.isGlob() {
			list += ".orValue([])"
			if len(filter) > 0 {
				list += ".filter(e, " + strings.Join(filter, " && ") + ")"
			}
			return list
		}
	}
	return ""
}

// setField returns the configuration that sets a field. The current value is an optional
// chain; more are further fields of the object.
func setField(
	kind,
	current string,
	location []locationNode,
	filter []string,
	value func(current string) string,
	more string,
) string {
	n := location[0]
	inner := kind + "." + n.name
	current += ".?" + n.name
	switch {
	case len(location) == 1:
		return fmt.Sprintf("%s{%s%s: %s}", kind, more, n.name, value(current))
	case n.isGlob():
		list := current + ".orValue([])"
		if len(filter) > 0 {
			list += ".filter(e, " + strings.Join(filter, " && ") + ")"
		}
		return fmt.Sprintf(
			"%s{%s%s: %s.map(e, %s)}",
			kind,
			more,
			n.name,
			list,
			setField(inner, "e", location[1:], nil, value, "name: e.name, "),
		)
	case n.key != "":
		name := celtext.QuoteText(n.value)
		element := fmt.Sprintf("%s.orValue([]).filter(c, c.name == %s)[?0]", current, name)
		return fmt.Sprintf(
			"%s{%s%s: [%s]}",
			kind,
			more,
			n.name,
			setField(inner, element, location[1:], filter, value, "name: "+name+", "),
		)
	}
	return fmt.Sprintf("%s{%s%s: %s}", kind, more, n.name, setField(inner, current, location[1:], filter, value, ""))
}
