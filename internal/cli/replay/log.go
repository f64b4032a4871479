package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxLine is the maximum of bytes of an event. One with the largest objects that etcd
	// stores, before and after the request, is much smaller.
	maxLine = 32 << 20
	// batchSize is the number of bytes from which lines are handed to a worker.
	batchSize = 1 << 20
	// bufferSize is the size of the buffer of a file.
	bufferSize = 64 << 10

	// Stdin is the name of stdin.
	Stdin = "-"
)

// batch is a part of a log: whole lines, each with its line feed except for the last one
// of a file.
type batch struct {
	file  string
	line  int // number of the first line, from 1
	order int // among all batches
	text  []byte
}

// LogError is a problem of an audit log.
type LogError struct {
	File string `json:"file"`
	Line int    `json:"line"` // 0 is the whole file
	Text string `json:"text"`

	order int // of the batch
}

// Error implements error.
func (e *LogError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Text
	}
	return fmt.Sprintf("%s:%d:1: %s", e.File, e.Line, e.Text)
}

// Files replaces directories by their audit logs, in the order of names: API servers name
// rotated files such that the oldest is the first, and the current one the last.
func Files(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		if path == Stdin {
			out = append(out, path)
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading an audit log: %w", err)
		case !info.IsDir():
			out = append(out, path)
			continue
		}
		found, err := logsIn(path)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func logsIn(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("reading audit logs: %w", err)
	}
	var out []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".gz")
		if e.Type().IsRegular() && slices.Contains([]string{".log", ".json", ".jsonl"}, filepath.Ext(name)) {
			out = append(out, filepath.Join(directory, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, &LogError{File: directory, Text: "the directory has no .log, .json or .jsonl file"}
	}
	return out, nil
}

// readLogs reads files one after the other and hands over batches.
func readLogs(ctx context.Context, files []string, stdin io.Reader, read func(bytes int), hand func(batch) error) error {
	order := 0
	for _, file := range files {
		err := readLog(ctx, file, stdin, read, func(b batch) error {
			b.order = order
			order++
			return hand(b)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func readLog(ctx context.Context, file string, stdin io.Reader, read func(bytes int), hand func(batch) error) (err error) {
	from := stdin
	if file != Stdin {
		opened, err := os.Open(file) //nolint:gosec // the user names it
		if err != nil {
			return fmt.Errorf("reading an audit log: %w", err)
		}
		defer opened.Close()
		from = opened
	}
	if from == nil {
		return &LogError{File: file, Text: "there is no stdin"}
	}
	if read != nil {
		from = counted{from, read}
	}
	in := bufio.NewReaderSize(from, bufferSize)
	if magic, _ := in.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return split(ctx, file, in, hand)
	}
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		return &LogError{File: file, Text: "not a gzip file: " + err.Error()}
	}
	return split(ctx, file, bufio.NewReaderSize(unpacked, bufferSize), hand)
}

// counted reports the number of bytes that are read.
type counted struct {
	io.Reader
	read func(bytes int)
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read(n)
	return n, err
}

// split cuts a log after lines.
func split(ctx context.Context, file string, in *bufio.Reader, hand func(batch) error) error {
	next := batch{file: file, line: 1}
	for ctx.Err() == nil {
		text, err := readLines(in)
		if errors.Is(err, errLongLine) {
			return &LogError{File: file, Line: next.line + bytes.Count(text, []byte("\n")), Text: fmt.Sprintf("the line is longer than %d MiB: an audit log has one event on each line", maxLine>>20)}
		}
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return &LogError{File: file, Line: next.line, Text: "reading: " + err.Error()}
		}
		if len(text) > 0 {
			next.text = text
			if err := hand(next); err != nil {
				return err
			}
			next.line += bytes.Count(text, []byte("\n"))
		}
		if ended {
			return nil
		}
	}
	return ctx.Err()
}

var errLongLine = errors.New("the line is too long")

// readLines reads about batchSize bytes, up to the end of a line.
func readLines(in *bufio.Reader) ([]byte, error) {
	text := make([]byte, batchSize, batchSize+batchSize/4)
	n, err := io.ReadFull(in, text)
	text = text[:n]
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return text, io.EOF
	}
	start := bytes.LastIndexByte(text, '\n') // of the last line
	for err == nil {
		var part []byte
		part, err = in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
		case len(text)-start > maxLine:
			return text, errLongLine
		default:
			err = nil
		}
	}
	return text, err
}
