// Package panics turns the value of a panic into an error that is safe to log.
package panics

import (
	"fmt"
	"runtime"
)

// Error returns the error to log for the value of a panic. Only an error of the Go runtime keeps its text, because
// any other value can contain parts of a request or of an object.
func Error(value any) error {
	if err, ok := value.(runtime.Error); ok {
		return err
	}
	return fmt.Errorf("panic with a value of type %T", value)
}
