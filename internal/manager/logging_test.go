package manager

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestLogConceals writes an error of an API server that quotes a capability.
func TestLogConceals(t *testing.T) {
	const capability = "abcdefghijklmnopqrstuvwxyz234567"
	for _, encoding := range []string{"json", "console"} {
		t.Run(encoding, func(t *testing.T) {
			config := zap.NewProductionConfig()
			config.Encoding = encoding
			var out bytes.Buffer
			log := zap.New(newCore(config, zapcore.AddSync(&out)))
			text := `failed to call webhook: Post "https://o.s.svc:443/` + capability + `/validate/x?timeout=5s": connection refused`
			log.Error("Server rejected event: "+text, zap.Error(errors.New(text)), zap.Any("object", map[string]string{"url": text}))
			if got := out.String(); strings.Contains(got, capability) || strings.Count(got, "/.../validate/x") != 3 {
				t.Errorf("got %s, want 3 URLs without the capability", got)
			}
		})
	}
}
