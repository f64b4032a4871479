package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ostiary/ostiary/test/controlplane"
)

// Flags of this test, see `make conformance`.
var (
	program = flag.String("manager", "", "the manager's program; default: build it")
	only    = flag.String("case", "", "run the hand-written cases of this name, as in file/name or file, only")
	verbose = flag.Bool("progress", false, "say what is being done")
)

const root = "../.."

// suite serves all tests of the package.
var suite *Suite

func TestMain(m *testing.M) {
	flag.Parse()
	code := 1
	if err := withSuite(func() { code = m.Run() }); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withSuite starts the suite, with a manager built from this tree.
func withSuite(use func()) (err error) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path := *program
	if path == "" {
		path = filepath.Join(dir, "ostiary")
		if err := controlplane.BuildManager(ctx, root, path); err != nil {
			return err
		}
	}
	log := io.Discard
	if *verbose {
		log = os.Stderr
	}
	suite, err = Start(ctx, Options{Manager: path, Root: root, World: "testdata/world", Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, suite.Stop()) }()
	use()
	return nil
}
