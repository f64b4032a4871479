// Command demo shows Ostiary on a local control plane: it starts a Kubernetes control
// plane and the manager, applies the samples, and sends requests with kubectl that are
// denied, get a warning, or are allowed. Then it waits for Ctrl-C, so that the user can
// send more requests. At the end it removes every process and file that it created.
//
//	demo [-once] [-cast FILE] [-manager bin/ostiary] [-dir DIR]
//
// It runs in the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	once               bool
	manager, dir, cast string
}

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "exit after the steps; the status is 1 if a result differs from the expected one")
	flag.StringVar(&o.cast, "cast", "", "write a terminal recording to this file, in version 2 of asciinema's format")
	flag.StringVar(&o.manager, "manager", "bin/ostiary", "program of the manager")
	flag.StringVar(&o.dir, "dir", "", "parent of the temporary directory; default: that of the system")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: every setting is a flag, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	// SIGPIPE: the reader of the output has exited (demo | head).
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := record(o.cast, terminal(os.Stdout), func(out io.Writer) error { return run(ctx, o, out) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

// progress prints lines with the seconds since the start.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p progress) printf(format string, args ...any) {
	fmt.Fprintf(p.out, "[%5.1fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write implements io.Writer for the log of the control plane: one line per call.
func (p progress) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(p.out, "[%5.1fs]   %s", time.Since(p.start).Seconds(), line)
	return len(line), err
}
