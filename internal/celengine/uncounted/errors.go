package uncounted

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// unfinishedError is the value of an expression whose evaluation a panic has ended. That is a panic of a function, or
// it prevents that || and && ignore an error that an evaluation that counts costs may not have.
type unfinishedError struct{ err error }

// Error implements error.
func (e *unfinishedError) Error() string { return fmt.Sprintf("not finished: %v", e.err) }

// Unwrap implements errors.Unwrap.
func (e *unfinishedError) Unwrap() error { return e.err }

func isUnfinished(value ref.Val) bool {
	err, ok := value.(*types.Err)
	if !ok {
		return false
	}
	var unfinished *unfinishedError
	return errors.As(err, &unfinished)
}
