// Package pki creates and checks the certificates that Ostiary serves, and decides
// the next step that keeps them valid.
//
// The package is pure: it calls no API server and reads no clock. Time and
// randomness are arguments. [Next] takes the stored [State] and an [Observed] and
// returns one [Action]. [Apply] performs that action on a copy of the state. The
// caller stores the result, reads it back and calls Next again. [ServingState]
// decides which stored certificate a replica presents.
//
// In a rotation the old CA signs a cross-certificate for the key of the new CA.
// The serving certificate is presented together with the cross-certificate, so
// clients that trust only the old CA verify it too, and replicas and API servers
// may switch in any order until trust in the old CA ends. If the key of the old CA
// is lost, there is no cross-certificate. The new CA is then published in the
// trust bundles before it signs a serving certificate. The model in the tests of
// this package checks that no served chain is ever rejected.
package pki
