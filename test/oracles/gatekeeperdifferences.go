package oracles

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// GatekeeperDifferences are the intended differences from Gatekeeper's engines.
func GatekeeperDifferences() []Difference {
	return []Difference{
		{
			Row:  "`namespaceSelector` for an UPDATE of a Namespace",
			Note: "an UPDATE of a Namespace is selected by its new labels",
			Shows: func(d *Disagreement) bool {
				return d.Request.Operation == admissionv1.Update && d.Request.Kind.Kind == "Namespace" &&
					d.Effect != OtherObject && strings.Contains(d.Case.text(), `"namespaceSelector"`)
			},
		},
		{
			Row:  "an amount of a container exactly at a limit with a fraction",
			Note: "values exactly at a limit with a fraction",
			Shows: func(d *Disagreement) bool {
				return d.Effect == AllowsMore && strings.Contains(d.Case.text(), "canonify_")
			},
		},
	}
}
