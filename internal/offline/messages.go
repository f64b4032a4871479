package offline

import (
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
		out = append(out, key+": "+value)
	}
	slices.Sort(out)
	return out
}
