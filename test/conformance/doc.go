// Package conformance sends the same requests to the native admission policies of Kubernetes
// and to Ostiary with the same policies. It compares status code, reason, message, causes,
// warnings, audit annotations and the resulting object.
//
// Two control planes of the same release contain the same objects. In one, the policy of a
// case is a ValidatingAdmissionPolicy or a MutatingAdmissionPolicy with its bindings. In the
// other it is a WebhookPolicy, and the real manager runs. Names and messages are therefore the
// same on both sides, and no engine sees the results of the other.
//
// Cases are installed in batches, each case in its own namespace. Hand-written cases are in
// testdata/cases. A seeded generator creates the others. knownDifferences has the permitted
// differences, each with its row of docs/migration/differences.md.
//
// Some generated policies have exceptions, which the native engine does not know. Its policies
// contain what an exception lets pass as an expression, from the independent matcher of
// test/exceptioncases.
package conformance
