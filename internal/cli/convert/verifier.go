package convert

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/cli/policytest"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/verify"
)

// newVerifier returns the verification with files and with the evaluation of this program.
func newVerifier() *verify.Verifier {
	return &verify.Verifier{
		Read:     readTestFile,
		Check:    checkTest,
		Recorder: func() verify.Recorder { return &explain.Recorder{} },
	}
}

func readTestFile(ctx context.Context, path string) ([]load.Object, error) {
	return load.Objects(ctx, []string{path}, load.Options{Untyped: verify.Typed})
}

// checkTest implements verify.Verifier.Check.
func checkTest(ctx context.Context, test load.Object, objects []load.Object) ([]verify.Problem, []string, error) {
	suite, err := policytest.New(ctx, test, objects)
	if err != nil {
		return nil, nil, err
	}
	found, result, err := suite.Cases[0].Check(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, policytest.Messages(result), nil
	}
	problems := make([]verify.Problem, len(found))
	for i, p := range found {
		problems[i] = verify.Problem{Text: p.Text, Why: p.Why}
	}
	return problems, nil, nil
}

// hasTests reports whether a directory has tests of other projects. Its files are read as
// they are: its kustomization, if it has one, does not contain the tests.
func hasTests(directory string) bool {
	found := false
	_ = filepath.WalkDir(directory, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && verify.IsTestFile(entry.Name()) {
			found = true
			return fs.SkipAll
		}
		return nil // the loader reports errors
	})
	return found
}
