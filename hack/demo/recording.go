package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// header is the first line of a recording in version 2 of asciinema's format.
type header struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Title   string `json:"title"`
}

// recorder copies what is written to out into a recording, in colour.
type recorder struct {
	out, cast io.Writer
	start     time.Time
}

// record runs a function with a writer that writes to out, and into a recording unless its
// path is empty.
func record(path string, out io.Writer, f func(io.Writer) error) (err error) {
	if path == "" {
		return f(out)
	}
	cast, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the recording: %w", err)
	}
	defer func() { err = errors.Join(err, cast.Close()) }()
	if err := json.NewEncoder(cast).Encode(header{Version: 2, Width: 120, Height: 32, Title: "make demo"}); err != nil {
		return fmt.Errorf("writing the recording: %w", err)
	}
	return f(recorder{out: out, cast: cast, start: time.Now()})
}

// Write writes p as one event. A terminal needs a carriage return at the end of each line.
func (r recorder) Write(p []byte) (int, error) {
	event := []any{time.Since(r.start).Seconds(), "o", string(bytes.ReplaceAll(paint(p), []byte("\n"), []byte("\r\n")))}
	encoder := json.NewEncoder(r.cast)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(event); err != nil {
		return 0, fmt.Errorf("writing the recording: %w", err)
	}
	return r.out.Write(p)
}
