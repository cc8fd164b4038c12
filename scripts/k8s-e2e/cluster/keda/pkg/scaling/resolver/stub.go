// Package resolver has what its kept files use of those that are cut out.
package resolver

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kedav1alpha1 "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"github.com/kedacore/keda/v2/pkg/scalers/authentication"
)

const DefaultVaultKubernetesAuthTokenFile = "/var/run/secrets/keda-vault/token"

var errCutOut = errors.New("secret stores of clouds are cut out of this build")

func vaultAddressesEqual(a, b string) bool { return a == b }

type stopped struct{}

func (stopped) Stop() {}

type vaultStub struct{ stopped }

func NewHashicorpVaultHandler(*kedav1alpha1.HashiCorpVault, *authentication.AuthClientSet, string) vaultStub {
	return vaultStub{}
}
func (vaultStub) Initialize(logr.Logger) error { return errCutOut }
func (vaultStub) ResolveSecrets([]kedav1alpha1.VaultSecret) ([]kedav1alpha1.VaultSecret, error) {
	return nil, errCutOut
}

type azureStub struct{ stopped }

func NewAzureKeyVaultHandler(*kedav1alpha1.AzureKeyVault) azureStub { return azureStub{} }
func (azureStub) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister) error {
	return errCutOut
}
func (azureStub) Read(context.Context, string, string) (string, error) { return "", errCutOut }

type gcpStub struct{ stopped }

func NewGCPSecretManagerHandler(*kedav1alpha1.GCPSecretManager) gcpStub { return gcpStub{} }
func (gcpStub) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister) error {
	return errCutOut
}
func (gcpStub) Read(context.Context, string, string) (string, error) { return "", errCutOut }

type awsStub struct{ stopped }

func NewAwsSecretManagerHandler(*kedav1alpha1.AwsSecretManager) awsStub { return awsStub{} }
func (awsStub) Initialize(context.Context, client.Client, logr.Logger, string, corev1listers.SecretLister, *corev1.PodSpec) error {
	return errCutOut
}
func (awsStub) Read(context.Context, logr.Logger, string, string, string, string) (string, error) {
	return "", errCutOut
}
