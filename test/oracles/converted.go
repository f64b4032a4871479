package oracles

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

// Converted are converted policies that are ready to evaluate.
type Converted struct {
	// LeftOut are the reasons why rules are left out. If there are any, the policies are not
	// compared.
	LeftOut []string
	// Notes are the differences that the report of the conversion states.
	Notes []string
	// Text is the result as YAML.
	Text   string
	engine *offline.Engine

	// world has the objects of the policies, and some Namespaces.
	world      func([]*corev1.Namespace) *offline.World
	namespaces []*corev1.Namespace
}

// Rejected begins the reason for a rule that is left out because Ostiary rejects the result.
const Rejected = "Ostiary rejects the result: "

// ConvertCase converts the policies of a case.
func ConvertCase(ctx context.Context, apis *offline.APIs, c *Case) (*Converted, error) {
	objects, _, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	return Convert(ctx, apis, objects)
}

// Convert converts the policies among some objects as the command does.
func Convert(ctx context.Context, apis *offline.APIs, objects []load.Object) (*Converted, error) {
	options := conversion.Options{Params: conversion.ParamsConstants}
	result, err := migrate.Convert(migrate.Sources(), objects, options, time.Now())
	if err != nil {
		return nil, fmt.Errorf("converting: %w", err)
	}
	written, err := result.Policies(ctx)
	if err != nil {
		return nil, fmt.Errorf("writing the result: %w", err)
	}
	c := &Converted{}
	findings, err := lint.Errors(ctx, written, policy.LatestEngine)
	if err != nil {
		return nil, fmt.Errorf("checking the result: %w", err)
	}
	for _, f := range findings {
		c.LeftOut = append(c.LeftOut, Rejected+f.Message)
	}
	for i := range result.Conversions {
		c.report(result.Conversions[i].Rows)
	}
	if len(c.LeftOut) > 0 {
		return c, nil
	}
	if err := c.compile(apis, result, objects); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Converted) report(rows []conversion.Row) {
	for i := range rows {
		switch rows[i].Outcome {
		case conversion.LeftOut:
			c.LeftOut = append(c.LeftOut, rows[i].Detail)
		case conversion.Changed:
			c.Notes = append(c.Notes, rows[i].Detail)
		}
	}
}

// compile compiles the policies of a result. They read the objects, except their sources.
func (c *Converted) compile(apis *offline.APIs, result *migrate.Result, objects []load.Object) error {
	sources := migrate.Sources()
	all := slices.DeleteFunc(slices.Clone(objects), func(o load.Object) bool {
		return slices.ContainsFunc(sources, func(s conversion.Source) bool {
			return s.Owns(o.GroupVersionKind().GroupKind())
		})
	})
	var texts []string
	for _, o := range result.Outputs {
		text, err := o.YAML()
		if err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
		texts = append(texts, string(text))
		read, err := load.Text(context.Background(), o.Object.GetName(), text)
		if err != nil {
			return fmt.Errorf("reading the result: %w", err)
		}
		all = append(all, read...)
	}
	c.Text = strings.Join(texts, "---\n")
	in, err := offline.Sort(all)
	if err != nil {
		return fmt.Errorf("reading the result: %w", err)
	}
	if c.engine, err = offline.NewEngine(in.Policies, policy.NewCompiler(), apis); err != nil {
		return fmt.Errorf("compiling the result: %w", err)
	}
	answers := offline.Answers{{Decision: offline.NoOpinion}}
	c.namespaces = in.Namespaces
	c.world = func(namespaces []*corev1.Namespace) *offline.World {
		w := offline.NewWorld(apis, namespaces, in.Objects, answers)
		w.AddExceptions(in.Exceptions)
		return w
	}
	return nil
}

// worldOf returns the world at a request. API servers select a Namespace that is deleted by its stored
// labels, which are those of the old object.
func (c *Converted) worldOf(request *admissionv1.AdmissionRequest) (*offline.World, error) {
	if request.Operation != admissionv1.Delete || request.Kind.Kind != "Namespace" || request.Kind.Group != "" {
		return c.world(c.namespaces), nil
	}
	stored := &corev1.Namespace{}
	if err := json.Unmarshal(request.OldObject.Raw, stored); err != nil {
		return nil, fmt.Errorf("decoding the namespace: %w", err)
	}
	return c.world(append(slices.Clone(c.namespaces), stored)), nil
}

// Decide returns Ostiary's decision about a request.
func (c *Converted) Decide(ctx context.Context, request *admissionv1.AdmissionRequest) (Decision, error) {
	world, err := c.worldOf(request)
	if err != nil {
		return Decision{}, err
	}
	result, err := c.engine.Evaluate(ctx, request, world, offline.Options{Details: true})
	if err != nil {
		return Decision{}, fmt.Errorf("evaluating the result: %w", err)
	}
	d := Decision{Allowed: result.Allowed, Object: result.Object}
	for i := range result.Outcomes {
		o := &result.Outcomes[i]
		if o.Err != nil {
			return Decision{}, fmt.Errorf("evaluating %s: %w", o.Policy, o.Err)
		}
		d.Failed = d.Failed || o.Decision == policy.DecisionError
		d.Messages = append(d.Messages, o.Messages()...)
	}
	return d, nil
}
