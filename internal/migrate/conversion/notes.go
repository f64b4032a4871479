package conversion

import (
	"slices"
	"strings"
)

// NoteRatchet is the difference of rules that let an UPDATE of an object pass that fails already.
const NoteRatchet = "an UPDATE passes if the stored object fails the rule, also if it fails in another field"

// NoteIgnoredErrors is the difference of validations in CEL with the failurePolicy Ignore. Kyverno
// applies it only to matchConditions and to webhooks that do not answer.
const NoteIgnoredErrors = "a validation that cannot be evaluated passes, because failurePolicy is Ignore: " +
	"Kyverno denies the request"

// NoteUnchangedTemplates is the difference of policies that are extended to pod templates. One with
// ratchet has it only if its evaluation can fail, because otherwise the UPDATE passes in Kyverno too.
const NoteUnchangedTemplates = "an UPDATE that leaves a pod template unchanged is not decided"

// Differences of policies that are extended to pod templates.
const (
	noteTemplates         = "an UPDATE that changes a pod template is decided too"
	noteNewTemplates      = "a CREATE of a workload is decided too"
	noteTemplateOldObject = "the oldObject of pod templates is null, also if the workload is updated or deleted"
	noteTemplateOperation = "the request.operation of pod templates is %s, also if the workload is updated"
)

// JoinNotes joins the differences of a rule, the most dangerous first: those after which requests are
// decided otherwise come before those about objects that are violations already.
func JoinNotes(notes []string) string {
	harmless := []string{NoteRatchet, noteTemplates, noteNewTemplates, NoteUnchangedTemplates}
	sorted := slices.Clone(notes)
	slices.SortStableFunc(sorted, func(a, b string) int {
		return slices.Index(harmless, a) - slices.Index(harmless, b) // -1 for others
	})
	return strings.Join(sorted, "; ")
}
