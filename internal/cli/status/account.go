package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const (
	// tokenLifetime is the shortest that API servers accept.
	tokenLifetime = 10 * time.Minute
	// tokenRenewal is the age from which --watch requests another token.
	tokenRenewal = tokenLifetime / 2
)

// serviceAccount is a flag that names a ServiceAccount, with its last token.
type serviceAccount struct {
	namespace, name string

	token     string
	requested time.Time
}

// String implements pflag.Value.
func (a *serviceAccount) String() string {
	if a.name == "" {
		return ""
	}
	return a.namespace + "/" + a.name
}

// Set implements pflag.Value.
func (a *serviceAccount) Set(text string) error {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("must be NAMESPACE/NAME")
	}
	a.namespace, a.name = namespace, name
	return nil
}

// Type implements pflag.Value.
func (a *serviceAccount) Type() string { return "serviceaccount" }

// user returns a configuration with the token that reads metrics: that of the ServiceAccount, if one is named, and
// otherwise that of the user.
func (a *serviceAccount) user(ctx context.Context, config *rest.Config, now time.Time) (*rest.Config, error) {
	if a.name == "" {
		if config.BearerToken+config.BearerTokenFile == "" && config.ExecProvider == nil && config.AuthProvider == nil {
			return nil, errors.New("the context has no token, which the replicas ask for: " +
				"name a ServiceAccount that may get the URL /metrics with --metrics-service-account, " +
				"or pass a token with --token")
		}
		return config, nil
	}
	if a.token == "" || now.Sub(a.requested) > tokenRenewal {
		token, err := a.request(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("requesting a token of ServiceAccount %s: %w", a, err)
		}
		a.token, a.requested = token, now
	}
	return &rest.Config{BearerToken: a.token}, nil
}

func (a *serviceAccount) request(ctx context.Context, config *rest.Config) (string, error) {
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return "", err
	}
	lifetime := int64(tokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}}
	made, err := client.ServiceAccounts(a.namespace).CreateToken(ctx, a.name, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}
