// Package azure has what the resolver of secrets uses of it; the rest is cut out.
package azure

const (
	ServicePrincipalAuthKey                      = "azureServicePrincipal"
	ServicePrincipalTenantIDKey                  = "azureServicePrincipalTenantId"
	ServicePrincipalClientIDKey                  = "azureServicePrincipalClientId"
	ServicePrincipalCloudKey                     = "azureServicePrincipalCloud"
	ServicePrincipalActiveDirectoryEndpointKey   = "azureServicePrincipalActiveDirectoryEndpoint"
	ServicePrincipalClientSecretKey              = "azureServicePrincipalClientSecret"
	ServicePrincipalClientCertificateKey         = "azureServicePrincipalClientCertificate"
	ServicePrincipalClientCertificatePasswordKey = "azureServicePrincipalClientCertificatePassword"
)
