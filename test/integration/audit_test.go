package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// auditLog is the API server's record of what was written, by whom.
type auditLog struct {
	file   string
	client client.Client
	fences int
	marked int64 // the last mark
}

type auditEvent struct {
	Verb      string `json:"verb"`
	URI       string `json:"requestURI"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

func (e auditEvent) String() string {
	return fmt.Sprintf("%s %s %s/%s %s by %s: %d", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name,
		e.ObjectRef.Subresource, e.User.Username, e.ResponseStatus.Code)
}

// mark is a place in the log behind everything that has happened so far.
func (l *auditLog) mark(t *testing.T) int64 {
	t.Helper()
	l.fences++
	fence := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("fence-%d", l.fences)}}
	must(t, l.client.Create(t.Context(), fence, client.DryRunAll))
	end := l.marked
	await(t).Eventually(func() bool {
		events, offset := l.read(t, l.marked)
		end = offset
		return slices.ContainsFunc(events, func(e auditEvent) bool { return e.ObjectRef.Name == fence.Name })
	}).Should(BeTrue(), "the audit log records a request")
	l.marked = end
	return end
}

// read gives the events from an offset on, and the offset behind them.
func (l *auditLog) read(t *testing.T, offset int64) ([]auditEvent, int64) {
	t.Helper()
	f, err := os.Open(l.file)
	must(t, err)
	defer f.Close()
	_, err = f.Seek(offset, io.SeekStart)
	must(t, err)
	var events []auditEvent
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return events, offset // a last line without an end is still being written
		}
		offset += int64(len(line))
		var e auditEvent
		must(t, json.Unmarshal(line, &e))
		events = append(events, e)
	}
}

// managerWrites are the manager's writes since a mark, other than those of leases and
// events. Dry runs and access reviews write nothing.
func (l *auditLog) managerWrites(t *testing.T, since int64) []string {
	t.Helper()
	l.mark(t)
	events, _ := l.read(t, since)
	var out []string
	for _, e := range events {
		if e.byManager() && e.writes() && !slices.Contains([]string{"leases", "events", "subjectaccessreviews"}, e.ObjectRef.Resource) {
			out = append(out, e.String())
		}
	}
	return out
}

func (e auditEvent) writes() bool {
	return e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" && !strings.Contains(e.URI, "dryRun=All")
}

func (e auditEvent) byManager() bool {
	return e.User.Username == managerUser || strings.HasPrefix(e.UserAgent, "ostiary/")
}
