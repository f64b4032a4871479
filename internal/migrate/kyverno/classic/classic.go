// Package classic converts Kyverno's ClusterPolicies and Policies (group kyverno.io).
package classic

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// Source returns the conversion of the policies.
func Source() conversion.Source {
	return conversion.Source{
		Title:        "Kyverno's ClusterPolicies, Policies and PolicyExceptions (group " + group + ")",
		Kinds:        []schema.GroupKind{{Group: group}},
		WritesNative: true,
		NotIn:        "Kyverno 1.20",
		Convert:      convertPolicies,
	}
}

func convertPolicies(in *conversion.Input) ([]conversion.Conversion, error) {
	c, err := newCatalogue(in)
	if err != nil {
		return nil, err
	}
	exceptions, out := exceptionsOf(in)
	global, unread := globalEntriesOf(in)
	out = append(out, unread...)
	for i := range in.Objects {
		o := &in.Objects[i]
		result := conversion.Conversion{Source: *o}
		switch o.Kind {
		case kindClusterPolicy, kindPolicy:
			convertPolicy(&result, c, global, exceptions)
		case kindException, kindGlobalContext:
			continue
		default:
			why, alternative := otherKind(o.Kind)
			result.LeaveOut("", why, alternative)
		}
		out = append(out, result)
	}
	for _, e := range exceptions {
		out = append(out, e.conversion())
	}
	for _, name := range slices.Sorted(maps.Keys(global)) {
		out = append(out, global[name].conversion())
	}
	return out, nil
}

// otherKind says why a kind is left out.
func otherKind(kind string) (why, alternative string) {
	switch kind {
	case "CleanupPolicy", "ClusterCleanupPolicy":
		return "Ostiary deletes no objects", "use a CronJob or a TTL controller"
	case "UpdateRequest":
		return "it is data of Kyverno", "delete it together with Kyverno"
	}
	return "this command does not know the kind", "write a WebhookPolicy"
}

// convertPolicy converts a policy. Rules that match the same requests share a result.
func convertPolicy(
	c *conversion.Conversion, catalogue catalogue, global map[string]*globalEntry, exceptions []*appliedException,
) {
	p := &clusterPolicy{}
	if !c.Decode(p) {
		return
	}
	if p.Spec.Admission != nil && !*p.Spec.Admission {
		c.LeaveOut("spec.admission", conversion.OnlyExisting, conversion.InsteadOfOnlyExisting)
		return
	}
	if len(p.Spec.Rules) == 0 {
		c.LeaveOut("spec.rules", "the policy has no rules", "remove it")
		return
	}
	b := &builder{Conversion: c, source: p, exceptions: exceptions}
	rows := make([]conversion.Row, len(p.Spec.Rules))
	var leftOut []string // mutations
	for i := range p.Spec.Rules {
		r := &p.Spec.Rules[i]
		rows[i] = conversion.Row{Rule: r.Name, Field: fmt.Sprintf("spec.rules[%d]", i)}
		out, err := convertRule(p, r, catalogue, global)
		if err == nil {
			b.except(out, catalogue)
			out.limitRatchet(p)
			err = out.finish()
		}
		if err != nil {
			why := reasonOf(err)
			rows[i].Outcome, rows[i].Detail, rows[i].Alternative = conversion.LeftOut, why.why, why.alternative
			if why.field != "" {
				rows[i].Field += "." + why.field
			}
			if r.Mutate != nil {
				leftOut = append(leftOut, r.Name)
			}
			continue
		}
		if len(leftOut) > 0 && r.mutatesByObject() {
			note := fmt.Sprintf("it may read what %s would change, which is left out", strings.Join(leftOut, ", "))
			out.notes = append(out.notes, note)
		}
		b.rules = append(b.rules, placedRule{out, &rows[i]})
	}
	b.build()
	c.Rows = append(append(c.Rows, b.shared...), rows...)
	b.policyNotes()
}

// mutatesByObject reports whether the rule is a mutation whose effect may depend on the
// object, and so on the mutations before it.
func (r *rule) mutatesByObject() bool {
	if r.Mutate == nil {
		return false
	}
	text, err := json.Marshal(r.Mutate)
	return err != nil || r.Preconditions != nil || len(r.Context) > 0 ||
		strings.Contains(string(text), "{{") || strings.Contains(string(text), "(")
}

// metadata returns the metadata of the result for a group of rules.
func (b *builder) metadata(suffix string) metav1.ObjectMeta {
	m := b.source.ObjectMeta
	name := m.Name
	if b.Source.Kind == kindPolicy {
		name = b.namespace() + "-" + name
	}
	if suffix != "" {
		name += "-" + suffix
	}
	m.Name = nameOf(name)
	return m
}

func (b *builder) namespace() string {
	if b.source.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return b.source.Namespace
}

// policyNotes reports the fields of the policy that have another effect.
func (b *builder) policyNotes() {
	if len(b.Outputs) == 0 {
		return
	}
	note := func(field, detail string) {
		b.Add(conversion.Row{
			Rule:    field,
			Field:   field,
			Outcome: conversion.Changed,
			Detail:  detail,
			Output:  b.Outputs[0],
		})
	}
	s := b.source.Spec
	if s.ApplyRules == "One" && len(s.Rules) > 1 {
		note("spec.applyRules", "all rules apply, also after one that matches")
	}
}

// placedRule is a converted rule with its row of the report.
type placedRule struct {
	*convertedRule
	row *conversion.Row
}

// sameRequests reports whether two rules can be one policy.
func (p placedRule) sameRequests(other placedRule) bool {
	return slices.Equal(p.key(), other.key())
}
