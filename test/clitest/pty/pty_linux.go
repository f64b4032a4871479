// Package pty opens terminals for tests.
package pty

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal that a program writes to.
type Terminal struct {
	// File is what the program writes to.
	File *os.File

	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{}
}

// Open opens a terminal with some columns and lines.
func Open(tb testing.TB, columns, lines uint16) *Terminal {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal("opening a terminal: ", err)
	}
	tb.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		tb.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		tb.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		tb.Fatal(err)
	}
	file, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	t := &Terminal{File: file, done: make(chan struct{})}
	go t.read(master)
	return t
}

// end is what Close writes: what a terminal has not read when its other side is closed can be lost.
const end = "\x00end"

// read keeps what is written, until the end.
func (t *Terminal) read(master *os.File) {
	defer close(t.done)
	part := make([]byte, 1024)
	for {
		n, err := master.Read(part)
		t.mu.Lock()
		t.text.Write(part[:n])
		ended := bytes.HasSuffix(t.text.Bytes(), []byte(end))
		t.mu.Unlock()
		if err != nil || ended {
			return
		}
	}
}

// String returns what was written so far.
func (t *Terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Close closes the terminal, and returns the lines that were written.
func (t *Terminal) Close() string {
	_, _ = t.File.WriteString(end)
	<-t.done
	_ = t.File.Close()
	return strings.ReplaceAll(strings.TrimSuffix(t.String(), end), "\r\n", "\n")
}
