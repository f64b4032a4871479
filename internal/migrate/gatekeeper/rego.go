package gatekeeper

import "strings"

// libraryPolicies are the policies of Ostiary's library that have the purpose of a public
// template, by the name of the template. Their parameters differ, so they are no results.
func libraryPolicies() map[string]string {
	return map[string]string{
		"k8sallowedrepos":                         "image-registries",
		"k8sallowedreposv2":                       "image-registries",
		"k8sdisallowedrepos":                      "image-registries",
		"k8sblockloadbalancer":                    "load-balancers",
		"k8sblocknodeport":                        "node-ports",
		"k8sblockwildcardingress":                 "ingress-wildcards",
		"k8scontainerlimits":                      "memory-limits",
		"k8scontainerrequests":                    "resource-requests",
		"k8srequiredresources":                    "resource-requests",
		"k8sdisallowanonymous":                    "everyone-bindings",
		"k8sdisallowedtags":                       "image-tags",
		"k8sexternalips":                          "external-ips",
		"k8shttpsonly":                            "ingress-tls",
		"k8simagedigests":                         "image-digests",
		"k8spoddisruptionbudget":                  "disruption-budgets",
		"k8sreplicalimits":                        "minimum-replicas",
		"k8srequiredlabels":                       "recommended-labels",
		"k8srequiredprobes":                       "liveness-probes",
		"k8spspallowedusers":                      "restricted-non-root",
		"k8spspallowprivilegeescalationcontainer": "restricted-privilege-escalation",
		"k8spspapparmor":                          "baseline-apparmor",
		"k8spspautomountserviceaccounttokenpod":   "mounted-tokens",
		"k8spspcapabilities":                      "restricted-capabilities",
		"k8spspforbiddensysctls":                  "baseline-sysctls",
		"k8spsphostfilesystem":                    "baseline-host-paths",
		"k8spsphostnamespace":                     "baseline-host-namespaces",
		"k8spsphostnetworkingports":               "baseline-host-ports",
		"k8spsphostprobeslifecycle":               "baseline-host-probes",
		"k8spspprivilegedcontainer":               "baseline-privileged",
		"k8spspprocmount":                         "baseline-proc-mount",
		"k8spspreadonlyrootfilesystem":            "read-only-root",
		"k8spspseccomp":                           "restricted-seccomp",
		"k8spspselinuxv2":                         "baseline-selinux",
		"k8spspvolumetypes":                       "restricted-volume-types",
	}
}

// leaveOutRego says what to use instead of a template in Rego.
func (d *templateDefinition) leaveOutRego() {
	d.failed = "the template is written in Rego, and Ostiary evaluates CEL"
	d.alternative = "use a version of the template with the engine " + engineCEL + ", as the later ones of the " +
		"public library, or write a WebhookPolicy"
	if name := libraryPolicies()[strings.ToLower(d.Spec.CRD.Spec.Names.Kind)]; name != "" {
		d.alternative = "use the policy " + name + " of Ostiary's library with parameters of its own, or a version " +
			"of the template with the engine " + engineCEL
	}
}
