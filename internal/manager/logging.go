package manager

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/internal/registration"
)

// NewLogger returns a logger that writes to standard error in the format and at the
// level of the flags.
func NewLogger(o options.Options) (logr.Logger, error) {
	level, err := zapcore.ParseLevel(o.LogLevel)
	if err != nil {
		return logr.Logger{}, fmt.Errorf("parsing --log-level: %w", err)
	}
	config := zap.NewProductionConfig()
	if o.LogFormat == "console" {
		config.Encoding = "console"
		config.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
	}
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.Level = zap.NewAtomicLevelAt(level)
	config.DisableStacktrace = true
	zapLog, err := config.Build(zap.WrapCore(func(zapcore.Core) zapcore.Core { return withoutProbes{newCore(config, zapcore.Lock(os.Stderr))} }))
	if err != nil {
		return logr.Logger{}, fmt.Errorf("making the logger: %w", err)
	}
	return zapr.NewLogger(zapLog), nil
}

// newCore returns a core that writes to out without capabilities: any request to an API
// server can fail with an error that quotes the URL of a webhook.
func newCore(config zap.Config, out zapcore.WriteSyncer) zapcore.Core {
	encoder := zapcore.NewJSONEncoder(config.EncoderConfig)
	if config.Encoding == "console" {
		encoder = zapcore.NewConsoleEncoder(config.EncoderConfig)
	}
	core := zapcore.NewCore(encoder, concealing{out}, config.Level)
	return zapcore.NewSamplerWithOptions(core, time.Second, config.Sampling.Initial, config.Sampling.Thereafter)
}

// concealing writes lines without capabilities.
type concealing struct{ zapcore.WriteSyncer }

// Write implements io.Writer.
func (c concealing) Write(line []byte) (int, error) {
	if _, err := c.WriteSyncer.Write([]byte(registration.Conceal(string(line)))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// withoutProbes drops the line that controller-runtime logs for each failed probe
// without the reason. onChange logs the reason once.
type withoutProbes struct{ zapcore.Core }

// With implements zapcore.Core.
func (c withoutProbes) With(fields []zapcore.Field) zapcore.Core {
	return withoutProbes{c.Core.With(fields)}
}

// Check implements zapcore.Core.
func (c withoutProbes) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.LoggerName == "controller-runtime.healthz" {
		return checked
	}
	return c.Core.Check(entry, checked)
}

// onChange returns a check that logs each change of its result.
func onChange(log logr.Logger, name string, check func() error) func() error {
	var before atomic.Pointer[string]
	return func() error {
		err := check()
		now := ""
		if err != nil {
			now = err.Error()
		}
		switch last := before.Swap(&now); {
		case now != "" && (last == nil || *last != now):
			log.Info("not ready", "check", name, "reason", now)
		case now == "" && last != nil && *last != "":
			log.Info("ready", "check", name)
		}
		return err
	}
}
