// Package pki makes and checks the certificates that Ostiary serves, and
// decides what has to be done next to keep them valid.
//
// It is pure: it knows neither the API server nor the clock. The time and the
// source of randomness are arguments. [Next] looks at what is stored, a
// [State], and at what else there is to see, an [Observed], and names one
// [Action]; [Apply] carries that action out on a copy of the state. Whoever
// calls them stores the result, reads it back, and asks again. What a replica
// presents of what is stored is decided by [Held].
//
// When a CA is replaced, the old one certifies the key of the new one. This
// bridge stands in the chain of the new leaf, so whoever trusts only the old CA
// accepts it too, and nobody has to wait for anybody until the old CA is
// dropped. Where there is no bridge, because the key of the old CA is lost, the
// new CA gets known before it is used. The model in the tests of this package
// is the proof that no served chain is ever refused.
package pki
