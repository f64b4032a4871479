package controlplane

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestRunProgram(t *testing.T) {
	tests := map[string]struct {
		script  string // $1 is the test's web server, $2 its port
		wantErr string // of Stop
	}{
		"ends well": {script: `trap 'kill $!; exit 0' TERM; "$1" & wait`},
		"ends badly": {
			script:  `trap 'kill $!; echo cannot; exit 4' TERM; "$1" & wait`,
			wantErr: "stopping program: exit status 4; its log ends with:\ncannot",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cp := emptyControlPlane(t)
			r, err := cp.Run(t.Context(), webServer(t, tt.script))
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-r.Done():
				t.Fatalf("it ended: %s", r.LogTail())
			default:
			}
			err = r.Stop()
			if tt.wantErr != "" {
				wantError(t, err, tt.wantErr)
			} else if err != nil {
				t.Error(err)
			}
			<-r.Done()
			if alive(r.PID()) {
				t.Error("it lives on")
			}
		})
	}
}

func TestRunProgramThatFails(t *testing.T) {
	cp := emptyControlPlane(t)
	_, err := cp.Run(t.Context(), webServer(t, "echo no way; exit 5"))
	wantError(t, err, "starting program: it ended: exit status 5; its log ends with:\nno way")
}

func TestStopProgramThatEnded(t *testing.T) {
	cp := emptyControlPlane(t)
	r, err := cp.Run(t.Context(), webServer(t, `exec "$1"`))
	if err != nil {
		t.Fatal(err)
	}
	r.Kill()
	if alive(r.PID()) {
		t.Error("it lives on")
	}
	wantError(t, r.Stop(), "stopping program: it had ended by itself: signal: killed")
}

// emptyControlPlane has a directory and no process.
func emptyControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	directory, err := newDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := directory.remove(); err != nil {
			t.Error(err)
		}
	})
	return &ControlPlane{options: Options{Log: io.Discard}, directory: directory, client: http.DefaultClient}
}

// webServer is a script around this test binary as a web server.
func webServer(t *testing.T, script string) Program {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	self, err := exec.LookPath(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return Program{
		Name: "program", Path: shell, Ports: 1,
		Args: func(ports []int) []string {
			_, port, _ := strings.Cut(address(ports[0]), ":")
			return []string{"-c", "export " + listenVariable + "=$2; " + script, "sh", self, port}
		},
		Probes: func(ports []int) []string { return []string{"http://" + address(ports[0])} },
	}
}
