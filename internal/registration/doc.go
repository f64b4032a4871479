// Package registration turns policies, an endpoint and a CA bundle into the
// webhook configurations that make the API server call Ostiary. It is pure:
// equal input, in whatever order, gives equal bytes, and no argument is changed.
//
// # Call groups
//
// A policy is called in the mutating phase for its mutations, and in the
// validating phase for its validations and auditAnnotations. What follows holds
// for each phase by itself.
//
// Policies whose registration is equal in everything but their resourceRules
// share a call group: one configuration object with one webhook, so that a
// request which matches twenty of them costs one call. The webhook's rules are
// the union of the members' rules. resourceNames, excludeResourceRules and
// matchConditions are evaluated where the call is answered; as far as the API
// server can evaluate them too, they are a match condition, which has to be equal
// in a group; see package pushdown. Selectors
// are part of what has to be equal and are never merged with those of other
// policies, nor widened, so an outage affects the requests that the members
// select and no others.
//
// # Bindings
//
// Bindings are evaluated where the call is answered. Where a policy has one
// binding only, and the requests that it does not match can be left out
// exactly, they are not sent either; see selectors.
//
// # Mutations
//
// API servers call mutating webhooks one after the other, in the order of their
// configurations' names. These begin with the policies' order in four digits,
// which is part of what has to be equal in a group. Members of a group are
// applied in the order of their names, and so they are when the group is
// divided: each part holds the names between those of its neighbours. Groups of
// the same order that differ in anything else, such as a selector or the
// failurePolicy, are called in an order that says nothing about the names of
// their policies: where that matters, the policies need different orders.
//
// Mutations are not called for DELETE: it is left out of their rules.
//
// # Versions
//
// With matchPolicy Equivalent the API server converts a request to a version
// that a webhook asks for, and sends each webhook one version. If a policy
// written for apps/v1 and one written for apps/v1beta1 shared a webhook, one of
// them would be shown objects of the other's version. The versions are
// therefore part of what has to be equal; see versionSignature. Resources that
// are equivalent across API groups need the same care; events, the only such
// resource that API servers still have, get it where they are let through.
//
// # Large groups
//
// A group is divided when it grows beyond MaxMembers: validations by resource,
// so that a request meets few groups, mutations by name; see divideByAddress and
// divideByName.
//
// # Backends
//
// A policy with a backend has a configuration of its own, which is named after
// the policy and calls the backend instead of Ostiary. What the API server is to
// verify the backend's certificate with is part of the entry (WithBundle). Its
// matchConditions are part of the webhook, after the guard.
//
// # Guards
//
// The namespaceSelector of a webhook leaves out the exempt namespaces by their
// label kubernetes.io/metadata.name. For CREATE and UPDATE of objects whose
// resource is called namespaces, in any API group, the API server evaluates the
// selector on the labels of the object itself. It sets that label to the name each
// time it decodes or patches a Namespace, but a Namespace that is created with
// generateName has no name in the mutating phase, and custom resources keep the
// label that the client wrote. Webhooks whose rules can match such objects leave
// out the exempt namespaces by a condition on the request instead; see borrowable.
// Only these do: a condition is evaluated for every request that the rules match.
//
// No webhook is called for the resources that guarded lists. Rules that cannot
// match one of them need nothing; rules with wildcards that can get one
// matchCondition. It has an exception where policies say allowCriticalResources,
// for the resources of critical that their rules name; those are part of what
// has to be equal in a group. What neverCalled lists has none.
package registration
