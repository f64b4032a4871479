// Command noop is a webhook that allows everything, made with controller-runtime
// as most webhooks are. Ostiary is measured beside it.
//
//	noop -port PORT -health HOST:PORT -cert-dir DIR
//
// It logs as Ostiary and most webhooks do: with zap, from level info.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	port := flag.Int("port", 9443, "port to answer calls on, at /validate")
	health := flag.String("health", "127.0.0.1:8081", "address that answers 200 when the webhook serves")
	certDir := flag.String("cert-dir", "", "folder with tls.crt and tls.key")
	flag.Parse()
	if err := run(*port, *health, *certDir); err != nil {
		fmt.Fprintln(os.Stderr, "noop: "+err.Error())
		os.Exit(1)
	}
}

func run(port int, health, certDir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	zapLog, err := zap.NewProduction()
	if err != nil {
		return fmt.Errorf("making the logger: %w", err)
	}
	log.SetLogger(zapr.NewLogger(zapLog))
	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: certDir})
	server.Register("/validate", &webhook.Admission{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Allowed("")
		}),
	})
	checks := &http.Server{
		Addr: health, ReadHeaderTimeout: 5 * time.Second,
		Handler: healthz.CheckHandler{Checker: server.StartedChecker()},
	}
	failed := make(chan error, 1)
	go func() { failed <- checks.ListenAndServe() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(<-failed) }()
	if err := server.Start(ctx); err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
