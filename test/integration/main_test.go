// Package integration tests the real program of the manager with a real API server, and with
// the CustomResourceDefinition, the namespace and the permissions of config/. Each test is
// named after the guarantee that it tests.
//
// One control plane serves all tests. They run one after the other, with their own namespaces
// and policies. Most tests share one manager; a test that stops it starts another one. With
// OSTIARY_RACE=1 the manager is built with the race detector, and a reported race fails the
// test.
package integration

import (
	"fmt"
	"os"
	"testing"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// auditPolicy records writes, with the annotations of admission, and all that
// the manager asks.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["` + managerUser + `"]
- level: None
  verbs: [get, list, watch]
- level: Metadata
`

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	options := controlplane.Options{Audit: true, AuditPolicy: auditPolicy, APIServerArgs: []string{
		// No kube-proxy routes cluster IPs here, but those on loopback need no route.
		"--service-cluster-ip-range=127.96.0.0/16",
	}}
	var err error
	if credentials, err = newCredentials(); err != nil {
		fmt.Fprintln(os.Stderr, "making what API servers show to webhooks:", err)
		os.Exit(1)
	}
	options.APIServerArgs = append(options.APIServerArgs, "--admission-control-config-file="+credentials.file("admission.yaml"))
	code := cptest.Main(cptest.Queued(m), options, func(cp *controlplane.ControlPlane) { plane = cp })
	if world != nil {
		world.close()
	}
	_ = os.RemoveAll(credentials.dir)
	os.Exit(code)
}
