// Package plugins is the catalogue of admission plugins: those of the API
// server that only its owner can switch on or configure, as policies. A policy
// names one, with the configuration that the API server's own plugin of that
// name reads:
//
//	spec:
//	  plugin: {name: PodNodeSelector, config: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=general}}}
//
// A policy with a plugin is a policy like any other: it is compiled, registered
// in call groups, guarded, counted and reported on as one with expressions. Its
// matchConstraints narrow what the plugin is for, its matchConditions are
// evaluated before the plugin is asked, and the validationActions of its
// bindings say what a refusal comes to.
//
// # Adding a plugin
//
//  1. api/v1alpha1/plugin_types.go: a constant for its name, the name in the Enum
//     of PluginName, and its PluginTraits; then `make generate manifests`.
//  2. A package of its own below this one, with a type that implements
//     policy.Mutator, policy.Validator or both, a Config that takes the native
//     configuration as it is, and a function Definition. See define for reading
//     configurations, and alwayspullimages for the least that there can be.
//     Optional methods: Needs (see Needs) lists the kinds that it reads, which are
//     watched while a policy uses it and read with Call.List; Conditions are
//     matchConditions that every policy gets with it (see Conditions); After takes
//     over what the plugin of the policy's generation before remembers (see
//     policy.Keeper).
//  3. The Definition in All, below; config/rbac/plugins_role.yaml for what it
//     reads; a page docs/plugins/<name-in-kebab-case>.md with a sample in a block
//     of YAML, a row in docs/plugins.md, and cases in test/plugins.
//
// A page has two marks, as the other pages do, between which `make manifests`
// writes a table of the fields of Config: their JSON tags, types and comments. So
// each field has a comment, which begins with the field's name and ends with its
// default: "seconds is how long. Default: 300." Fields of structs that are
// declared in this module are written too, those of others are not. A plugin
// without settings has a define.None, and no marks in its page.
//
// A plugin refuses with Call.Forbid, or any other 4xx of apimachinery's
// api/errors, in the words of the native one. Any other error follows
// failurePolicy. In the mutating phase it changes a copy of the unstructured
// object, never a Go value that is then written back: fields that this program
// does not know must stay.
package plugins
