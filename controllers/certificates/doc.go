// Package certificates stores Ostiary's CA and serving certificate in two Secrets
// and serves the certificate from memory.
//
// The [Rotator] runs in the leader and writes the Secrets, one action of
// internal/pki at a time. The [Provider] runs in every replica, validates what the
// Rotator wrote and serves it. Both watch each Secret by name, because Ostiary may
// read no other. Neither writes webhook configurations: the reconciler of
// configurations takes the bundle from the Provider, and the Rotator observes the
// result.
package certificates
