// Package plugins is the catalogue of admission plugins: plugins of the API server that
// only its owner can enable or configure, as policies. A policy names one, with the
// configuration of the native plugin:
//
//	spec:
//	  plugin: {name: PodNodeSelector, config: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=general}}}
//
// A policy with a plugin is compiled, registered, counted and reported like one with
// expressions. Its matchConstraints narrow the rules of the plugin, its matchConditions are
// evaluated before the plugin, and the validationActions of its bindings define the effect
// of a denial.
//
// # Adding a plugin
//
//  1. api/v1alpha1/plugin_types.go: a constant for its name, the name in the Enum of
//     PluginName, and its PluginTraits; then `make generate manifests`.
//  2. A package below this one, with a type that implements pluginapi.Mutator,
//     pluginapi.Validator or both, a Config with the native configuration, and a function
//     Definition. See define for decoding configurations, and alwayspullimages for the
//     smallest example. Optional methods: Needs returns the kinds that it reads, which
//     are watched while a policy uses it, and read with Call.List; Conditions returns
//     matchConditions for every policy with the plugin; InheritState takes over the state
//     of the previous generation (see pluginapi.StatefulPlugin).
//  3. The Definition in All, below; config/rbac/plugins_role.yaml for what it reads; a section of
//     a page in docs/plugins, with its name as the heading and a policy in a block of YAML, a
//     row in docs/policies/plugins.md, and cases in test/plugins.
//
// The section has two markers, between which `make manifests` writes a table of the fields of
// Config: their JSON tags, types and comments. So each field has a comment that begins with
// the name of the field and ends with its default: "seconds is the duration. Default: 300."
// Fields of structs that are declared in this module are included. A plugin without
// settings has a define.None, and no markers.
//
// A plugin denies with Call.Forbid, or any other 4xx of apimachinery's api/errors, with the
// message of the native one. For any other error failurePolicy decides. In the mutating
// phase it changes a copy of the unstructured object, and never writes a Go value back, so
// that unknown fields are kept.
package plugins
