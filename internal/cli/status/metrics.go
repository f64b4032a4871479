package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// scrapeTimeout is how long the metrics of one replica may take, and maxMetrics the
	// maximum of bytes.
	scrapeTimeout = 10 * time.Second
	maxMetrics    = 32 << 20

	requestsMetric = "ostiary_policy_requests_total"
	expiryMetric   = "ostiary_certificate_expiry_timestamp_seconds"
)

// metrics are those of all replicas.
type metrics struct {
	denied  map[string]int // by policy
	expires time.Time      // of the first serving certificate to expire
}

// scrape reads the metrics of all replicas through port-forwards. It sends them the token of the user or of a
// ServiceAccount, as Prometheus does, and verifies their certificate like an API server.
func (o *command) scrape(ctx context.Context, config *rest.Config, d *doctor.Dump, now time.Time) (*metrics, error) {
	installed, called := d.Ostiary(now), clientConfig(d)
	switch {
	case len(installed.Pods) == 0:
		return nil, errors.New("no replica of Ostiary renews its Lease")
	case called == nil || called.Service == nil || len(called.CABundle) == 0:
		return nil, errors.New("no webhook configuration has a CA bundle that verifies the replicas")
	}
	user, err := o.account.user(ctx, config, now)
	if err != nil {
		return nil, err
	}
	m := &metrics{denied: map[string]int{}}
	for _, pod := range installed.Pods {
		to := doctor.Backend{Pod: pod, Port: o.port}
		err := cluster.Forward(ctx, config, installed.Namespace, to, func(address string) error {
			return m.read(ctx, verifying(user, called, address))
		})
		if err != nil {
			return nil, fmt.Errorf("reading the metrics of Pod %s: %w", pod, err)
		}
	}
	return m, nil
}

// verifying returns the configuration of a client for a replica: with the user of another
// configuration, but not with its client certificate, which only API servers know.
func verifying(config *rest.Config, called *admissionregistrationv1.WebhookClientConfig, address string) *rest.Config {
	return &rest.Config{
		Host: "https://" + address, BearerToken: config.BearerToken, BearerTokenFile: config.BearerTokenFile,
		ExecProvider: config.ExecProvider, AuthProvider: config.AuthProvider, AuthConfigPersister: config.AuthConfigPersister,
		TLSClientConfig: rest.TLSClientConfig{CAData: called.CABundle, ServerName: called.Service.Name + "." + called.Service.Namespace + ".svc"},
	}
}

// read adds the metrics of a replica.
func (m *metrics) read(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", http.NoBody)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		return m.parse(io.LimitReader(response.Body, maxMetrics))
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%s: use the token of a user who may get the URL /metrics, or --metrics-service-account",
			response.Status)
	}
	return errors.New(response.Status)
}

// parse adds the metrics of a text, in which the parser finds errors or panics.
func (m *metrics) parse(text io.Reader) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("parsing: the text is invalid: %v", problem)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return fmt.Errorf("parsing: %w", err)
	}
	for _, metric := range families[requestsMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if labels["decision"] == string(policy.DecisionDeny) {
			m.denied[labels["policy"]] += int(metric.GetCounter().GetValue())
		}
	}
	for _, metric := range families[expiryMetric].GetMetric() {
		for _, label := range metric.GetLabel() {
			expires := time.Unix(int64(metric.GetGauge().GetValue()), 0).UTC()
			if label.GetName() == "certificate" && label.GetValue() == "leaf" && (m.expires.IsZero() || expires.Before(m.expires)) {
				m.expires = expires
			}
		}
	}
	return nil
}

// history has the denials of the last minute, and those between the last updates.
type history struct {
	samples []sample
	// steps are the denials by policy between two updates, without those that are not known.
	steps []map[string]int
}

type sample struct {
	at     time.Time
	denied map[string]int
}

// window is the time over which rates are computed.
const window = time.Minute

// maxSteps is the length of a time line.
const maxSteps = 20

// addStep adds the denials since the last update, and sets the time lines of a status.
func (h *history) addStep(s *Status, m *metrics) {
	if len(h.samples) == 0 {
		return
	}
	before, step := h.samples[len(h.samples)-1].denied, map[string]int{}
	for i := range s.Policies {
		name := s.Policies[i].Name
		if more := m.denied[name] - before[name]; more >= 0 {
			step[name] = more
		}
	}
	h.steps = append(h.steps, step)
	h.steps = h.steps[max(len(h.steps)-maxSteps, 0):]
	for i := range s.Policies {
		for _, step := range h.steps {
			denied, known := step[s.Policies[i].Name]
			if !known {
				denied = unknownStep
			}
			s.Policies[i].recent = append(s.Policies[i].recent, denied)
		}
	}
}

// unknownStep is a number of denials that is not known, because a replica has ended.
const unknownStep = -1

// timeLine draws numbers as bars of one line; the highest one is the maximum.
func timeLine(numbers []int) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	most := max(1, slices.Max(append([]int{0}, numbers...)))
	var out strings.Builder
	for _, n := range numbers {
		switch n {
		case unknownStep:
			out.WriteRune('?')
		case 0:
			out.WriteRune(bars[0])
		default:
			out.WriteRune(bars[1+n*(len(bars)-2)/most])
		}
	}
	return out.String()
}

// add adds the current denials, and sets the rates of a status. A counter that decreases is
// that of a replica that has ended: its rate is not known until the next minute.
func (h *history) add(s *Status, m *metrics, now time.Time) {
	if m == nil {
		return
	}
	h.addStep(s, m)
	h.samples = append(h.samples, sample{at: now, denied: m.denied})
	for len(h.samples) > 1 && now.Sub(h.samples[0].at) > window {
		h.samples = h.samples[1:]
	}
	first := h.samples[0]
	passed := now.Sub(first.at)
	if passed <= 0 {
		return
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		if more := m.denied[p.Name] - first.denied[p.Name]; more >= 0 {
			perMinute := float64(more) / passed.Minutes()
			p.DeniedPerMinute = &perMinute
		}
	}
}
