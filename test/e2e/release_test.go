//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// published is a release in a registry on loopback.
type published struct {
	version      string
	image, chart string // with their digests
}

// releases reads what hack/e2e.sh published: "VERSION IMAGE CHART LIBRARY" for each release.
func releases(t *testing.T) []published {
	t.Helper()
	var out []published
	for text := range strings.SplitSeq(strings.TrimSuffix(os.Getenv("E2E_RELEASES"), ","), ",") {
		fields := strings.Fields(text)
		if len(fields) != 4 {
			t.Fatalf("E2E_RELEASES: %q is not a release: want VERSION IMAGE CHART LIBRARY", text)
		}
		out = append(out, published{version: fields[0], image: fields[1], chart: fields[2]})
	}
	if len(out) != 2 {
		t.Fatalf("E2E_RELEASES has %d releases, want two", len(out))
	}
	return out
}

// testRelease verifies a release, installs it with Helm by its digest, upgrades it to the next
// one under load, and returns to the first.
func (w *world) testRelease(t *testing.T) {
	if os.Getenv("E2E_RELEASES") == "" {
		t.Skip("E2E_RELEASES is not set: make e2e without -short publishes two releases")
	}
	all := releases(t)
	first, next := all[0], all[1]
	for _, p := range all {
		for _, reference := range []string{p.image, p.chart} {
			w.verify(t, reference)
		}
	}
	w.helmDo(t, "install", release, "oci://"+first.chart, "--plain-http", "--create-namespace", "--wait", "--timeout=5m")
	w.awaitVersion(t, first)
	if out := w.helmDo(t, "test", release, "--logs"); !strings.Contains(out, "Ostiary works: ") {
		t.Errorf("the self-test printed %s", out)
	}
	w.guard(t)
	l := w.startLoad(t)
	l.during(t, "upgrade to the next version", func(t *testing.T) {
		w.helmDo(t, "upgrade", release, "oci://"+next.chart, "--plain-http", "--wait", "--timeout=5m")
		w.awaitVersion(t, next)
	})
	l.during(t, "rollback", func(t *testing.T) {
		w.helmDo(t, "rollback", release, "--wait", "--timeout=5m")
		w.awaitVersion(t, first)
	})
	l.during(t, "last replicas end", w.awaitNoneTerminating)
	l.stop()
	w.uninstall(t, w.uninstallChart)
}

// verify checks the signature of an artifact with the key of the releases.
func (w *world) verify(t *testing.T, reference string) {
	t.Helper()
	r := run(t.Context(), "", os.Getenv("E2E_COSIGN"), "verify", "--insecure-ignore-tlog", "--key="+os.Getenv("E2E_COSIGN_KEY"), reference)
	if r.err != nil {
		t.Fatalf("verifying %s: %s", reference, r)
	}
}

// awaitVersion waits until all replicas are ready and run the image of a release.
func (w *world) awaitVersion(t *testing.T, p published) {
	t.Helper()
	eventually(t, func() error {
		for _, pod := range w.pods(t) {
			if image := pod.Spec.Containers[0].Image; image != "ghcr.io/ostiary/ostiary:"+p.version {
				return fmt.Errorf("pod %s runs %s, want %s", pod.Name, image, p.version)
			}
		}
		return nil
	})
	w.awaitReplicas(t, 2)
}
