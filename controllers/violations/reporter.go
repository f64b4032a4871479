// Package violations reports requests that policies deny, warn about, audit or cannot evaluate: as lines of a log, as
// Events and as counts.
package violations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	clientevents "k8s.io/client-go/tools/events"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	// interval is how often the records of requests are read, and batch how many at a time: 100 per second.
	interval = 250 * time.Millisecond
	batch    = 25
	// droppedEvery is the minimum time between two lines about dropped violations.
	droppedEvery = 10 * time.Second
)

// Reporter writes violations to a log, and records Events of them. It is a manager.Runnable that runs on every replica.
type Reporter struct {
	out      io.Writer
	events   *eventSink
	buffer   *buffer
	now      func() time.Time
	dropped  uint64    // in lines
	reported time.Time // when
}

// NewReporter returns a Reporter that has not started. A nil writer gets no lines, and a nil recorder no Events.
func NewReporter(out io.Writer, events clientevents.EventRecorder) *Reporter {
	r := &Reporter{out: out, buffer: newBuffer(), now: time.Now}
	if events != nil {
		r.events = &eventSink{recorder: events}
	}
	return r
}

// NeedLeaderElection returns false: every replica answers requests.
func (r *Reporter) NeedLeaderElection() bool { return false }

// Report takes a violation. It takes no lock and does not wait: beyond about 100 violations per second and bursts of
// 128 of one user, it drops them, and a line of the log has their number.
func (r *Reporter) Report(v policy.ViolationReport) {
	r.buffer.add(v.Request.UserInfo.Username, func() *record { return newRecord(v, r.now()) })
}

// Start reports violations until ctx ends, and then those that are left.
func (r *Reporter) Start(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.reported = time.Time{}
			return r.flush(shards * slots)
		case <-tick.C:
			if err := r.flush(batch); err != nil {
				return err
			}
		}
	}
}

func (r *Reporter) flush(limit int) (err error) {
	r.buffer.take(limit, func(v *record) {
		if r.events != nil {
			r.events.add(v, r.now())
		}
		if err == nil {
			err = r.write(v)
		}
	})
	if err != nil {
		return err
	}
	return r.writeDropped()
}

// drops is a line about violations without lines.
type drops struct {
	Time    time.Time `json:"time"`
	Log     string    `json:"log"`
	Dropped uint64    `json:"dropped"`
}

func (r *Reporter) writeDropped() error {
	now, dropped := r.now(), r.buffer.dropped.Load()
	if dropped == r.dropped || now.Sub(r.reported) < droppedEvery {
		return nil
	}
	line := drops{Time: now, Log: "violations dropped", Dropped: dropped - r.dropped}
	r.dropped, r.reported = dropped, now
	return r.write(line)
}

// write writes a line of JSON, without capabilities: an error of an expression can quote the URL of a webhook.
func (r *Reporter) write(line any) error {
	if r.out == nil {
		return nil
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		return fmt.Errorf("encoding a violation: %w", err)
	}
	if _, err := io.WriteString(r.out, registration.Conceal(b.String())); err != nil {
		return fmt.Errorf("writing a violation: %w", err)
	}
	return nil
}
