//go:build !linux

package manager

import "math"

// maxFiles returns the number of files that this process may open. It is known on Linux only, on which replicas
// run.
func maxFiles() int { return math.MaxInt32 }
