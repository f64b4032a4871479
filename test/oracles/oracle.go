package oracles

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	admissionv1 "k8s.io/api/admission/v1"
)

// Question is what both engines decide about.
type Question struct {
	// Objects are the policies and what they read: exceptions, ConfigMaps, Namespaces.
	Objects  []json.RawMessage               `json:"objects"`
	Requests []*admissionv1.AdmissionRequest `json:"requests"`
}

// Answer has a decision for each request of a question.
type Answer struct {
	Decisions []Decision `json:"decisions"`
	// Invalid says why the engine cannot use the policies.
	Invalid string `json:"invalid"`
}

// Decision is what an engine does with a request.
type Decision struct {
	Allowed bool `json:"allowed"`
	// Failed reports that a rule could not be evaluated.
	Failed bool `json:"failed"`
	// Object is the object after mutations; empty for a DELETE and for denied requests.
	Object   json.RawMessage `json:"object"`
	Messages []string        `json:"messages"`
	// Panic is a panic of the engine, which says nothing about the policy.
	Panic string `json:"panic"`
}

// Oracle is a running engine.
type Oracle struct {
	command   *exec.Cmd
	in        io.Closer
	questions *json.Encoder
	answers   *json.Decoder
}

// StartOracle starts the program of an engine. It ends with the context.
func StartOracle(ctx context.Context, program string) (*Oracle, error) {
	command := exec.CommandContext(ctx, program)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("opening the input of %s: %w", program, err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("opening the output of %s: %w", program, err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return &Oracle{command: command, in: in, questions: json.NewEncoder(in), answers: json.NewDecoder(out)}, nil
}

// Ask returns the answer to a question.
func (o *Oracle) Ask(q *Question) (*Answer, error) {
	if err := o.questions.Encode(q); err != nil {
		return nil, fmt.Errorf("asking %s: %w", o.command.Path, err)
	}
	a := &Answer{}
	if err := o.answers.Decode(a); err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", o.command.Path, err)
	}
	if a.Invalid == "" && len(a.Decisions) != len(q.Requests) {
		return nil, fmt.Errorf("%s made %d decisions about %d requests", o.command.Path, len(a.Decisions), len(q.Requests))
	}
	return a, nil
}

// Close ends the program.
func (o *Oracle) Close() error {
	if err := o.in.Close(); err != nil {
		return fmt.Errorf("closing the input of %s: %w", o.command.Path, err)
	}
	if err := o.command.Wait(); err != nil {
		return fmt.Errorf("ending %s: %w", o.command.Path, err)
	}
	return nil
}
