package controlplane

import (
	"fmt"
	"strings"
)

// controllers are those that an admission test can tell the absence of, and
// those that make pods of workloads. The rest need nodes, volumes or a cloud.
const controllers = "garbage-collector-controller,namespace-controller,serviceaccount-controller," +
	"serviceaccount-token-controller,root-ca-certificate-publisher-controller,clusterrole-aggregation-controller," +
	"validatingadmissionpolicy-status-controller,resourcequota-controller,persistentvolumeclaim-protection-controller," +
	"deployment-controller,replicaset-controller,job-controller"

// defaultAuditPolicy writes one line when the request is done.
const defaultAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func httpsURL(port int, path string) string { return "https://" + address(port) + path }

func peerURL(port int) string { return "http://" + address(port) }

// etcdArguments take the client port and the peer port, which etcd wants even
// where it is alone, and all members.
func etcdArguments(d *directory, name string, ports []int, peers string) []string {
	client, peer := httpsURL(ports[0], ""), peerURL(ports[1])
	return []string{
		"--name=" + name,
		"--data-dir=" + d.file(dataFolder+"/"+name),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--client-cert-auth", "--trusted-ca-file=" + d.file(caFile),
		"--cert-file=" + d.file(servingCertFile), "--key-file=" + d.file(servingKeyFile),
		// Its gateway of JSON calls itself.
		"--client-cert-file=" + d.file(etcdClientCertFile), "--client-key-file=" + d.file(etcdClientKeyFile),
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + peers,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func apiServerArguments(d *directory, o Options, i int, etcd []string, port int) []string {
	authorization := "RBAC"
	if o.AdvertiseAddress != "" {
		authorization = "Node,RBAC"
	}
	args := []string{
		"--bind-address=" + loopback, "--advertise-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
		// It would publish the address in the service kubernetes.default, where loopback is refused.
		"--endpoint-reconciler-type=none",
		"--etcd-servers=" + strings.Join(etcd, ","), "--etcd-cafile=" + d.file(caFile),
		"--etcd-certfile=" + d.file(etcdClientCertFile), "--etcd-keyfile=" + d.file(etcdClientKeyFile),
		"--authorization-mode=" + authorization,
		"--client-ca-file=" + d.file(caFile),
		"--tls-cert-file=" + d.file(servingCertFile), "--tls-private-key-file=" + d.file(servingKeyFile),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + d.file(accountKeyFile),
		"--service-account-signing-key-file=" + d.file(accountKeyFile),
		"--service-cluster-ip-range=" + serviceRange,
		"--allow-privileged=true",
	}
	if o.AdvertiseAddress != "" {
		args = append(args,
			"--bind-address=0.0.0.0", "--advertise-address="+o.AdvertiseAddress, "--endpoint-reconciler-type=lease",
			"--kubelet-preferred-address-types=InternalIP", // there need be no name service
			"--enable-admission-plugins=NodeRestriction",
			// For the logs of pods, and for commands in them.
			"--kubelet-client-certificate="+d.file(adminCertFile), "--kubelet-client-key="+d.file(adminKeyFile))
	}
	if o.NoControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if o.Audit {
		args = append(args,
			"--audit-policy-file="+d.file(auditPolicyFile),
			"--audit-log-path="+d.file(auditLogName(i)),
			"--audit-log-maxsize=10240") // megabytes: a second file would hide the first lines from the reader
	}
	args = append(args, o.APIServerArgs...)
	if o.ArgsOf != nil {
		args = append(args, o.ArgsOf(i, etcd)...)
	}
	return args
}

func auditLogName(i int) string { return fmt.Sprintf("audit-%d.json", i) }

func managerArguments(d *directory, o Options, port int) []string {
	run := controllers
	if o.AdvertiseAddress != "" {
		run = "*"
	}
	return []string{
		"--kubeconfig=" + d.file(managerKubeconfig),
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + d.file(servingCertFile), "--tls-private-key-file=" + d.file(servingKeyFile),
		"--leader-elect=false",
		"--controllers=" + run,
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + d.file(accountKeyFile),
		"--root-ca-file=" + d.file(caFile),
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	}
}
