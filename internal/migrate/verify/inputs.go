package verify

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ostiary/ostiary/internal/load"
)

// fileOfKyverno is the name of a file with a Test. Former versions of Kyverno need no
// apiVersion and kind in it.
const fileOfKyverno = "kyverno-test.yaml"

// IsTestFile reports whether a file of this name has tests of another project.
func IsTestFile(name string) bool { return name == fileOfKyverno || name == "suite.yaml" }

// Typed returns a document without apiVersion and kind as what Kyverno reads it as; nil if
// it is neither a test nor what a test reads.
func Typed(at load.Position, raw []byte) []byte {
	kind := ""
	switch {
	case filepath.Base(at.File) == fileOfKyverno && bytes.Contains(raw, []byte(`"results"`)):
		kind = "Test"
	case slices.ContainsFunc(
		[]string{`"policies"`, `"globalValues"`, `"namespaceSelector"`},
		func(key string) bool { return bytes.Contains(raw, []byte(key)) },
	):
		kind = "Values"
	case bytes.Contains(raw, []byte(`"userInfo"`)):
		kind = "UserInfo"
	default:
		return nil
	}
	return append(
		[]byte(`{"apiVersion":"cli.kyverno.io/v1alpha1","kind":"`+kind+`",`),
		bytes.TrimPrefix(raw, []byte("{"))...,
	)
}

// References reads the files with policies that tests name and that are not among the
// objects. Files that cannot be read are reported when their tests run.
func (v *Verifier) References(ctx context.Context, objects []load.Object) []load.Object {
	var known []string
	for i := range objects {
		known = append(known, filepath.Clean(objects[i].At("").File))
	}
	var out []load.Object
	for i := range objects {
		o := &objects[i]
		if !Owns(o.GroupVersionKind().GroupKind()) {
			continue
		}
		f := &testReader{verifier: v, test: o, known: map[string][]load.Object{}}
		for _, name := range f.policies() {
			path := f.path(name)
			if strings.Contains(name, "://") || slices.ContainsFunc(
				known,
				func(k string) bool { return k == path || strings.HasPrefix(k, path+string(filepath.Separator)) },
			) {
				continue
			}
			known = append(known, path)
			if found, err := f.file(ctx, "", name); err == nil {
				out = append(out, found...)
			}
		}
	}
	return out
}

// policies returns the names of the files with policies of a test.
func (f *testReader) policies() (names []string) {
	if f.test.Kind == "Suite" {
		var s gatorSuite
		if f.test.Read(&s) == nil {
			for i := range s.Tests {
				names = append(names, s.Tests[i].Template, s.Tests[i].Constraint)
			}
		}
		return slices.DeleteFunc(names, func(n string) bool { return n == "" })
	}
	var t kyvernoTest
	if f.test.Read(&t) == nil {
		names = slices.Concat(t.Policies, t.Exceptions)
	}
	return names
}
