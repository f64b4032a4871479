package audit

import (
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxWorkload limits the description of a workload, in bytes. Owner references hold what their
// author claims.
const maxWorkload = 512

// workload describes the workload that creates new Pods like this object: the controller of a
// Pod, or else the object itself, which has a template. It is empty for an object of which no
// new Pods follow. The Deployment of a ReplicaSet is known from the names and the label that
// its controller sets.
func (o *Object) workload() string {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Status   struct {
			Phase      corev1.PodPhase    `json:"phase"`
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.JSON, &object); err != nil {
		return "" // it is evaluated as unreadable
	}
	if o.Kind != podKind() {
		isEnd := func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionTrue &&
				(c.Type == string(batchv1.JobComplete) || c.Type == string(batchv1.JobFailed))
		}
		if o.Kind == batchv1.SchemeGroupVersion.WithKind("Job") && slices.ContainsFunc(object.Status.Conditions, isEnd) {
			return ""
		}
		return o.describeWorkload(o.Kind.Kind, o.Name)
	}
	owner := metav1.GetControllerOfNoCopy(&object.Metadata)
	isFinished := object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
	switch {
	case owner == nil, owner.Kind == "Node": // a static Pod
		return ""
	case owner.Kind == "Job" && isFinished:
		return ""
	}
	hash := "-" + object.Metadata.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if name, ok := strings.CutSuffix(owner.Name, hash); ok && owner.Kind == "ReplicaSet" && len(hash) > 1 {
		return o.describeWorkload("Deployment", name)
	}
	return o.describeWorkload(owner.Kind, owner.Name)
}

func (o *Object) describeWorkload(kind, name string) string {
	return truncate.String(kind+" "+o.Namespace+"/"+name, maxWorkload)
}
