package explain

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
)

// controllerOf returns the service account that creates the Pods of a kind of workloads; "" for
// other kinds.
func controllerOf(kind string) string {
	return map[string]string{
		"Deployment": "replicaset-controller", "ReplicaSet": "replicaset-controller", "StatefulSet": "statefulset-controller",
		"DaemonSet": "daemon-set-controller", "Job": "job-controller", "CronJob": "job-controller",
		"ReplicationController": "replication-controller",
	}[kind]
}

// podRequest returns the request of the controller of a workload for a new Pod; nil for an
// object without a pod template. The Pod is that of the template, in the namespace and with a
// name like that of the workload; what the controller and the API server add is not there.
func podRequest(workload *load.Object, apis *offline.APIs) (*admissionv1.AdmissionRequest, error) {
	controller := controllerOf(workload.Kind)
	if controller == "" {
		return nil, nil //nolint:nilnil // it creates no Pods
	}
	type template struct {
		Metadata map[string]any  `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	var has struct {
		Spec struct {
			Template    template `json:"template"`
			JobTemplate struct {
				Spec struct {
					Template template `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	if err := workload.Read(&has); err != nil {
		return nil, err
	}
	of := has.Spec.Template
	if workload.Kind == "CronJob" {
		of = has.Spec.JobTemplate.Spec.Template
	}
	metadata := map[string]any{"generateName": workload.Metadata.Name + "-", "namespace": workload.Metadata.Namespace}
	for _, field := range []string{"labels", "annotations"} {
		if value, ok := of.Metadata[field]; ok {
			metadata[field] = value
		}
	}
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": of.Spec})
	if err != nil {
		return nil, fmt.Errorf("making the Pod of %s: %w", workload, err)
	}
	pod, err := load.FromJSON("the Pod of "+workload.String(), raw)
	if err != nil {
		return nil, err
	}
	return apis.NewRequest(pod, nil, offline.RequestOptions{User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:kube-system:" + controller,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"},
	}})
}
