// Command kyverno decides about requests with the engines of Kyverno, as its webhooks do. It
// reads questions from stdin and writes an answer to each to stdout, one JSON object per line.
//
// The module is separate because Kyverno needs other versions of Kubernetes and CEL than
// Ostiary, so that both engines run with the versions of their releases.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
)

// question is what the engine decides about. The field names are those of oracles.Question.
type question struct {
	// Objects are the policies and what they read: exceptions, ConfigMaps, Namespaces.
	Objects  []json.RawMessage               `json:"objects"`
	Requests []*admissionv1.AdmissionRequest `json:"requests"`
}

// answer has a decision for each request. The field names are those of oracles.Answer.
type answer struct {
	Decisions []decision `json:"decisions"`
	// Invalid says why Kyverno cannot use the policies.
	Invalid string `json:"invalid,omitempty"`
}

// decision is what Kyverno does with a request.
type decision struct {
	Allowed bool `json:"allowed"`
	// Failed reports that a rule could not be evaluated.
	Failed bool `json:"failed,omitempty"`
	// Object is the object after mutations; empty for a DELETE and for denied requests.
	Object   json.RawMessage `json:"object,omitempty"`
	Messages []string        `json:"messages,omitempty"`
	// Panic is the panic of the engine, which says nothing about the policy.
	Panic string `json:"panic,omitempty"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kyverno:", err)
		os.Exit(1)
	}
}

// serve answers questions until the input ends.
func serve(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(bufio.NewReader(in))
	encoder := json.NewEncoder(out)
	for {
		var q question
		if err := decoder.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a question: %w", err)
		}
		if err := encoder.Encode(answerTo(&q)); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

func answerTo(q *question) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Invalid: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	in, err := readInput(q.Objects)
	if err != nil {
		return answer{Invalid: err.Error()}
	}
	engines, err := newEngines(in)
	if err != nil {
		return answer{Invalid: err.Error()}
	}
	for _, r := range q.Requests {
		a.Decisions = append(a.Decisions, engines.decide(r))
	}
	return a
}

// engines are the engines of all kinds of policies, with the policies of a question.
type engines struct {
	api     *apiServer
	classic *classicEngine
	cel     *celEngine
}

func newEngines(in *input) (*engines, error) {
	cel, err := newCELEngine(in)
	if err != nil {
		return nil, err
	}
	return &engines{api: &in.api, classic: newClassicEngine(in), cel: cel}, nil
}

// decide calls the mutating engines and then the validating ones, as an API server calls the
// webhooks. The first that denies ends the request.
func (e *engines) decide(request *admissionv1.AdmissionRequest) (d decision) {
	defer func() {
		if p := recover(); p != nil {
			d = decision{Panic: fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	if err := e.api.setRequest(request); err != nil {
		return decision{Failed: true, Messages: []string{err.Error()}}
	}
	d.Allowed = true
	current := request.DeepCopy()
	for _, step := range []func(*admissionv1.AdmissionRequest, *decision) error{
		e.classic.mutate,
		e.cel.mutate,
		e.classic.validate,
		e.cel.validate,
	} {
		if err := step(current, &d); err != nil {
			return decision{Failed: true, Messages: append(d.Messages, err.Error())}
		}
		if !d.Allowed {
			return d
		}
	}
	if current.Operation != admissionv1.Delete {
		d.Object = current.Object.Raw
	}
	return d
}
