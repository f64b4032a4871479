package output

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// terminal is what a program writes to a terminal.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// String returns what was written so far.
func (t *terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// openTerminal returns the file of a new terminal, and what is written to it.
func openTerminal(t *testing.T) (*os.File, *terminal) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal("opening a terminal: ", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	seen := &terminal{}
	go func() {
		part := make([]byte, 1024)
		for {
			n, err := master.Read(part)
			seen.mu.Lock()
			seen.text.Write(part[:n])
			seen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return file, seen
}

func TestColored(t *testing.T) {
	tests := map[string]struct {
		environment map[string]string
		want        bool
	}{
		"a terminal":         {want: true},
		"NO_COLOR":           {environment: map[string]string{"NO_COLOR": "1"}},
		"a terminal for ink": {environment: map[string]string{"TERM": "dumb"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", "")
			for key, value := range tt.environment {
				t.Setenv(key, value)
			}
			file, _ := openTerminal(t)
			if got := Colored(file).to != nil; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Run("on a terminal", func(t *testing.T) {
		g := NewWithT(t)
		file, seen := openTerminal(t)
		o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: file}}
		p := o.StartProgress("reading")
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(And(ContainSubstring("| reading"), ContainSubstring("/ reading")))
		p.Begin("evaluating", 200)
		p.Add(50)
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(ContainSubstring("[======                  ]  25% evaluating"))
		if _, err := fmt.Fprintln(p, "a note"); err != nil {
			t.Error(err)
		}
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(MatchRegexp(`a note\r\n(\r\x1b\[K)?\[======`))
		p.Stop()
		p.Stop()
		g.Eventually(seen.String).WithTimeout(time.Minute).Should(HaveSuffix("evaluating" + controlOf(controlErase)))
		if strings.Contains(seen.String(), "\x1b[3") {
			t.Errorf("there are colors in %q", seen.String())
		}
	})
	t.Run("of short work", func(t *testing.T) {
		file, seen := openTerminal(t)
		o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: file}}
		o.StartProgress("reading").Stop()
		if got := seen.String(); got != "" {
			t.Errorf("got %q, want nothing", got)
		}
	})
	for name, dumb := range map[string]bool{"in a file": false, "on a terminal without control": true} {
		t.Run(name, func(t *testing.T) {
			file, seen := openTerminal(t)
			o := &Options{IOStreams: genericiooptions.IOStreams{ErrOut: file}}
			var written bytes.Buffer
			if dumb {
				t.Setenv("TERM", "dumb")
			} else {
				o.ErrOut = &written
			}
			p := o.StartProgress("reading")
			time.Sleep(progressDelay + 2*progressInterval) // nothing happens, so there is nothing to wait for
			p.Stop()
			if got := seen.String() + written.String(); got != "" {
				t.Errorf("got %q, want nothing", got)
			}
		})
	}
}
