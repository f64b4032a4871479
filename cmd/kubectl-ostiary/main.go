// Command kubectl-ostiary tests, evaluates and explains WebhookPolicies without a
// cluster. kubectl runs it as "kubectl ostiary".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Clients of Kubernetes log here what API servers send, such as warnings.
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(output.NewWriter(os.Stderr)))))
	status := cli.Run(ctx, version, os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(status)
}
