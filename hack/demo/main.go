// Command demo shows Ostiary at work: it starts a Kubernetes control plane and
// the manager, applies the samples, and has the real kubectl show one request
// refused, one warned about and one allowed. Then it stays, for its user to try
// more, and leaves no process and no file behind when it ends.
//
//	demo [-once] [-manager bin/ostiary] [-dir DIR]
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
	once         bool
	manager, dir string
}

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "end after the show; fail if it did not go as said")
	flag.StringVar(&o.manager, "manager", "bin/ostiary", "the manager's program")
	flag.StringVar(&o.dir, "dir", "", "folder to make the temporary directory in; default: the system's")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: every setting is a flag, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	// A reader that goes away (demo | head) is a reason to end like any other.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

// progress tells what is being done, with the seconds since the start.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p progress) say(format string, args ...any) {
	fmt.Fprintf(p.out, "[%5.1fs] %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write takes one line, as the control plane reports its steps.
func (p progress) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(p.out, "[%5.1fs]   %s", time.Since(p.start).Seconds(), line)
	return len(line), err
}
