// Package flux tests the objects of Flux that the documents show with Flux's kustomize-controller, which `make flux-check`
// builds from the module in the folder controller, and with a real API server.
package flux
