// Package certificates keeps Ostiary's CA and serving certificate in two
// Secrets and the served one in memory.
//
// The [Keeper] runs in the leader and writes the Secrets, one step at a time,
// as internal/pki says. The [Watcher] runs in every replica and serves what the
// Keeper wrote, once it has checked it. Both talk to the API server directly
// and watch each Secret by its name, because Ostiary may read no other. Neither
// writes a webhook configuration: the Watcher's bundle goes into their
// registration, and what is registered is an observation of the Keeper's.
package certificates
