package manager

import (
	"math"
	"syscall"
)

// maxFiles returns the number of files that this process may open. The Go runtime has raised it to the hard limit.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32 // unknown
	}
	return int(min(limit.Cur, math.MaxInt32))
}
