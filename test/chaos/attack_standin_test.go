package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/test/balancer"
	"github.com/ostiary/ostiary/test/controlplane"
)

const standInName = "chaos-stand-in"

// standIn is a webhook that allows everything, in as many processes as Ostiary, and a
// configuration that has it called for the same requests as Ostiary for the policies
// that tenants attack.
type standIn struct {
	run           *run
	running       []*controlplane.Running
	service       *balancer.Balancer
	configuration *admissionregistrationv1.ValidatingWebhookConfiguration
}

// standIn starts the processes. It copies the rules of the configurations that Ostiary
// has registered by now.
func (r *run) standIn() *standIn {
	s := &standIn{run: r}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	must(r.T, err)
	must(r.T, errors.Join(
		os.WriteFile(filepath.Join(r.dir, "tls.crt"), certPEM, 0o600),
		os.WriteFile(filepath.Join(r.dir, "tls.key"), keyPEM, 0o600),
	))
	program := filepath.Join(r.dir, "noop")
	out, err := exec.CommandContext(r.Context(), "go", "build", "-o", program, "../../hack/bench/noop").CombinedOutput()
	if err != nil {
		r.Fatalf("building the webhook that allows everything: %v: %s", err, out)
	}
	s.service, err = balancer.Listen("127.0.0.1:0", balancer.Random)
	must(r.T, err)
	for i := range replicas {
		must(r.T, s.start(r.Context(), program, i))
	}
	must(r.T, s.copyRules(certPEM))
	return s
}

func (s *standIn) start(ctx context.Context, program string, number int) error {
	address := ""
	running, err := s.run.plane.Run(ctx, controlplane.Program{
		Name: "noop-" + strconv.Itoa(number), Path: program, Ports: 2,
		Args: func(ports []int) []string {
			address = fmt.Sprintf("127.0.0.1:%d", ports[0])
			return []string{"-port=" + strconv.Itoa(ports[0]), "-health=127.0.0.1:" + strconv.Itoa(ports[1]), "-cert-dir=" + s.run.dir}
		},
		Probes: func(ports []int) []string { return []string{fmt.Sprintf("http://127.0.0.1:%d/", ports[1])} },
	})
	if err != nil {
		return err
	}
	s.running = append(s.running, running)
	s.service.Add(address)
	return nil
}

func (s *standIn) copyRules(bundle []byte) error {
	configs, err := s.run.tenantConfigurations()
	if err != nil {
		return err
	}
	s.configuration = &admissionregistrationv1.ValidatingWebhookConfiguration{}
	for _, c := range configs {
		registered, ok := c.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		if !ok {
			return fmt.Errorf("configuration %s mutates", c.GetName())
		}
		for _, hook := range registered.Webhooks {
			hook := *hook.DeepCopy()
			hook.Name = fmt.Sprintf("n%d.noop.chaos.example.com", len(s.configuration.Webhooks))
			hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To("https://" + s.service.Address() + "/validate"), CABundle: bundle,
			}
			s.configuration.Webhooks = append(s.configuration.Webhooks, hook)
		}
	}
	if len(s.configuration.Webhooks) == 0 {
		return errors.New("Ostiary has registered no webhook for the policies that tenants attack")
	}
	return nil
}

// register has API servers call it.
func (s *standIn) register() error {
	c := s.configuration.DeepCopy()
	c.ObjectMeta = metav1.ObjectMeta{Name: standInName}
	return s.run.admin().Create(s.run.Context(), c)
}

func (s *standIn) unregister() error {
	return client.IgnoreNotFound(s.run.admin().Delete(s.run.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: standInName},
	}))
}

func (s *standIn) stop() {
	for _, running := range s.running {
		running.Kill()
	}
	s.service.Close()
}
