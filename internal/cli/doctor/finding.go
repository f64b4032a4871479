package doctor

import (
	"cmp"
	"slices"
)

// Severity is the importance of a Finding.
type Severity string

const (
	// Error means that requests fail, or that the cluster cannot recover from a failure.
	Error Severity = "error"
	// Warning means that requests can fail, or that a webhook is not called as intended.
	Warning Severity = "warning"
	// Info means that a webhook has no effect, or costs more than it has to, without harm.
	Info Severity = "info"
)

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Object names the object of a Finding.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns Kind/name, or Kind/namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Finding is one problem.
type Finding struct {
	Severity Severity `json:"severity"`
	// Check is the name of the check, an anchor of docs/cli/doctor.md.
	Check  string `json:"check"`
	Object Object `json:"object"`
	// Webhook is the name of the webhook in the object; "" if the Finding is not about one.
	Webhook string `json:"webhook,omitempty"`
	// Path is the path of the field; "" means the whole object.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
	Link    string `json:"link"`
}

const documents = "https://github.com/ostiary/ostiary/blob/main/docs/"

func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Severity.rank(), b.Severity.rank()),
		cmp.Compare(a.Object.String(), b.Object.String()),
		cmp.Compare(len(a.Path), len(b.Path)), // webhooks[2] before webhooks[10]
		cmp.Compare(a.Path, b.Path),
		cmp.Compare(a.Check, b.Check),
		cmp.Compare(a.Message, b.Message),
	)
}

// report adds a Finding about an object.
func (c *checker) report(s Severity, check string, o Object, path, message, fix string) {
	c.findings = append(c.findings, Finding{
		Severity: s, Check: check, Object: o, Path: path, Message: message, Fix: fix, Link: documents + "cli/doctor.md#" + check,
	})
}

// about adds a Finding about a field of a webhook; "" is the webhook itself.
func (c *checker) about(w *webhook, s Severity, check, field, message, fix string) {
	path := w.path
	if field != "" {
		path += "." + field
	}
	c.report(s, check, w.configuration, path, message, fix)
	c.findings[len(c.findings)-1].Webhook = w.Name
}

// outage adds a Finding about a webhook that API servers cannot call. What then happens
// to requests depends on its failurePolicy.
func (c *checker) outage(w *webhook, check, field, message, fix string) {
	if w.failsClosed() {
		c.about(w, Error, check, field, message+": API servers refuse every request that matches", fix)
	} else {
		c.about(w, Warning, check, field, message+": API servers admit every request without this webhook", fix)
	}
}
