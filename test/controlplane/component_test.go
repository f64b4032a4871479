package controlplane

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A port that another process takes between choosing and using it costs a second try.
func TestComponentTriesAnotherPort(t *testing.T) {
	tests := map[string]struct {
		steals    int // how many of the chosen ports are lost
		wantTries int
		wantErr   string
	}{
		"none lost":   {steals: 0, wantTries: 1},
		"one lost":    {steals: 1, wantTries: 2},
		"always lost": {steals: 100, wantTries: startAttempts, wantErr: "starting listener: it ended: exit status 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tries := 0
			c := listenerComponent(t)
			serve := c.args
			c.args = func(ports []int) []string {
				if tries++; tries <= tt.steals {
					hold(t, ports[0])
				}
				return serve(ports)
			}
			err := c.start(t.Context(), http.DefaultClient)
			switch {
			case tt.wantErr != "":
				wantError(t, err, tt.wantErr)
			case err != nil:
				t.Fatal(err)
			default:
				defer func() { _ = c.stop(0) }()
			}
			if tries != tt.wantTries {
				t.Errorf("%d tries, want %d", tries, tt.wantTries)
			}
		})
	}
}

func TestComponentFailureIsNotRepeated(t *testing.T) {
	tries := 0
	c := listenerComponent(t)
	c.args = func([]int) []string { tries++; return []string{"not-a-port"} }
	wantError(t, c.start(t.Context(), http.DefaultClient), "its log ends with:\nlisten")
	if tries != 1 {
		t.Errorf("%d tries, want 1: no port was lost", tries)
	}
}

// listenerComponent is this test binary as a server on the port of its argument.
func listenerComponent(t *testing.T) *component {
	t.Helper()
	wrapper := filepath.Join(t.TempDir(), "listener")
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + listenVariable + "=$1 exec " + strconv.Quote(self) + "\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &component{
		name: "listener", binary: wrapper, ports: make([]int, 1), home: t.TempDir(), log: filepath.Join(t.TempDir(), "log"),
		args:   func(ports []int) []string { return []string{strconv.Itoa(ports[0])} },
		probes: func(ports []int) []string { return []string{"http://" + address(ports[0])} },
	}
}

func hold(t *testing.T, port int) {
	t.Helper()
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}
