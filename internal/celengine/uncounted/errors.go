package uncounted

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
)

// missingFieldError is the error of a selection. Its text is that of cel-go.
type missingFieldError struct{ key ref.Val }

// Error implements error.
func (e *missingFieldError) Error() string { return fmt.Sprintf("no such key: %v", e.key) }

// variableError is the error of an expression that reads a variable. Its text is that of Kubernetes.
type variableError struct {
	name string
	err  error
}

// Error implements error.
func (e *variableError) Error() string {
	return fmt.Sprintf("composited variable %q fails to evaluate: %v", e.name, e.err)
}

// Unwrap implements errors.Unwrap.
func (e *variableError) Unwrap() error { return e.err }

// unfinishedError is the value of an expression whose evaluation a panic has ended. That is a panic of a function, or
// it prevents that || and && ignore an error that an evaluation that counts costs may not have.
type unfinishedError struct{ err error }

// Error implements error.
func (e *unfinishedError) Error() string { return fmt.Sprintf("not finished: %v", e.err) }

// Unwrap implements errors.Unwrap.
func (e *unfinishedError) Unwrap() error { return e.err }

// IsUnfinished reports whether a value is that of an expression whose evaluation a panic has ended.
func IsUnfinished(value ref.Val) bool {
	err, ok := value.(*types.Err)
	if !ok {
		return false
	}
	var unfinished *unfinishedError
	return errors.As(err, &unfinished)
}

// exactText matches the errors, besides those of missing fields, whose whole texts depend on values alone: of indexes of
// lists, and of functions of texts.
var exactText = regexp.MustCompile(`^(index out of bounds: -?\d+|type conversion error from 'string' to '(int|uint|double)'|` +
	`No Major\.Minor\.Patch elements found|` + regexp.QuoteMeta(resource.ErrFormatWrong.Error()) + `)$`)

// IsExact reports whether an evaluation that counts costs ends with the same error, and with the same text. Others,
// such as a call without an overload, contain types of Go and numbers of syntax trees, and some are limits of a batch.
//
// TestValuesOfBatch and TestErrorsOfBatch compare them.
func IsExact(err error) bool {
	var missing *missingFieldError
	var unfinished *unfinishedError
	if errors.As(err, &unfinished) {
		return false
	}
	for v := (*variableError)(nil); errors.As(err, &v); {
		err = v.err
	}
	return errors.As(err, &missing) || exactText.MatchString(err.Error())
}
