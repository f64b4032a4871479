package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
)

// Options say what to start. The zero value is one API server with a controller manager.
type Options struct {
	// Dir is where the temporary directory is made; "" means os.TempDir.
	Dir string
	// APIServers is how many API servers share the one etcd; 0 means 1.
	APIServers int
	// Etcds is how many members etcd has, 1, 3 or 5; 0 means 1.
	Etcds int
	// EtcdArgs are further flags of every member of etcd. They come last.
	EtcdArgs []string
	// NoControllerManager leaves the controller manager out: no garbage
	// collection, no end of namespaces, no service accounts, less memory.
	NoControllerManager bool
	// APIServerArgs are further flags of every API server. They come last: of a
	// flag with one value theirs holds.
	APIServerArgs []string
	// ArgsOf gives the last flags of API server i, given the URLs of etcd, when
	// it is about to be started; nil means none.
	ArgsOf func(i int, etcd []string) []string
	// Audit has every API server write an audit log of JSON lines.
	Audit bool
	// AuditPolicy is the audit policy in YAML; "" records the metadata of every
	// request when it is done. It needs Audit.
	AuditPolicy string
	// AdvertiseAddress is an IP address of this machine at which nodes and pods
	// reach API server 0: it listens on every address, the Service
	// kubernetes.default leads there, and every controller runs. "" means loopback
	// alone, and no nodes.
	AdvertiseAddress string
	// Log gets a line of progress per step; nil means none.
	Log io.Writer
}

func (o Options) complete() (Options, error) {
	switch {
	case o.APIServers < 0 || o.APIServers > maxAPIServers:
		return o, fmt.Errorf("starting a control plane: APIServers is %d: use 1 to %d", o.APIServers, maxAPIServers)
	case o.APIServers == 0:
		o.APIServers = 1
	}
	switch o.Etcds {
	case 0:
		o.Etcds = 1
	case 1, 3, 5:
	default:
		return o, fmt.Errorf("starting a control plane: Etcds is %d: use 1, 3 or 5", o.Etcds)
	}
	if o.AuditPolicy != "" && !o.Audit {
		return o, errors.New("starting a control plane: AuditPolicy is set and Audit is not: set both")
	}
	if o.AdvertiseAddress != "" && (net.ParseIP(o.AdvertiseAddress) == nil || o.APIServers > 1) {
		return o, fmt.Errorf("starting a control plane: AdvertiseAddress %q with %d API servers: use an IP address and one API server", o.AdvertiseAddress, o.APIServers)
	}
	if o.AuditPolicy == "" {
		o.AuditPolicy = defaultAuditPolicy
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	return o, nil
}

// maxAPIServers bounds the memory: an API server takes about 300 MiB.
const maxAPIServers = 9

const auditPolicyFile = "audit-policy.yaml"

// ControlPlane is a running control plane. Its methods may be used concurrently.
type ControlPlane struct {
	options      Options
	directory    *directory
	certificates *certificates
	kubectl      string
	client       *http.Client // the admin's, for probes

	mu         sync.Mutex // held while components are started or stopped
	stopped    bool
	etcds      []*component
	apiServers []*component
	manager    *component // nil when there is none

	logMu sync.Mutex
}

// Start starts a control plane and returns when it is ready: every API server
// says so, the namespaces default and kube-system are there, and the controller
// manager works. A failure, or the end of ctx before that, leaves nothing behind.
// The end of ctx after that changes nothing: use Stop.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	cp, err := prepare(o)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := cp.startAll(ctx); err != nil {
		return nil, errors.Join(err, cp.discard())
	}
	cp.logf("control plane ready after %s in %s", sinceText(start), cp.directory.path)
	return cp, nil
}

// prepare does what needs no process.
func prepare(o Options) (_ *ControlPlane, err error) {
	cp := &ControlPlane{options: o}
	if err := cp.describe(); err != nil {
		return nil, err
	}
	if cp.certificates, err = newCertificates(o.AdvertiseAddress); err != nil {
		return nil, err
	}
	if cp.client, err = rest.HTTPClientFor(cp.certificates.restConfig(cp.certificates.admin, "")); err != nil {
		return nil, fmt.Errorf("making the admin's client: %w", err)
	}
	if cp.directory, err = newDirectory(o.Dir); err != nil {
		return nil, err
	}
	if err := cp.writeFiles(); err != nil {
		return nil, errors.Join(err, cp.directory.remove())
	}
	return cp, nil
}

func (cp *ControlPlane) writeFiles() error {
	if err := cp.certificates.write(cp.directory.path); err != nil {
		return err
	}
	if err := os.WriteFile(cp.directory.file(auditPolicyFile), []byte(cp.options.AuditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	return nil
}

// describe finds the programs and says how each component is started and seen to be ready.
func (cp *ControlPlane) describe() error {
	binaries := map[string]string{}
	for _, name := range []string{Etcd, APIServer, ControllerManager, kubectl} {
		if name == ControllerManager && cp.options.NoControllerManager {
			continue
		}
		path, err := Binary(name)
		if err != nil {
			return err
		}
		binaries[name] = path
	}
	cp.kubectl = binaries[kubectl]
	for i := range cp.options.Etcds {
		cp.etcds = append(cp.etcds, cp.describeEtcd(i, binaries[Etcd]))
	}
	for i := range cp.options.APIServers {
		cp.apiServers = append(cp.apiServers, cp.describeAPIServer(i, binaries[APIServer]))
	}
	if !cp.options.NoControllerManager {
		cp.manager = cp.describeManager(binaries[ControllerManager])
	}
	return nil
}

func (cp *ControlPlane) describeManager(binary string) *component {
	return &component{
		name: ControllerManager, binary: binary, ports: make([]int, 1),
		args: func(ports []int) []string { return managerArguments(cp.directory, cp.options, ports[0]) },
		probes: func(ports []int) []string {
			return []string{
				httpsURL(ports[0], "/healthz"),
				// Its controllers run, and pods can be made in the namespace default.
				httpsURL(cp.apiServers[0].ports[0], "/api/v1/namespaces/default/serviceaccounts/default"),
			}
		},
	}
}

func (cp *ControlPlane) startAll(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, c := range cp.components() {
		c.home, c.log = cp.directory.file(homeFolder), cp.LogFile(c.name)
	}
	if err := cp.startEtcds(ctx); err != nil {
		return err
	}
	if err := cp.startSideBySide(ctx, cp.apiServers); err != nil {
		return err
	}
	if err := cp.writeKubeconfigs(); err != nil {
		return err
	}
	if cp.manager == nil {
		return nil
	}
	return cp.start(ctx, cp.manager)
}

// startSideBySide starts several; the first that fails ends the others.
func (cp *ControlPlane) startSideBySide(ctx context.Context, components []*component) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range components {
		group.Go(func() error { return cp.start(ctx, c) })
	}
	return group.Wait()
}

func (cp *ControlPlane) writeKubeconfigs() error {
	c := cp.certificates
	for i := range cp.apiServers {
		if err := c.writeKubeconfig(c.admin, cp.host(i), cp.Kubeconfig(i)); err != nil {
			return err
		}
	}
	return c.writeKubeconfig(c.manager, cp.host(0), cp.directory.file(managerKubeconfig))
}

func (cp *ControlPlane) start(ctx context.Context, c *component) error {
	start := time.Now()
	if err := c.start(ctx, cp.client); err != nil {
		return err
	}
	where := ""
	if len(c.ports) > 0 {
		where = " on " + address(c.ports[0])
	}
	cp.logf("%s ready after %s%s", c.name, sinceText(start), where)
	return nil
}

func sinceText(start time.Time) string {
	return time.Since(start).Round(100 * time.Millisecond).String()
}

func (cp *ControlPlane) logf(format string, args ...any) {
	cp.logMu.Lock()
	defer cp.logMu.Unlock()
	fmt.Fprintf(cp.options.Log, format+"\n", args...)
}

// components lists them in the order in which they start.
func (cp *ControlPlane) components() []*component {
	all := slices.Concat(cp.etcds, cp.apiServers)
	if cp.manager != nil {
		all = append(all, cp.manager)
	}
	return all
}

// Stop kills the processes and removes the temporary directory. Its error also
// says which process had ended by itself before. A second Stop does nothing.
func (cp *ControlPlane) Stop() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.stopped {
		return nil
	}
	err := cp.discardLocked()
	cp.logf("control plane stopped")
	return err
}

func (cp *ControlPlane) discard() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.discardLocked()
}

// discardLocked ends what runs, without asking: all they could save is removed next.
func (cp *ControlPlane) discardLocked() error {
	cp.stopped = true
	var errs []error
	all := cp.components()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].process != nil {
			errs = append(errs, all[i].stop(0))
		}
	}
	cp.client.CloseIdleConnections()
	return errors.Join(append(errs, cp.directory.remove())...)
}

// RestartControllerManager starts the controller manager anew and returns
// when it is healthy; its controllers follow within moments.
func (cp *ControlPlane) RestartControllerManager(ctx context.Context) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if err := cp.check(0); err != nil {
		return fmt.Errorf("restarting the controller manager: %w", err)
	}
	if cp.manager == nil {
		return errors.New("restarting the controller manager: there is none")
	}
	if cp.manager.process != nil {
		if err := cp.manager.stop(gracePeriod); err != nil {
			return err
		}
	}
	return cp.start(ctx, cp.manager)
}

func (cp *ControlPlane) check(i int) error {
	if cp.stopped {
		return errors.New("the control plane was stopped")
	}
	if i < 0 || i >= len(cp.apiServers) {
		return fmt.Errorf("no API server %d: there are %d, from 0", i, len(cp.apiServers))
	}
	return nil
}

// Config returns a client configuration of the admin for API server i, or 0. Its
// requests are not throttled. It is the caller's own copy.
func (cp *ControlPlane) Config(i ...int) *rest.Config {
	return cp.certificates.restConfig(cp.certificates.admin, cp.host(i...))
}

// WriteKubeconfig writes a kubeconfig for a user, with a client certificate, and
// the address that nodes use when there is one.
func (cp *ControlPlane) WriteKubeconfig(file, user string, groups ...string) error {
	client, err := cp.certificates.issue(clientTemplate(user, groups...))
	if err != nil {
		return err
	}
	host := cp.host()
	if advertised := cp.options.AdvertiseAddress; advertised != "" {
		host = "https://" + net.JoinHostPort(advertised, strconv.Itoa(cp.apiServers[0].ports[0]))
	}
	return cp.certificates.writeKubeconfig(client, host, file)
}

// CAFile returns the path of the certificate of the authority that all clients
// and servers of this control plane have their certificates from.
func (cp *ControlPlane) CAFile() string { return cp.directory.file(caFile) }

// ServingFiles returns the paths of the certificate and the key that its
// programs serve with.
func (cp *ControlPlane) ServingFiles() (cert, key string) {
	return cp.directory.file(servingCertFile), cp.directory.file(servingKeyFile)
}

// Kubeconfig returns the path of the admin's kubeconfig for API server i, or 0.
func (cp *ControlPlane) Kubeconfig(i ...int) string {
	return cp.directory.file(adminKubeconfigName(first(i)))
}

// AuditLog returns the path of the audit log of API server i; it outlives restarts.
func (cp *ControlPlane) AuditLog(i int) string { return cp.directory.file(auditLogName(i)) }

// Kubectl returns the path of the kubectl that belongs to this control plane.
func (cp *ControlPlane) Kubectl() string { return cp.kubectl }

// Dir returns the temporary directory.
func (cp *ControlPlane) Dir() string { return cp.directory.path }

// LogFile returns the path of what a component printed. Its name is Etcd,
// ControllerManager, or APIServer and a number: kube-apiserver-0.
func (cp *ControlPlane) LogFile(name string) string {
	return cp.directory.file(logFolder + "/" + name + ".log")
}

// LogTails returns the end of every component's log under its name.
func (cp *ControlPlane) LogTails() string {
	var out strings.Builder
	for _, c := range cp.components() {
		fmt.Fprintf(&out, "--- %s\n%s\n", c.name, tail(c.log))
	}
	return out.String()
}

// PIDs returns the process id of every component that was started and not stopped, by name.
func (cp *ControlPlane) PIDs() map[string]int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	pids := map[string]int{}
	for _, c := range cp.components() {
		if c.process != nil {
			pids[c.name] = c.process.pid()
		}
	}
	return pids
}

// host panics for an API server that does not exist.
func (cp *ControlPlane) host(i ...int) string {
	return httpsURL(cp.apiServers[first(i)].ports[0], "")
}

func first(i []int) int {
	if len(i) == 0 {
		return 0
	}
	return i[0]
}
