// Package pki makes and checks the certificates that Ostiary serves, and
// decides what has to be done next to keep them valid.
//
// It is pure: it knows neither the API server nor the clock. The time and the
// source of randomness are arguments. [Next] looks at a [State] and names one
// [Action]; [Apply] carries that action out on a copy of the state. Whoever
// calls them stores the result, reads it back, and asks again.
//
// When a CA is replaced, the new one is trusted beside the old one for a while
// before a leaf of it is served (see [Config.Overlap]), and the old one stays
// trusted until it expires. A rotation in which the old CA also signs the new
// one, and in which the old one is dropped as soon as no replica needs it, is
// not built yet; the epoch that counts the CAs is.
package pki
