package output

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// progressDelay is how long a command works before it shows its progress, and
	// progressInterval the time between two updates.
	progressDelay, progressInterval = time.Second, 200 * time.Millisecond
	// barWidth is the number of characters of a bar.
	barWidth = 24
)

// Progress shows the progress of a command on one line of a terminal: a bar, or a spinner if
// the end is not known. It has no colors. Elsewhere it shows nothing. It is safe for
// concurrent use.
type Progress struct {
	done  atomic.Int64
	stop  chan struct{}
	once  sync.Once
	drawn sync.WaitGroup

	mu    sync.Mutex
	out   io.Writer
	shown bool // there is a line to erase
	text  string
	total int64
}

// StartProgress shows progress on stderr from one second on, if that is a terminal. The
// caller stops it before it writes a result.
func (o *Options) StartProgress(text string) *Progress {
	p := &Progress{out: o.ErrOut, text: text, stop: make(chan struct{})}
	if IsTerminal(o.ErrOut) && os.Getenv("TERM") != "dumb" {
		p.drawn.Go(p.run)
	}
	return p
}

// Begin starts the next part of the work. A total of 0 is not known.
func (p *Progress) Begin(text string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.total = text, total
	p.done.Store(0)
}

// Add adds to the part of the total that is done.
func (p *Progress) Add(n int64) { p.done.Add(n) }

// Write writes whole lines to stderr, above the progress.
func (p *Progress) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	return p.out.Write(lines)
}

// Stop erases the progress. It can be called again.
func (p *Progress) Stop() {
	p.once.Do(func() { close(p.stop) })
	p.drawn.Wait()
}

func (p *Progress) run() {
	timer := time.NewTimer(progressDelay)
	defer timer.Stop()
	for step := 0; ; step++ {
		select {
		case <-p.stop:
			p.mu.Lock()
			p.erase()
			p.mu.Unlock()
			return
		case <-timer.C:
			p.draw(step)
			timer.Reset(progressInterval)
		}
	}
}

func (p *Progress) draw(step int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.shown = true
	_, _ = io.WriteString(p.out, lineOf(p.text, p.done.Load(), p.total, step)) // without a terminal there is nothing to show
}

// erase erases the line. The caller holds mu.
func (p *Progress) erase() {
	if p.shown {
		_, _ = io.WriteString(p.out, control(p.out, controlErase)) // as in draw
		p.shown = false
	}
}

func lineOf(text string, done, total int64, step int) string {
	if total <= 0 {
		return string(`|/-\`[step%4]) + " " + text
	}
	done = min(done, total)
	full := int(done * barWidth / total)
	return fmt.Sprintf("[%s%s] %3d%% %s", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done*100/total, text)
}
