package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditLog is what an API server says about its requests.
type auditLog struct{ file string }

// mark is where the log ends now.
func (a *auditLog) mark() int64 {
	info, err := os.Stat(a.file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// since reads the events after a mark. A line that is not complete yet is left out.
func (a *auditLog) since(mark int64) ([]auditv1.Event, error) {
	text, err := tailOf(a.file, mark)
	if err != nil {
		return nil, err
	}
	var out []auditv1.Event
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var e auditv1.Event
		if json.Unmarshal(scanner.Bytes(), &e) == nil {
			out = append(out, e)
		}
	}
	return out, scanner.Err()
}

func tailOf(file string, mark int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// testimony is what the API servers say about the requests of a scenario.
type testimony struct {
	events map[string]auditv1.Event // by id
	writes []auditv1.Event          // of managers
	logs   string                   // of the API servers
}

// marks are where the logs ended when a scenario began.
type marks struct{ audits, logs [apiServers]int64 }

func (w *world) apiServerLog(i int) string {
	return w.plane.LogFile(fmt.Sprintf("kube-apiserver-%d", i))
}

func (w *world) mark() marks {
	var m marks
	for i := range apiServers {
		m.audits[i] = w.audits[i].mark()
		m.logs[i] = (&auditLog{file: w.apiServerLog(i)}).mark()
	}
	return m
}

func (w *world) hear(m marks) (*testimony, error) {
	out := &testimony{events: map[string]auditv1.Event{}}
	for i := range apiServers {
		events, err := w.audits[i].since(m.audits[i])
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		for _, e := range events {
			if e.User.Username == managerUser {
				out.writes = append(out.writes, e)
			}
			if e.UserAgent == userAgent {
				out.events[string(e.AuditID)] = e
			}
		}
		text, err := tailOf(w.apiServerLog(i), m.logs[i])
		if err != nil {
			return nil, fmt.Errorf("reading the API server's log: %w", err)
		}
		out.logs += string(text)
	}
	return out, nil
}

// contradictions are requests of which an API server says something else than
// what the client got, or which it let through without asking.
func (t *testimony) contradictions(requests []*request) []string {
	var out []string
	for _, r := range requests {
		if r.id == "" || r.outcome == unserved {
			continue // an API server that starts may answer before it writes its log
		}
		e, known := t.events[r.id]
		code := 0
		if e.ResponseStatus != nil {
			code = int(e.ResponseStatus.Code)
		}
		switch {
		case !known && r.code != 0:
			out = append(out, fmt.Sprintf("%s of %s: the client got %d, and the API server does not know of it", r.verb, r.name, r.code))
		case known && r.code != 0 && code != r.code:
			out = append(out, fmt.Sprintf("%s of %s: the client got %d, the API server says %d", r.verb, r.name, r.code, code))
		case known && r.bad() && code > 0 && code < 300 && r.outcome != allowed && r.outcome != unmarked:
			out = append(out, fmt.Sprintf("%s of %s: the API server allowed it", r.verb, r.name))
		}
		for key := range e.Annotations {
			if strings.HasPrefix(key, "failed-open.") {
				out = append(out, fmt.Sprintf("%s of %s failed open: %s", r.verb, r.name, key))
			}
		}
	}
	return out
}

// distrust are the lines in which API servers say that they did not trust a
// certificate.
func (t *testimony) distrust() []string {
	var out []string
	for line := range strings.Lines(t.logs) {
		if strings.Contains(line, "ailed calling webhook") && (strings.Contains(line, "x509:") || strings.Contains(line, "bad certificate")) {
			out = append(out, line)
		}
	}
	return out
}
