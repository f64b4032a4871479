package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// childVariable makes this test binary the process that is killed. Its value is the parent directory.
const childVariable = "CONTROLPLANE_TEST_CHILD"

// listenVariable makes this test binary a web server on the port of its value.
const listenVariable = "CONTROLPLANE_TEST_LISTEN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		beKilled(dir)
	}
	if port := os.Getenv(listenVariable); port != "" {
		listen(port)
	}
	os.Exit(m.Run())
}

func listen(port string) {
	err := http.ListenAndServe(net.JoinHostPort(loopback, port), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// beKilled starts a control plane, says which processes it has, and waits for the end.
func beKilled(dir string) {
	cp, err := Start(context.Background(), Options{Dir: dir, Log: os.Stderr})
	if err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(cp.PIDs()); err != nil {
		panic(err)
	}
	select {}
}

func TestKilledParentLeavesNoProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}
	parent := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+parent)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids map[string]int
	decodeErr := json.NewDecoder(io.LimitReader(stdout, 1<<16)).Decode(&pids)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if decodeErr != nil || len(pids) != 3 {
		t.Fatalf("processes of the child: %v, %v", pids, decodeErr)
	}
	for name, pid := range pids {
		NewWithT(t).Eventually(func() bool { return alive(pid) }, time.Minute, interval).Should(BeFalse(), name)
	}
	left, _ := filepath.Glob(filepath.Join(parent, directoryPattern))
	if len(left) != 1 {
		t.Fatalf("directories %v, want that of the killed process", left)
	}
	removeAbandoned(parent)
	wantNothingLeft(t, parent, pids)
}

func TestTerminateKillsWhatStays(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess(shell, []string{"-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"}, nil, t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() string { return tail(log) }, time.Minute, interval).Should(Equal("deaf"))
	p.terminate(50 * time.Millisecond)
	if !p.ended() || alive(p.pid()) {
		t.Error("it lives on")
	}
}

func TestStartProcessHandsDownNoSettings(t *testing.T) {
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ETCD_NAME", "surprise")
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess(env, nil, nil, t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	if out := tail(log); !strings.Contains(out, "HOME=") || strings.Contains(out, "ETCD_") {
		t.Errorf("environment:\n%s", out)
	}
}

func TestTail(t *testing.T) {
	line := strings.Repeat("x", 99) + "\n"
	tests := map[string]struct{ content, want string }{
		"short":                  {"one\ntwo\n", "one\ntwo"},
		"empty":                  {"", ""},
		"long, whole lines only": {"first\n" + strings.Repeat(line, 100) + "last\n", strings.Repeat(line, 29) + "last"},
		"one endless line":       {strings.Repeat("y", 2*tailBytes), strings.Repeat("y", tailBytes)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := tail(file); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// alive says whether a process runs; one that ended and was not waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
	}
	return runtime.GOOS != "linux" && syscall.Kill(pid, 0) == nil
}
