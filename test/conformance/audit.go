package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// auditPolicy records writes and connections, but for those by which Ostiary
// works.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  resources:
  - {group: admission.ostiary.dev}
  - {group: authorization.k8s.io, resources: [subjectaccessreviews]}
- level: None
  verbs: [list, watch]
- level: Metadata
`

// auditLog reads the audit log of an API server as it grows.
type auditLog struct {
	path   string
	offset int64
	events map[string]map[string]string // annotations by audit ID
}

func newAuditLog(path string) *auditLog {
	return &auditLog{path: path, events: map[string]map[string]string{}}
}

// wait returns when the log has every event that is asked for.
func (a *auditLog) wait(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err := a.read(); err != nil {
			return err
		}
		missing := 0
		for _, id := range ids {
			if _, ok := a.events[id]; !ok {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the audit log: %d of %d events are missing: %w", missing, len(ids), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// take returns an event's annotations, and forgets them.
func (a *auditLog) take(id string) map[string]string {
	out := a.events[id]
	delete(a.events, id)
	return out
}

func (a *auditLog) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a line without an end is read again
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		a.offset += int64(len(line))
		var event struct {
			AuditID     string            `json:"auditID"`
			UserAgent   string            `json:"userAgent"`
			Annotations map[string]string `json:"annotations"`
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("decoding a line of the audit log: %w", err)
		}
		if event.UserAgent == "conformance" {
			a.events[event.AuditID] = event.Annotations
		}
	}
}
