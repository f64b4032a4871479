package main

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/drivers/rego"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxClients is the number of compiled sets of templates that are kept.
const maxClients = 64

// clients keeps the compiled templates of former questions.
type clients struct{ byTemplates map[string]*client.Client }

func newClients() *clients { return &clients{byTemplates: map[string]*client.Client{}} }

// client returns a client with the templates of a question.
func (c *clients) client(in *input) (*client.Client, error) {
	key := strings.Join(slices.Sorted(maps.Keys(in.templates)), "\n")
	if found := c.byTemplates[key]; found != nil {
		return found, nil
	}
	cel, err := k8scel.New()
	if err != nil {
		return nil, fmt.Errorf("starting the driver for CEL: %w", err)
	}
	opa, err := rego.New()
	if err != nil {
		return nil, fmt.Errorf("starting the driver for Rego: %w", err)
	}
	out, err := client.NewClient(
		client.Targets(&target.K8sValidationTarget{}),
		client.Driver(cel),
		client.Driver(opa),
		client.EnforcementPoints(util.WebhookEnforcementPoint),
	)
	if err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	for _, t := range in.templates {
		if _, err := out.AddTemplate(context.Background(), t); err != nil {
			return nil, fmt.Errorf("adding the template %s: %w", t.Name, err)
		}
	}
	if len(c.byTemplates) == maxClients {
		clear(c.byTemplates)
	}
	c.byTemplates[key] = out
	return out, nil
}

// engine has the objects of one question.
type engine struct {
	*input
	client    *client.Client
	mutations *mutation.System
	added     []*unstructured.Unstructured
}

func (c *clients) newEngine(in *input) (*engine, error) {
	found, err := c.client(in)
	if err != nil {
		return nil, err
	}
	e := &engine{input: in, client: found, mutations: mutation.NewSystem(mutation.SystemOpts{})}
	for _, k := range in.constraints {
		if _, err := found.AddConstraint(context.Background(), k); err != nil {
			e.close()
			return nil, fmt.Errorf("adding the constraint %s: %w", k.GetName(), err)
		}
		e.added = append(e.added, k)
	}
	for _, m := range in.mutators {
		if err := e.mutations.Upsert(m); err != nil {
			e.close()
			return nil, fmt.Errorf("adding the mutator %s: %w", m.ID(), err)
		}
	}
	return e, nil
}

// close removes the constraints and the inventory, so that the templates can be used again.
func (e *engine) close() {
	if _, err := e.client.RemoveData(context.Background(), target.WipeData()); err != nil {
		panic(fmt.Errorf("removing the inventory: %w", err))
	}
	for _, k := range e.added {
		if _, err := e.client.RemoveConstraint(context.Background(), k); err != nil {
			panic(fmt.Errorf("removing the constraint %s: %w", k.GetName(), err))
		}
	}
}

// decide mutates the object and validates the result, as an API server calls the webhooks. A
// mutation that fails is a denial: the webhook answers with an error.
func (e *engine) decide(request *admissionv1.AdmissionRequest) (d decision) {
	defer func() {
		if p := recover(); p != nil {
			d = decision{Panic: fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	d.Allowed = true
	if err := e.store(request); err != nil {
		return decision{Failed: true, Messages: []string{err.Error()}}
	}
	current := request.DeepCopy()
	isNamespace := current.Kind.Kind == "Namespace" && current.Kind.Group == ""
	if isNamespace {
		current.Namespace = ""
	}
	if err := e.mutate(current, isNamespace); err != nil {
		return decision{Failed: true, Messages: []string{err.Error()}}
	}
	if current.Operation == admissionv1.Delete && !e.deletes {
		return d
	}
	if err := e.validate(current, &d); err != nil {
		return decision{Failed: true, Messages: []string{err.Error()}}
	}
	if current.Operation != admissionv1.Delete && d.Allowed {
		d.Object = current.Object.Raw
	}
	return d
}

// store makes the inventory that of a request: the stored objects, and the old object of the request instead of one with
// its name.
func (e *engine) store(request *admissionv1.AdmissionRequest) error {
	if len(e.constraints) == 0 {
		return nil
	}
	if _, err := e.client.RemoveData(context.Background(), target.WipeData()); err != nil {
		return fmt.Errorf("removing the inventory: %w", err)
	}
	all := slices.Clone(e.stored)
	if len(request.OldObject.Raw) > 0 && request.SubResource == "" {
		old := &unstructured.Unstructured{}
		if err := old.UnmarshalJSON(request.OldObject.Raw); err != nil {
			return fmt.Errorf("decoding the old object: %w", err)
		}
		all = append(all, old) // the later one replaces one with the same name
	}
	for _, o := range all {
		if _, err := e.client.AddData(context.Background(), o); err != nil {
			return fmt.Errorf("adding the object %s: %w", o.GetName(), err)
		}
	}
	return nil
}

func (e *engine) mutate(request *admissionv1.AdmissionRequest, isNamespace bool) error {
	if len(e.mutators) == 0 || request.Operation == admissionv1.Delete {
		return nil
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return fmt.Errorf("decoding the object: %w", err)
	}
	var namespace *corev1.Namespace
	switch {
	case isNamespace:
		namespace = &corev1.Namespace{}
		namespace.Name, namespace.Labels = object.GetName(), object.GetLabels()
	case request.Namespace != "":
		namespace = e.namespace(request.Namespace)
	}
	own := object.GetNamespace()
	object.SetNamespace(request.Namespace)
	changed, err := e.mutations.Mutate(context.Background(), &mutationtypes.Mutable{
		Object:    object,
		Namespace: namespace,
		Username:  request.UserInfo.Username,
		Source:    mutationtypes.SourceTypeOriginal,
		Operation: request.Operation,
	})
	if err != nil || !changed {
		return err
	}
	object.SetNamespace(own)
	request.Object.Raw, err = object.MarshalJSON()
	return err
}

func (e *engine) validate(request *admissionv1.AdmissionRequest, d *decision) error {
	if len(e.constraints) == 0 {
		return nil
	}
	review := &target.AugmentedReview{
		AdmissionRequest: request,
		Source:           mutationtypes.SourceTypeOriginal,
		IsAdmission:      true,
	}
	options := []reviews.ReviewOpt{reviews.EnforcementPoint(util.WebhookEnforcementPoint)}
	if request.Namespace != "" {
		review.Namespace = e.namespace(request.Namespace)
		fields, err := util.NamespaceToMap(review.Namespace)
		if err != nil {
			return fmt.Errorf("encoding the namespace: %w", err)
		}
		options = append(options, reviews.Namespace(fields))
	}
	responses, err := e.client.Review(context.Background(), review, options...)
	if err != nil {
		return err
	}
	for _, r := range responses.Results() {
		d.Messages = append(d.Messages, r.Msg)
		if r.EnforcementAction == string(util.Deny) || slices.Contains(r.ScopedEnforcementActions, string(util.Deny)) {
			d.Allowed = false
		}
	}
	return nil
}
