// Package lookups finds stored objects by keys that they have in common with a request. It computes the keys and the
// value of each object, and keeps them in an index without the object.
//
// It is pure: watching the objects, and deciding whether an index is complete and recent, are the business of its callers.
package lookups
