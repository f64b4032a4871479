package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/cli/doctor"
	"github.com/ostiary/ostiary/internal/cli/doctor/cluster"
)

// FuzzDump checks that every dump gives findings or an error.
func FuzzDump(f *testing.F) {
	faults, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(faults) == 0 {
		f.Fatalf("no dumps: %v", err)
	}
	for _, path := range append(faults, "testdata/healthy.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		dump, err := cluster.Read(t.Context(), []string{"-"}, strings.NewReader(text), func(error) {})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		for _, finding := range doctor.Check(dump, time.Unix(1e9, 0)) {
			if finding.Check == "" || finding.Message == "" || finding.Fix == "" {
				t.Errorf("incomplete: %+v", finding)
			}
		}
	})
}
