package cptest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func newQueue(t *testing.T, tests int) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for i := range tests {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%03d-Test%d", i, i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestQueueIsShared checks that several processes run each test once, and their exit codes.
func TestQueueIsShared(t *testing.T) {
	const tests, processes = 200, 4
	folder := newQueue(t, tests)
	var mu sync.Mutex
	var failed int
	ran := map[string]int{}
	codes := make([]int, processes)
	var running sync.WaitGroup
	for i := range processes {
		running.Go(func() {
			codes[i] = queue{folder: folder, run: func(test string) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				if ran[test]++; test == "Test100" {
					failed = i
					return 2, nil
				}
				return 0, nil
			}}.Run()
		})
	}
	running.Wait()
	for i := range tests {
		if n := ran[fmt.Sprint("Test", i)]; n != 1 {
			t.Errorf("test %d ran %d times, want once", i, n)
		}
	}
	for i, code := range codes {
		if want := map[bool]int{true: 1}[i == failed]; code != want {
			t.Errorf("process %d has the exit code %d, want %d", i, code, want)
		}
	}
}

func TestQueue(t *testing.T) {
	var order []string
	note := func(test string) (int, error) {
		order = append(order, test)
		return 0, nil
	}
	for name, tc := range map[string]struct {
		folder    string
		run       func(string) (int, error)
		wantCode  int
		wantOrder []string
	}{
		"no test":   {folder: newQueue(t, 0), run: note},
		"in order":  {folder: newQueue(t, 3), run: note, wantOrder: []string{"Test0", "Test1", "Test2"}},
		"no folder": {folder: filepath.Join(t.TempDir(), "none"), run: note, wantCode: 1},
		"a test that cannot be chosen": {
			folder: newQueue(t, 2), run: func(string) (int, error) { return 0, errors.New("no such flag") }, wantCode: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			order = nil
			if code := (queue{folder: tc.folder, run: tc.run}).Run(); code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			if !slices.Equal(order, tc.wantOrder) {
				t.Errorf("ran %q, want %q", order, tc.wantOrder)
			}
		})
	}
}

func TestQueued(t *testing.T) {
	m := &runs{code: 3}
	t.Run("without a queue", func(t *testing.T) {
		if code := Queued(m).Run(); code != 3 || m.times != 1 {
			t.Errorf("exit code %d after %d runs, want 3 after one", code, m.times)
		}
	})
	t.Run("with a queue", func(t *testing.T) {
		t.Setenv(QueueVariable, newQueue(t, 0))
		if code := Queued(m).Run(); code != 0 || m.times != 1 {
			t.Errorf("exit code %d after %d runs, want 0 and no further run", code, m.times)
		}
	})
}

// runs counts its runs.
type runs struct{ code, times int }

func (r *runs) Run() int {
	r.times++
	return r.code
}
