package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	loopback = "127.0.0.1"
	// gracePeriod is what a process gets to end by itself.
	gracePeriod = 20 * time.Second
	// tailBytes bounds what an error shows of a log.
	tailBytes = 3000
)

// process is one child of ours.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and been waited for
	err  error         // how it ended; read after done
}

// startProcess starts a program that appends its output to the file log.
func startProcess(path string, args, env []string, home, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer output.Close()
	cmd := exec.Command(path, args...)
	// Nothing else is inherited: etcd takes ETCD_* for flags.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	cmd.Env = append(cmd.Env, env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, output, output
	cmd.SysProcAttr = childAttributes()
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	return p, <-started
}

// run is the life of the process. The signal that ends it together with its
// parent is tied to the thread that started it, not to our whole process, so this
// goroutine keeps the thread for as long as the child lives.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// terminate asks the process to end, and kills it when it does not.
func (p *process) terminate(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends the process now. Process.Kill knows whether it has been waited for,
// so this never meets a stranger that got the same pid.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when it has ended
	<-p.done
}

// tail returns the end of a log file, whole lines only.
func tail(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	cut := false
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, err = f.Seek(-tailBytes, io.SeekEnd)
		cut = err == nil
	}
	content, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	text := string(content)
	if _, rest, ok := strings.Cut(text, "\n"); cut && ok {
		text = rest
	}
	return strings.TrimSpace(text)
}
