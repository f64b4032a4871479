//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const requestTimeout = 3 * time.Minute // a restart ordinarily takes seconds

// serve restarts programs on request, until ctx ends.
func (k *supervisor) serve(ctx context.Context) error {
	listener, err := net.Listen("unix", k.file(controlFile))
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("POST /restart/{program}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if err := k.restartProgram(ctx, r.PathValue("program")); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: requestTimeout}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	return server.Serve(listener)
}

func (k *supervisor) restartProgram(ctx context.Context, name string) error {
	running := k.running[name]
	if running == nil {
		return fmt.Errorf("no program %q: use kubelet or containerd", name)
	}
	if err := running.Stop(); err != nil {
		fmt.Printf("%v\n", err) // its exit status does not matter
	}
	return errors.Join(k.run(ctx, name), k.awaitNode(ctx), k.restoreSettings())
}

// restart asks the supervisor to restart a program, and returns when the program is ready.
func (c cluster) restart(ctx context.Context, name string) error {
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.file(controlFile))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://cluster/restart/"+name, http.NoBody)
	if err != nil {
		return fmt.Errorf("restarting %s: %w", name, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("restarting %s: is the cluster up? %w", name, err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("restarting %s: %s: %s", name, response.Status, strings.TrimSpace(string(said)))
	}
	fmt.Fprintf(c.out, "restarted %s\n", name)
	return nil
}
