package oracles

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// KyvernoDifferences are the intended differences from Kyverno's engine.
func KyvernoDifferences() []Difference {
	return []Difference{
		{
			Row:  "an UPDATE of an object that already fails",
			Note: "an UPDATE",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Effect != OtherObject
			},
		},
		{
			Row: "an element of `foreach` that cannot be evaluated",
			Shows: func(d *Disagreement) bool {
				return d.Effect == DeniesMore && d.Ours.Failed && strings.Contains(d.Case.text(), `"foreach"`)
			},
		},
	}
}
