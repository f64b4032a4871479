package cptest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// QueueVariable names a folder with a file for each test that waits, such as 012-TestMetrics.
// Processes share the tests in it: each takes the next one when it has ended one.
const QueueVariable = "OSTIARY_TEST_QUEUE"

// Queued gives what runs the tests of the queue, in the order of their files, or m itself if
// there is no queue.
func Queued(m Runner) Runner {
	folder := os.Getenv(QueueVariable)
	if folder == "" {
		return m
	}
	return queue{folder: folder, run: func(test string) (int, error) {
		if err := flag.Set("test.run", "^"+test+"$"); err != nil {
			return 0, fmt.Errorf("choosing the test %s: %w", test, err)
		}
		return m.Run(), nil
	}}
}

type queue struct {
	folder string
	run    func(test string) (code int, err error)
}

// Run returns 1 if a test has failed.
func (q queue) Run() (code int) {
	for {
		test, err := q.take()
		if err == nil && test == "" {
			return code
		}
		got := 1
		if err == nil {
			got, err = q.run(test)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code = max(code, min(got, 1))
	}
}

// take removes the first file from the folder, which only one process can, and returns the
// name of its test; "" if there is none.
func (q queue) take() (string, error) {
	files, err := os.ReadDir(q.folder)
	if err != nil {
		return "", fmt.Errorf("reading the queue of tests: %w", err)
	}
	for _, file := range files { // sorted by name
		err := os.Remove(filepath.Join(q.folder, file.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("taking a test from the queue: %w", err)
		}
		_, test, _ := strings.Cut(file.Name(), "-")
		return test, nil
	}
	return "", nil
}
