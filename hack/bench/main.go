// Command bench measures the whole manager, as a process beside a real API
// server, and a controller-runtime webhook that allows everything, in the same
// run: latency, throughput, CPU per request, memory, the time from applying a
// policy until it is enforced, and what is answered after a cold start. Then it
// compares Ostiary with the engine in the API server, of two versions. It prints
// tables in Markdown and says which budgets are met. With -base it measures only the CPU
// per request, of two managers in turn, and prints lines for benchstat instead; with
// -exceptions it does so for one manager with and without exceptions.
//
//	bench [-sets A,B,C,D,R,R2,V,P1000] [-compare sets,params,mutations,matching|R2] [-scale 10000]
//		[-rounds 3] [-duration 3s] [-short] [-check] [-slack 2] [-manager bin/ostiary] [-base FILE] [-exceptions 0]
//		[-later bin/k8s-1.37/kube-apiserver] [-out docs/performance/results.md]
//
// It runs in the root of the repository, on Linux, and leaves no process and no
// file behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ostiary/ostiary/test/bench"
)

type options struct {
	sets     []string
	compare  []string
	scale    int
	rounds   int
	duration time.Duration
	idle     time.Duration
	check    bool
	slack    float64
	manager  string
	base     string
	// exceptions is the number of exceptions with which the CPU per request is compared with that without any.
	exceptions int
	later      string
	out        string
}

// errNotMet is the answer to -check.
var errNotMet = errors.New("a budget is not met")

func main() {
	o, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(2)
	}
	// Not SIGPIPE: connections to a manager that was killed break, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err = run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	known := []string{bench.A, bench.B, bench.C, bench.D, bench.R, bench.R2, bench.V, bench.Probes}
	sets := flags.String("sets", strings.Join(known, ","),
		"sets of policies; with C the cold start is measured too, with P1000 only the time to enforcement; \"\" is none")
	compare := flags.String("compare", strings.Join(comparisons(), ","),
		"what is compared with the engine in the API server, also one set by its name; \"\" is nothing")
	flags.IntVar(&o.scale, "scale", 10_000, "how many policies are held at once to see what that costs; 0 is none")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each thing is measured; the median counts")
	flags.DurationVar(&o.duration, "duration", 3*time.Second, "length of each measurement")
	flags.DurationVar(&o.idle, "idle", time.Minute, "how long a manager at rest is watched, with 0, 100 and 1,000 policies; 0 is not at all")
	short := flags.Bool("short", false, "one round of 1 s, to see that all works")
	flags.BoolVar(&o.check, "check", false, "fail when a budget is not met")
	flags.Float64Var(&o.slack, "slack", 1, "by what factor a figure may exceed its budget before -check fails")
	flags.StringVar(&o.manager, "manager", "bin/ostiary", "the manager's program")
	flags.StringVar(&o.base, "base", "",
		"the program of another revision of the manager, which the CPU per request with the sets is compared with; \"\" is none")
	flags.IntVar(&o.exceptions, "exceptions", 0,
		"the number of exceptions with which the CPU per request is compared with that without any; 0 is no comparison")
	flags.StringVar(&o.out, "out", "", "a file for the report, as a page of the documents, instead of standard output")
	flags.StringVar(&o.later, "later", "bin/k8s-1.37/kube-apiserver",
		"the kube-apiserver of a later version, which comparisons measure too; \"\" is none")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if *short {
		o.rounds, o.duration, o.idle = 1, time.Second, min(o.idle, time.Second)
	}
	var err error
	if o.sets, err = choose(*sets, known); err != nil {
		return o, fmt.Errorf("-sets: %w", err)
	}
	if o.compare, err = choose(*compare, slices.Concat(comparisons(), comparedSets())); err != nil {
		return o, fmt.Errorf("-compare: %w", err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: every setting is a flag, see -help", flags.Arg(0))
	}
	return o, o.validate()
}

func (o options) validate() error {
	switch {
	case o.slack < 1:
		return fmt.Errorf("-slack: %g: give 1 or more", o.slack)
	case o.rounds < 1 || o.rounds > 100:
		return fmt.Errorf("-rounds: %d: give 1 to 100", o.rounds)
	case o.scale != 0 && (o.scale < scaleChanges || o.scale > 50_000):
		return fmt.Errorf("-scale: %d: give 0, or %d to 50000", o.scale, scaleChanges)
	case o.duration < 100*time.Millisecond || o.duration > time.Minute:
		return fmt.Errorf("-duration: %s: give 100ms to 1m", o.duration)
	case o.exceptions < 0 || o.exceptions > 20_000:
		return fmt.Errorf("-exceptions: %d: give 0 to 20000", o.exceptions)
	case o.idle < 0 || o.idle > time.Hour:
		return fmt.Errorf("-idle: %s: give 0 to 1h", o.idle)
	}
	return nil
}

// choose splits a list of known names; "" is none of them.
func choose(list string, known []string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown name %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}

// run measures and reports. However it ends, nothing of it is left.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.base != "" {
		return compareRevisions(ctx, o, out)
	}
	if o.exceptions > 0 {
		return compareExceptions(ctx, o, out)
	}
	r := report{slack: o.slack, duration: o.duration, flags: strings.Join(os.Args[1:], " "), date: time.Now().UTC(), commit: commit(ctx)}
	if r.compiled, err = measureCompiled(); err != nil {
		return err
	}
	w, err := newWorld(ctx, o, log.New(os.Stderr, "", log.Ltime))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r.versions = w.versions
	for _, set := range o.sets {
		if set == bench.Probes {
			r.enforced, err = w.measureEnforcement(ctx)
		} else {
			err = w.measureSet(ctx, set, &r)
		}
		if err != nil {
			return fmt.Errorf("measuring set %s: %w", set, err)
		}
	}
	if o.idle > 0 {
		if r.idle, err = w.measureIdle(ctx); err != nil {
			return err
		}
	}
	if len(o.compare) > 0 {
		if err := w.measureComparisons(ctx, o.compare, &r); err != nil {
			return err
		}
	}
	if o.scale > 0 {
		if r.scale, err = w.measureScale(ctx, o.scale); err != nil {
			return fmt.Errorf("measuring scale: %w", err)
		}
	}
	return r.finish(out, o)
}

// finish writes the report, and returns errNotMet if a budget that is checked is exceeded.
func (r *report) finish(out io.Writer, o options) error {
	if err := r.write(out, o.out); err != nil {
		return err
	}
	if o.check && !r.met() {
		return errNotMet
	}
	return nil
}

// commit is the short name of the checked-out commit; "" if git does not say.
func commit(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	return strings.TrimSpace(string(out))
}
