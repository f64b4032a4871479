package oracles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/load"
)

// Effect is how the decision of the result differs from that of the source.
type Effect string

// The effects, from the most dangerous one.
const (
	AllowsMore  Effect = "the result allows what the source denies"
	DeniesMore  Effect = "the result denies what the source allows"
	OtherObject Effect = "the result returns another object than the source"
)

// Disagreement is a request about which a source and its result decide differently.
type Disagreement struct {
	Case         *Case
	Converted    *Converted
	Request      *admissionv1.AdmissionRequest
	Source, Ours Decision
	Effect       Effect
}

// Difference is one that is intended.
type Difference struct {
	// Row is the first column of its row in docs/migration/engine-differences.md.
	Row string
	// Note is a part of what the report of the conversion says about it; empty if the report
	// does not state it. A difference that allows more has one.
	Note string
	// Shows reports whether a disagreement is this difference.
	Shows func(*Disagreement) bool
	// Without returns the text of an object without the cause of the difference, so that both
	// engines agree about it. It can be nil.
	Without func(string) string
}

// covers reports whether a disagreement is this difference, and is reported if it has to be.
func (f *Difference) covers(d *Disagreement) bool {
	if d.Effect == AllowsMore && f.Note == "" {
		return false
	}
	return d.Converted.notes(f.Note) && f.Shows(d)
}

func (c *Converted) notes(part string) bool {
	return part == "" || strings.Contains(strings.Join(c.Notes, "\n"), part)
}

// Count is the number of cases with each outcome.
type Count struct {
	Policies, LeftOut, Invalid, Requests, Panics int
	// Denied and Changed are the requests that the source denies or changes.
	Denied, Changed int
	// Known are the disagreements that are listed, by row.
	Known map[string]int
	// Reasons are those for which policies are left out.
	Reasons map[string]int
}

// Comparer compares an engine with the results of conversions.
type Comparer struct {
	Oracle   *Oracle
	Requests *Requests
	// Differences are those that are intended.
	Differences []Difference
	Count       Count
}

// Compare asks both engines about some requests, and returns what is not listed.
func (c *Comparer) Compare(
	ctx context.Context,
	of *Case,
	requests []*admissionv1.AdmissionRequest,
) ([]Disagreement, error) {
	c.Count.Policies++
	objects, raw, err := of.load(ctx)
	if err != nil {
		return nil, err
	}
	converted, err := Convert(ctx, c.Requests.APIs, objects)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of.Name, err)
	}
	if len(converted.LeftOut) > 0 {
		c.Count.LeftOut++
		for _, why := range converted.LeftOut {
			addTo(&c.Count.Reasons, why)
		}
		return nil, nil
	}
	answer, ours, err := c.decide(ctx, converted, &Question{Objects: raw, Requests: requests})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", of.Name, err)
	}
	if answer.Invalid != "" {
		c.Count.Invalid++
		addTo(&c.Count.Reasons, "the engine rejects the source: "+firstLine(answer.Invalid))
		return nil, nil
	}
	var out []Disagreement
	for i, request := range requests {
		d := Disagreement{Case: of, Converted: converted, Request: request, Source: answer.Decisions[i], Ours: ours[i]}
		if c.isUnlisted(ctx, &d) {
			out = append(out, d)
		}
	}
	return out, nil
}

// decide returns the decisions of both engines, which work at the same time.
func (c *Comparer) decide(ctx context.Context, converted *Converted, q *Question) (*Answer, []Decision, error) {
	type result struct {
		answer *Answer
		err    error
	}
	asked := make(chan result, 1)
	go func() {
		answer, err := c.Oracle.Ask(q)
		asked <- result{answer, err}
	}()
	ours := make([]Decision, len(q.Requests))
	var failed error
	for i, request := range q.Requests {
		if ours[i], failed = converted.Decide(ctx, request); failed != nil {
			break
		}
	}
	source := <-asked
	return source.answer, ours, errors.Join(source.err, failed)
}

// isUnlisted counts a pair of decisions, and reports whether they differ in a way that is not
// listed.
func (c *Comparer) isUnlisted(ctx context.Context, d *Disagreement) bool {
	c.Count.Requests++
	if d.Source.Panic != "" {
		c.Count.Panics++
		return false
	}
	source, ours := served(d.Source), served(d.Ours)
	if !source.Allowed {
		c.Count.Denied++
	} else if !sameJSON(source.Object, d.Request.Object.Raw) {
		c.Count.Changed++
	}
	switch {
	case !source.Allowed && ours.Allowed:
		d.Effect = AllowsMore
	case source.Allowed && !ours.Allowed:
		d.Effect = DeniesMore
	case source.Allowed && !sameJSON(source.Object, ours.Object):
		d.Effect = OtherObject
	default:
		return false
	}
	for i := range c.Differences {
		if c.Differences[i].covers(d) && c.agreeWithout(ctx, d, c.Differences[i].Without) {
			addTo(&c.Count.Known, c.Differences[i].Row)
			return false
		}
	}
	return true
}

// agreeWithout reports whether the engines agree about the request of a disagreement without its cause.
// Without a change there is no cause in the request.
func (c *Comparer) agreeWithout(ctx context.Context, d *Disagreement, without func(string) string) bool {
	if without == nil {
		return true
	}
	request := d.Request.DeepCopy()
	for _, raw := range []*[]byte{&request.Object.Raw, &request.OldObject.Raw} {
		if len(*raw) > 0 { // an empty text is no JSON
			*raw = []byte(without(string(*raw)))
		}
	}
	if bytes.Equal(request.Object.Raw, d.Request.Object.Raw) && bytes.Equal(request.OldObject.Raw, d.Request.OldObject.Raw) {
		return false
	}
	_, raw, err := d.Case.load(ctx)
	if err != nil {
		return false
	}
	asked := []*admissionv1.AdmissionRequest{request}
	answer, ours, err := c.decide(ctx, d.Converted, &Question{Objects: raw, Requests: asked})
	if err != nil || answer.Invalid != "" {
		return false
	}
	source, result := served(answer.Decisions[0]), served(ours[0])
	return source.Allowed == result.Allowed && (d.Effect != OtherObject || sameJSON(source.Object, result.Object))
}

// served returns a decision with the object as the API server reads it. An object that does not
// fit its kind is rejected.
func served(d Decision) Decision {
	if !d.Allowed || len(d.Object) == 0 {
		return d
	}
	object, err := servedForm(d.Object)
	if err != nil {
		return Decision{Messages: append(d.Messages, err.Error())}
	}
	d.Object = object
	return d
}

func sameJSON(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var first, second any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		return false
	}
	return reflect.DeepEqual(first, second)
}

func addTo(counts *map[string]int, key string) {
	if *counts == nil {
		*counts = map[string]int{}
	}
	(*counts)[key]++
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// load returns the objects of a case for the converter, and for the engine.
func (c *Case) load(ctx context.Context) (read []load.Object, raw []json.RawMessage, err error) {
	for _, o := range c.Objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding the policy: %w", err)
		}
		raw = append(raw, text)
		written, err := yaml.JSONToYAML(text)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding the policy: %w", err)
		}
		made, err := load.Text(ctx, c.Name, written)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the policy: %w", err)
		}
		read = append(read, made...)
	}
	return read, raw, nil
}

// Report describes a disagreement so that it can be repeated.
func (d *Disagreement) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s for a %s of a %s\n", d.Case.Name, d.Effect, d.Request.Operation, d.Request.Kind.Kind)
	for _, o := range d.Case.Objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "---\n%s", text)
	}
	fmt.Fprintf(&b, "--- result; notes: %q\n%s", d.Converted.Notes, d.Converted.Text)
	fmt.Fprintf(&b, "--- object\n%s\n", d.Request.Object.Raw)
	if len(d.Request.OldObject.Raw) > 0 {
		fmt.Fprintf(&b, "--- old object\n%s\n", d.Request.OldObject.Raw)
	}
	fmt.Fprintf(&b, "--- user %q, groups %q\n", d.Request.UserInfo.Username, d.Request.UserInfo.Groups)
	for i, decision := range []Decision{d.Source, d.Ours} {
		name := []string{"source", "result"}[i]
		fmt.Fprintf(&b, "--- %s: allowed %v, failed %v, messages %q\n", name, decision.Allowed, decision.Failed, decision.Messages)
		if d.Effect == OtherObject {
			fmt.Fprintf(&b, "%s\n", decision.Object)
		}
	}
	return b.String()
}

// text returns the policy of a case as JSON.
func (c *Case) text() string {
	text, err := json.Marshal(c.Objects)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
