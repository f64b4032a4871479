// Package chaos breaks what Ostiary depends on, and Ostiary itself, under load,
// and counts what requests notice of it.
//
// Everything is real: two kube-apiservers on an etcd of one member or three,
// and three processes of the manager behind an address that follows their
// readiness as a Service does. All that a manager asks the API servers goes
// through a gateway of its own, where it can be held, delayed or lost. 100
// requests a second go through both API servers, each with the answer that it
// has to get. The API servers' audit logs are the second witness.
//
// Scenarios run one after the other: make chaos, or make chaos SCENARIO=name.
package chaos
