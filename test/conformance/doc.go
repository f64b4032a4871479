// Package conformance puts the same policies and requests to Kubernetes' own
// admission policies and to Ostiary, and compares what comes back: status code,
// reason, message, causes, warnings, audit annotations and the resulting object.
//
// Two control planes of the same release are filled with the same objects. On
// one a case's policy is a ValidatingAdmissionPolicy, a MutatingAdmissionPolicy
// and their bindings; on the other it is a WebhookPolicy, and the real manager
// runs beside it. So names and messages are the same on both, and neither engine
// sees what the other did.
//
// Cases are installed by the batch, each in a namespace of its own, that its
// policies are bound to. Those written by hand are in testdata/cases, the others
// come from a seeded generator. What is allowed to differ is in
// knownDifferences, each with its row of docs/differences.md.
package conformance
