package policy

import (
	"errors"
	"runtime/debug"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// stackEvery is the minimum time between two stacks of the panics of one policy. Senders
// of requests can cause panics, and stacks are long.
const stackEvery = 10 * time.Second

var errPanicked = errors.New(violationtext.Panicked)

// PanicReport is a panic in the evaluation of a policy. Only that evaluation is affected.
type PanicReport struct {
	Policy     string
	UID        types.UID
	Generation int64
	// Err is the panic. It contains nothing of the request.
	Err error
	// Stack is nil within 10 seconds of the policy's last panic with a stack.
	Stack []byte
}

// recovered turns a panic into an error of the evaluation. Rechecks do not report panics.
func (c *Compiled) recovered(host Environment, fail func()) {
	value := recover()
	if value == nil {
		return
	}
	if host.Panicked != nil {
		p := PanicReport{Policy: c.name, UID: c.uid, Generation: c.generation, Err: panics.Error(value)}
		if c.takesStack(host.Now()) {
			p.Stack = debug.Stack()
		}
		host.Panicked(p)
	}
	fail()
}

func (c *Compiled) takesStack(now time.Time) bool {
	last := c.lastStack.Load()
	return (last == 0 || now.UnixNano()-last >= int64(stackEvery)) && c.lastStack.CompareAndSwap(last, now.UnixNano())
}

// ignoredPanic returns the warning about a panic if failurePolicy lets the request pass.
func (c *Compiled) ignoredPanic() []string {
	if c.failurePolicy != admissionregistrationv1.Ignore {
		return nil
	}
	return []string{"WebhookPolicy '" + c.name + "' did not evaluate this request: " + errPanicked.Error()}
}
