package policy

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
)

// stackEvery bounds how often the stack of one policy's panics is taken. The
// sender of a request may know how to cause a panic, and stacks are long.
const stackEvery = 10 * time.Second

var errPanicked = errors.New("internal error: the evaluation panicked")

// PanicReport is a panic in the evaluation of a policy. It is an error of that
// evaluation alone: no later answer depends on it.
type PanicReport struct {
	Policy     string
	UID        types.UID
	Generation int64
	// Err says what happened, and holds nothing of the request.
	Err error
	// Stack is nil within 10 seconds of the policy's last panic with a stack.
	Stack []byte
}

// recovered makes a panic an error of this evaluation. Rechecks report none.
func (c *Compiled) recovered(host Environment, fail func()) {
	value := recover()
	if value == nil {
		return
	}
	if host.Panicked != nil {
		p := PanicReport{Policy: c.name, UID: c.uid, Generation: c.generation, Err: panicError(value)}
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

// panicError gives the text of errors of the Go runtime only. Any other value
// may hold what a request contains.
func panicError(value any) error {
	if err, ok := value.(runtime.Error); ok {
		return err
	}
	return fmt.Errorf("panic with a value of type %T", value)
}

// ignoredPanic warns the client of a panic where failurePolicy lets the request
// pass.
func (c *Compiled) ignoredPanic() []string {
	if c.failurePolicy != admissionregistrationv1.Ignore {
		return nil
	}
	return []string{"WebhookPolicy '" + c.name + "' did not evaluate this request: " + errPanicked.Error()}
}
