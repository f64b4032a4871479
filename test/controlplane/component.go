package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	startTimeout  = 2 * time.Minute // of one component; ordinarily a few seconds
	startAttempts = 3               // when another process took the port
	probeEvery    = 50 * time.Millisecond
	probeTimeout  = 5 * time.Second
)

// component is one program of the control plane: how to start it and how to see that it is ready.
type component struct {
	name, binary string
	log          string // file
	home         string // working directory
	ports        []int  // of 127.0.0.1; how many is fixed, which ones the first start decides
	pinned       bool   // others know the ports by now
	args         func(ports []int) []string
	env          []string
	probes       func(ports []int) []string // URLs that answer 200 when it is ready
	process      *process                   // nil before the start and after a stop
}

// start brings the component up and returns when it is ready, or has failed and
// is gone. A port can be lost between choosing and using it: that is tried again.
func (c *component) start(ctx context.Context, client *http.Client) error {
	for attempt := 1; ; attempt++ {
		if err := c.choosePorts(ctx); err != nil {
			return fmt.Errorf("starting %s: %w", c.name, err)
		}
		p, err := startProcess(c.binary, c.args(c.ports), c.env, c.home, c.log)
		if err != nil {
			return fmt.Errorf("starting %s: %w", c.name, err)
		}
		err = c.waitReady(ctx, client, p)
		if err == nil {
			c.process, c.pinned = p, true
			return nil
		}
		lost := p.ended() && c.portTaken()
		p.kill()
		if !lost || attempt == startAttempts {
			return c.failure("starting "+c.name, err)
		}
	}
}

// failure is err with the end of the log below it.
func (c *component) failure(doing string, err error) error {
	return fmt.Errorf("%s: %w; its log ends with:\n%s", doing, err, tail(c.log))
}

func (c *component) waitReady(ctx context.Context, client *http.Client, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	go func() { // a probe of what does not answer ends with the process
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	urls := c.probes(c.ports)
	for {
		err := probe(ctx, client, urls)
		if err == nil && !p.ended() {
			return nil
		}
		select {
		case <-p.done:
		case <-ctx.Done():
		case <-time.After(probeEvery):
		}
		if p.ended() {
			return fmt.Errorf("it ended: %w", endOf(p))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (last seen: %w)", context.Cause(ctx), err)
		}
	}
}

// endOf says how the process ended, also when it says that all is well.
func endOf(p *process) error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// probe asks for every URL and returns why the first that is not well is not.
func probe(ctx context.Context, client *http.Client, urls []string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, url := range urls {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
		response.Body.Close()
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
	}
	return nil
}

// choosePorts takes free ports, all at once so that they differ.
func (c *component) choosePorts(ctx context.Context) error {
	if c.pinned {
		return c.awaitPorts(ctx)
	}
	for i := range c.ports {
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return fmt.Errorf("choosing a port: %w", err)
		}
		defer listener.Close() //nolint:gocritic // all are held until the last is chosen
		c.ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// awaitPorts gives a stranger whose outgoing connection got one of our ports
// while we were stopped a little time to finish.
func (c *component) awaitPorts(ctx context.Context) error {
	for range 50 {
		if !c.portTaken() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("one of its ports %v is in use by another process", c.ports)
}

func (c *component) portTaken() bool {
	for _, port := range c.ports {
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			return true
		}
		listener.Close()
	}
	return false
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// stop ends the component, at once when grace is 0. It is an error when the
// component was not there any more.
func (c *component) stop(grace time.Duration) error {
	p := c.process
	if p == nil {
		return fmt.Errorf("stopping %s: it is not running", c.name)
	}
	c.process = nil
	if p.ended() {
		return c.failure("stopping "+c.name, fmt.Errorf("it had ended by itself: %w", endOf(p)))
	}
	if grace == 0 {
		p.kill()
	} else {
		p.terminate(grace)
	}
	return nil
}
