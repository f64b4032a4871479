package policy

import (
	"errors"
	"fmt"
	"runtime/debug"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxPanics is how often the evaluation of a policy may panic. After that it is
// not evaluated any more, and its requests are answered by its failurePolicy: a
// panic says that nothing is known of what the evaluation does.
const maxPanics = 3

var errQuarantined = errors.New("it is quarantined: its evaluation panicked " + fmt.Sprint(maxPanics) +
	" times on this replica, so it is not evaluated until it is changed")

// Quarantine is a generation of a policy that is not evaluated any more.
type Quarantine struct {
	Policy     string
	UID        types.UID
	Generation int64
}

// recovered makes a panic an error of this policy alone. In a check beside the
// requests nobody is told, and nothing is counted.
func (c *Compiled) recovered(host Host, fail func()) {
	value := recover()
	if value == nil {
		return
	}
	if host.Panicked != nil {
		host.Panicked(c.name, value, debug.Stack())
		if c.panics.Add(1) == maxPanics && host.Quarantined != nil {
			host.Quarantined(Quarantine{Policy: c.name, UID: c.uid, Generation: c.generation})
		}
	}
	fail()
}

func (c *Compiled) quarantined() bool { return c.panics.Load() >= maxPanics }

// stoodDown is the result of a policy that is quarantined: an error of each
// binding that matches, which follows failurePolicy; where that lets the
// request pass, the client is warned.
func (c *Compiled) stoodDown(r *request, host Host) (results []result) {
	for i := range c.bindings {
		b := &c.bindings[i]
		if matches, err := b.matches(r, host); err == nil && !matches {
			continue
		}
		results = append(results, result{binding: b, decisions: c.failure(errQuarantined).Decisions})
	}
	return results
}

// stepsDown is stoodDown in the mutating phase.
func (c *Compiled) stepsDown(r *request, host Host) (out []step) {
	for _, result := range c.stoodDown(r, host) {
		out = append(out, step{policy: c, invocation: invocation{binding: result.binding, err: errQuarantined}})
	}
	return out
}

// passQuarantined warns of a policy that lets a request pass unseen.
func (a *answer) passQuarantined(c *Compiled) {
	if c.failurePolicy == admissionregistrationv1.Ignore && c.quarantined() {
		a.warn("WebhookPolicy '" + c.name + "' has not looked at this request: " + errQuarantined.Error())
	}
}
