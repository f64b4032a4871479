// Command vulncheck fails if a program holds functions that the Go vulnerability database
// lists. The database is the one that hack/vulndb pins, unless -db names another, so that
// the check runs wherever Go modules can be downloaded.
//
//	go run . [-db URL] [-go-warns] PROGRAM
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

// oldest is the age of a database from which on the output has a warning.
const oldest = 90 * 24 * time.Hour

// standardLibrary is how the database calls the module of Go itself.
const standardLibrary = "stdlib"

var errVulnerable = errors.New("the program holds code with a known vulnerability: update these modules")

func main() {
	url := flag.String("db", "", `URL of a database, such as https://vuln.go.dev or file:///DIR; "" is the pinned one`)
	goWarns := flag.Bool("go-warns", false, "only warn of vulnerabilities in the standard library: it is that of the installed Go, which no change of the repository updates")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "vulncheck: give the program")
		os.Exit(2)
	}
	if err := run(context.Background(), *url, flag.Arg(0), *goWarns, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, url, program string, goWarns bool, out io.Writer) error {
	if url == "" {
		db, err := pinned(ctx)
		if err != nil {
			return fmt.Errorf("DID NOT RUN: give GOPROXY a proxy that has golang.org/x/vulndb, or name a database with VULNDB=file:///DIR: %w", err)
		}
		url = db.url()
		db.describe(out, time.Now())
	}
	fmt.Fprintf(out, "Comparing the code in %s with %s\n", program, url)
	var messages, errs bytes.Buffer
	cmd := scan.Command(ctx, "-mode", "binary", "-format", "json", "-db", url, program)
	cmd.Stdout, cmd.Stderr = &messages, &errs
	if err := errors.Join(cmd.Start(), cmd.Wait()); err != nil {
		return fmt.Errorf("running govulncheck: %w: %s", err, &errs)
	}
	found, err := read(&messages)
	if err != nil {
		return fmt.Errorf("reading what govulncheck found: %w", err)
	}
	return report(out, found, goWarns)
}

// database is a version of the module with the database.
type database struct {
	Time time.Time
	Dir  string
}

func pinned(ctx context.Context) (database, error) {
	var db database
	for _, args := range [][]string{{"mod", "download"}, {"list", "-m", "-json", "golang.org/x/vulndb"}} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = "../vulndb"
		out, err := cmd.Output()
		if err != nil {
			return db, fmt.Errorf("running %s: %w", cmd, err)
		}
		if args[0] == "list" {
			err = json.Unmarshal(out, &db)
		}
		if err != nil || args[0] == "list" && (db.Dir == "" || db.Time.IsZero()) {
			return db, fmt.Errorf("reading what %s prints: %q: %w", cmd, out, err)
		}
	}
	return db, nil
}

func (db database) url() string { return "file://" + db.Dir + "/data/osv" }

// describe prints the date, because a comparison with an old database shows less.
func (db database) describe(out io.Writer, now time.Time) {
	fmt.Fprintf(out, "The database is that of %s\n", db.Time.Format(time.DateOnly))
	if age := now.Sub(db.Time); age > oldest {
		fmt.Fprintf(out, "WARNING: it is %.0f days old: run go get golang.org/x/vulndb@latest in hack/vulndb\n", age.Hours()/24)
	}
}

// vulnerability is one that functions in the program have, in one module.
type vulnerability struct {
	id, summary, module, found, fixed string
	functions                         int
}

// read reads govulncheck's output (golang.org/x/vuln/cmd/govulncheck, -format json). It
// leaves out vulnerabilities of modules and packages whose functions the linker has not
// taken into the program.
func read(in io.Reader) ([]vulnerability, error) {
	summaries := map[string]string{}
	var all []vulnerability
	decoder := json.NewDecoder(in)
	for {
		var message struct {
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV          string
				FixedVersion string `json:"fixed_version"`
				Trace        []struct{ Module, Version, Function string }
			}
		}
		err := decoder.Decode(&message)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if osv := message.OSV; osv != nil {
			summaries[osv.ID] = osv.Summary
		}
		if f := message.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			all = count(all, vulnerability{id: f.OSV, module: f.Trace[0].Module, found: f.Trace[0].Version, fixed: f.FixedVersion})
		}
	}
	for i := range all {
		all[i].summary = summaries[all[i].id]
	}
	slices.SortFunc(all, func(a, b vulnerability) int { return strings.Compare(a.module+" "+a.id, b.module+" "+b.id) })
	return all, nil
}

// count adds a function with a vulnerability.
func count(all []vulnerability, v vulnerability) []vulnerability {
	i := slices.IndexFunc(all, func(other vulnerability) bool { return other.id == v.id && other.module == v.module })
	if i < 0 {
		all, i = append(all, v), len(all)
	}
	all[i].functions++
	return all
}

// report prints all, and returns an error if one has to fail the check.
func report(out io.Writer, all []vulnerability, goWarns bool) error {
	var failed error
	for _, v := range all {
		label, fixed := "VULNERABLE", v.fixed
		if fixed == "" {
			fixed = "no version yet"
		}
		if v.module == standardLibrary && goWarns {
			label = "WARNING"
		} else {
			failed = errVulnerable
		}
		fmt.Fprintf(out, "%s: %s in %s %s, fixed in %s, %d functions: %s (https://pkg.go.dev/vuln/%s)\n",
			label, v.id, v.module, v.found, fixed, v.functions, v.summary, v.id)
	}
	if len(all) == 0 {
		fmt.Fprintln(out, "No function in it is listed")
	}
	return failed
}
