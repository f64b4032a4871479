package cptest_test

import (
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

func TestRun(t *testing.T) {
	var dir string
	t.Run("for the length of a test", func(t *testing.T) {
		cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
		dir = cp.Dir()
		client := kubernetes.NewForConfigOrDie(cp.Config())
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir); dir == "" || !os.IsNotExist(err) {
		t.Errorf("the directory %q outlives the test: %v", dir, err)
	}
}
