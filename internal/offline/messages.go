package offline

import (
	"encoding/json"
	"slices"
	"strings"
)

// Messages returns what a policy says about a request: its denials, warnings and audit
// annotations, or why it could not be evaluated.
func (o *Outcome) Messages() (out []string) {
	if o.Err != nil {
		return []string{o.Err.Error()}
	}
	if o.Response == nil {
		return nil
	}
	if r := o.Response.Result; r != nil {
		for line := range strings.Lines(r.Message) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	out = append(out, o.Response.Warnings...)
	for key, value := range o.Response.AuditAnnotations {
		if found := auditedMessages(key, value); found != nil {
			out = append(out, found...)
			continue
		}
		out = append(out, key+": "+value)
	}
	slices.Sort(out)
	return out
}

// auditedMessages returns the messages of validations that failed in an audit annotation; nil
// for another one.
func auditedMessages(key, value string) (out []string) {
	if key != "validation_failure" {
		return nil
	}
	var failures []struct {
		Message string `json:"message"`
	}
	if json.Unmarshal([]byte(value), &failures) != nil {
		return nil
	}
	for _, f := range failures {
		out = append(out, "audited: "+f.Message)
	}
	return out
}
