// Package versionskew compares the versions of Ostiary that run side by side: which changes each
// replica has loaded, and which fields of the API it knows. It is pure.
package versionskew
