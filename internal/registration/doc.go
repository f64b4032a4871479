// Package registration generates the webhook configurations that make API servers
// call Ostiary, from policies, an endpoint and a CA bundle. It is pure: equal
// input in any order gives equal bytes, and no function changes its arguments.
//
// The functions are called in this order: Prepare for each policy (entry.go), Build for the
// plan of all (registration.go), HoldAtIgnore (hold.go) and Diff (diff.go) for what is to be
// written, and View for what is registered (registered.go). The other files hold what these
// use, and configurations that are no part of a plan (own.go).
//
// # Call groups
//
// A policy is called in the mutating phase for its mutations, and in the
// validating phase for its validations and auditAnnotations. The following
// applies to each phase separately.
//
// Policies that have equal settings share a call group: one configuration with one
// webhook, so that a request that matches twenty of them costs one call. Settings
// are everything in a registration except resourceRules. The webhook's rules are
// the union of the members' rules. Ostiary evaluates resourceNames,
// excludeResourceRules and matchConditions when it answers the call. If the API
// server can evaluate them too, they are delegated to it as a match condition,
// which is part of the settings; see package matchconditions. Selectors are part
// of the settings too. They are never merged with those of other policies, and
// never widened, so an outage affects only requests that the members select.
//
// # Bindings
//
// Ostiary evaluates bindings when it answers the call. If a policy has exactly one
// binding, requests that the binding does not match are not sent, as far as a
// selector can exclude exactly these; see selectors.
//
// # Mutations
//
// API servers call mutating webhooks one after the other, in the order of their
// configurations' names. The names begin with spec.order in four digits, which is
// one of the settings of a group. The mutations of a group are applied in the order
// of the policies' names, also if the group is divided: each part contains
// consecutive names. Groups with the same order and different other settings, such
// as a selector or the failurePolicy, are called in an order that does not depend
// on the names of their policies. If their order matters, the policies need
// different values of spec.order.
//
// Rules of mutations do not contain DELETE.
//
// # Versions
//
// With matchPolicy Equivalent the API server converts a request to a version
// in the rules of a webhook, and sends each webhook one version. If a policy for
// apps/v1 and one for apps/v1beta1 shared a webhook, one of them would get objects
// of the other's version. The versions are therefore part of the settings; see
// versionSignature. The same applies to resources that are equivalent across API
// groups. Events are the only such resource of current API servers.
//
// Requests in v1 are an exception: policies whose rules contain v1 or "*" get them
// without conversion. They can have a group of their own for these requests, which
// policies with different versions share; see separation.
//
// # Large groups
//
// A group with more than MaxMembers policies is divided: validations by resource,
// so that a request matches few groups, mutations by name. See divideByHash and
// divideByName.
//
// # Backends
//
// A policy with a backend has its own configuration, which is named after the
// policy and calls the backend instead of Ostiary. The CA bundle of the backend is
// part of the entry (WithBundle). The policy's matchConditions are part of the
// webhook, after the guard.
//
// # Guards
//
// The namespaceSelector of a webhook excludes the exempt namespaces by their
// label kubernetes.io/metadata.name. For CREATE and UPDATE of objects whose
// resource is called namespaces, in any API group, the API server evaluates the
// selector on the labels of the object itself. It sets that label to the name each
// time it decodes or patches a Namespace, but a Namespace that is created with
// generateName has no name in the mutating phase, and custom resources keep the
// label that the client wrote. Webhooks whose rules can match such objects exclude
// the exempt namespaces by a match condition on the request instead; see
// guard.LabelsUntrusted. Other webhooks do not, because API servers evaluate a match
// condition for every request that the rules match.
//
// No webhook is called for guarded resources; see package guard. Rules with wildcards
// that can match one of them get a match condition. If a policy sets
// allowCriticalResources, the match condition has an exception for the critical
// resources that the policy's rules name. These resources are part
// of the settings. Some API groups have no exception (guard.NeverCalled).
package registration
