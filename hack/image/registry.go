package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// serveRegistry serves an empty registry in memory, over HTTP, until it is interrupted.
func serveRegistry(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image registry", flag.ContinueOnError)
	flags.SetOutput(stdout)
	address := flags.String("address", "127.0.0.1:5055", "address on loopback; port 0 chooses a free one")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return fmt.Errorf("-address %q: %w", *address, err)
	}
	if to, ok := listener.Addr().(*net.TCPAddr); !ok || !to.IP.IsLoopback() {
		_ = listener.Close()
		return fmt.Errorf("-address %q: the registry lets everyone write, so it listens on loopback only", *address)
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintln(stdout, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving a registry: %w", err)
	}
	return nil
}
