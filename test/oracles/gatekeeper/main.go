// Command gatekeeper decides about requests with the engines of Gatekeeper, as its webhooks do.
// It reads questions from stdin and writes an answer to each to stdout, one JSON object per line.
//
// The module is separate because Gatekeeper needs other versions of Kubernetes and CEL than
// Ostiary, so that both engines run with the versions of their releases.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	admissionv1 "k8s.io/api/admission/v1"
)

// question is what the engine decides about.
type question struct {
	// Objects are templates, constraints, mutators and Namespaces.
	Objects  []json.RawMessage               `json:"objects"`
	Requests []*admissionv1.AdmissionRequest `json:"requests"`
}

// answer has a decision for each request.
type answer struct {
	Decisions []decision `json:"decisions"`
	// Invalid says why Gatekeeper cannot use the objects.
	Invalid string `json:"invalid,omitempty"`
}

// decision is what Gatekeeper does with a request.
type decision struct {
	Allowed bool `json:"allowed"`
	// Failed reports that something could not be evaluated.
	Failed bool `json:"failed,omitempty"`
	// Object is the object after mutations; empty for a DELETE and for denied requests.
	Object   json.RawMessage `json:"object,omitempty"`
	Messages []string        `json:"messages,omitempty"`
	// Panic is the panic of the engine, which says nothing about the policy.
	Panic string `json:"panic,omitempty"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gatekeeper:", err)
		os.Exit(1)
	}
}

// serve answers questions until the input ends.
func serve(in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(bufio.NewReader(in))
	encoder := json.NewEncoder(out)
	clients := newClients()
	for {
		var q question
		err := decoder.Decode(&q)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a question: %w", err)
		}
		if err := encoder.Encode(clients.answer(&q)); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
	}
}

// answer answers a question.
func (c *clients) answer(q *question) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Invalid: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	in, err := readInput(q.Objects)
	if err != nil {
		return answer{Invalid: err.Error()}
	}
	e, err := c.newEngine(in)
	if err != nil {
		return answer{Invalid: err.Error()}
	}
	defer e.close()
	for _, r := range q.Requests {
		a.Decisions = append(a.Decisions, e.decide(r))
	}
	return a
}
