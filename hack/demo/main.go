// Command demo shows Ostiary on a local control plane: it starts a Kubernetes control
// plane and the manager, applies the samples, and sends requests with kubectl that are
// denied, get a warning, or are allowed. It explains a denial, and finds existing objects that
// violate a policy. Then it waits for Ctrl-C, so that the user can send more requests. At the
// end it removes every process and file that it created.
//
//	demo [-once] [-cast FILE] [-manager bin/ostiary] [-cli bin/kubectl-ostiary] [-dir DIR]
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
	"strings"
	"syscall"
	"time"

	"github.com/ostiary/ostiary/internal/cli/output"
)

type options struct {
	once                    bool
	manager, cli, dir, cast string
}

func main() {
	var o options
	flag.BoolVar(&o.once, "once", false, "exit after the steps; the status is 1 if a result differs from the expected one")
	flag.StringVar(&o.cast, "cast", "", "write a terminal recording to this file, in version 2 of asciinema's format")
	flag.StringVar(&o.manager, "manager", "bin/ostiary", "program of the manager")
	flag.StringVar(&o.cli, "cli", "bin/kubectl-ostiary", "the plugin of kubectl")
	flag.StringVar(&o.dir, "dir", "", "parent of the temporary directory; default: that of the system")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "demo: unexpected argument %q: every setting is a flag, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	// SIGPIPE: the reader of the output has exited (demo | head).
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	err := record(o.cast, os.Stdout, func(out io.Writer) error { return run(ctx, o, out) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		os.Exit(1)
	}
}

// progress prints lines with the seconds since the start.
type progress struct {
	out   io.Writer
	style output.Style
	start time.Time
}

// newProgress returns one with colors for a terminal and for a recording, which TestRecordingIsCurrent reads.
func newProgress(out io.Writer) progress {
	style := output.Colored(out)
	if _, ok := out.(recorder); ok {
		style = output.ColoredRecording(out)
	}
	return progress{out: out, style: style, start: time.Now()}
}

func (p progress) printf(format string, args ...any) {
	at := fmt.Sprintf("[%5.1fs]", time.Since(p.start).Seconds())
	fmt.Fprintf(p.out, "%s %s\n", output.Paint(p.style, output.Faint, at), output.Paint(p.style, output.Bold, fmt.Sprintf(format, args...)))
}

// command prints a command, as a user types it.
func (p progress) command(args []string) {
	fmt.Fprintf(p.out, "\n%s\n", output.Paint(p.style, output.Cyan, "$ "+commandLine(args)))
}

// result prints what kubectl writes: denials in red and warnings in yellow.
func (p progress) result(r result, meaning string) {
	color := output.Yellow
	if r.exit != 0 { // the reason is last
		color = output.Red
		fmt.Fprint(p.out, r.stdout)
		r.stdout = ""
	}
	for line := range strings.Lines(r.stderr) {
		fmt.Fprintln(p.out, output.Paint(p.style, color, strings.TrimSuffix(line, "\n")))
	}
	fmt.Fprint(p.out, r.stdout)
	fmt.Fprintf(p.out, "%s\n\n", output.Paint(p.style, output.Green, "# "+meaning))
}

// Write implements io.Writer for the log of the control plane: one line per call.
func (p progress) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(p.out, "%s   %s", output.Paint(p.style, output.Faint, fmt.Sprintf("[%5.1fs]", time.Since(p.start).Seconds())), line)
	return len(line), err
}
