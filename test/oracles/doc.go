// Package oracles compares converted policies with the engines of the projects that they come
// from. Each engine is a program in a module of its own below this folder, because it needs
// other versions of Kubernetes and CEL. It answers questions as JSON, one per line.
//
// A seeded generator makes policies over the whole format of a project, and requests about
// objects of many kinds. The policies of the converters' own tests are compared too. Where the
// conversion reports that it leaves out a rule, nothing is compared. Otherwise both engines
// must admit the same requests and return the same objects, except for the differences that
// docs/migration/engine-differences.md lists.
package oracles
