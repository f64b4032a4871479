// Package registration turns policies, an endpoint and a CA bundle into the
// webhook configurations that make the API server call Ostiary. It is pure:
// equal input, in whatever order, gives equal bytes, and no argument is changed.
//
// # Call groups
//
// Policies whose registration is equal in everything but their resourceRules
// share a call group: one configuration object with one webhook, so that a
// request which matches twenty of them costs one call. The webhook's rules are
// the union of the members' rules. resourceNames and excludeResourceRules are
// left out of them: they are evaluated where the call is answered. Selectors
// are part of what has to be equal and are never merged or widened, so an
// outage affects the requests that the members select and no others.
//
// # Versions
//
// With matchPolicy Equivalent the API server converts a request to a version
// that a webhook asks for, and sends each webhook one version. If a policy
// written for apps/v1 and one written for apps/v1beta1 shared a webhook, one of
// them would be shown objects of the other's version. The versions are
// therefore part of what has to be equal; see versionSignature. Resources that
// are equivalent across API groups would need the same care, but events, the
// only such resource that API servers still have, are guarded.
//
// # Large groups
//
// A group is divided when it grows beyond MaxMembers; see divide.
//
// # Guards
//
// The namespaceSelector of every webhook leaves out the exempt namespaces by
// their label kubernetes.io/metadata.name. For Namespace objects, which are
// cluster-scoped, the API server evaluates the same selector: on their own
// labels for CREATE and UPDATE, on the stored labels otherwise. It sets that
// label to the name, whatever the client or another webhook wrote, each time it
// decodes or patches a Namespace, so the label can neither be removed to reach
// an exempt namespace nor borrowed to escape a policy. No other cluster-scoped
// object belongs to a namespace, so none needs a condition of its own.
//
// No webhook is called for the resources that guarded lists. Rules that cannot
// match one of them need nothing; rules with wildcards that can get one
// matchCondition.
package registration
