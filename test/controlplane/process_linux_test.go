package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// The signal that ends a child with its parent comes when the thread that started
// the child ends. A caller whose thread ends must not take the process with it.
func TestProcessOutlivesTheCallersThread(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		p   *process
		err error
		tid int
	}
	results := make(chan result)
	var start func()
	start = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go start() // the first thread of a program never ends
			return
		}
		p, err := startProcess(sleep, []string{"600"}, nil, t.TempDir(), filepath.Join(t.TempDir(), "log"))
		results <- result{p, err, syscall.Gettid()}
	}
	go start()
	r := <-results
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.p.kill()
	NewWithT(t).Eventually(func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(r.tid))
		return os.IsNotExist(err)
	}, time.Minute, interval).Should(BeTrue(), "the thread ends")
	select {
	case <-r.p.done:
		t.Errorf("the process ended with the thread: %v", r.p.err)
	case <-time.After(300 * time.Millisecond):
	}
}
