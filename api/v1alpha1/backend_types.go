package v1alpha1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// DefaultBackendPort is the port of a backend's Service if it sets none.
const DefaultBackendPort int32 = 443

// BackendType is the phase of admission in which a backend is called.
type BackendType string

// The types of backends.
const (
	// BackendValidating is called in the validating phase, and allows or denies.
	BackendValidating BackendType = "Validating"
	// BackendMutating is called in the mutating phase, and may change the object.
	BackendMutating BackendType = "Mutating"
)

// Backend is an external webhook. The API server calls it directly. Ostiary
// registers it and updates the CA bundle of its registration.
//
// +kubebuilder:validation:XValidation:rule="(has(self.caBundle) ? 1 : 0) + (has(self.caFrom) ? 1 : 0) + (has(self.certificate) ? 1 : 0) <= 1",reason=FieldValueInvalid,message="set only one of caBundle, caFrom and certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.service) || has(self.url) || has(self.caBundle) || has(self.caFrom) || has(self.certificate)",reason=FieldValueRequired,message="add caBundle, caFrom or certificate: the API server needs the CA of the service's certificate"
// +kubebuilder:validation:XValidation:rule="!has(self.certificate) || has(self.service) || !has(self.url)",fieldPath=".certificate",reason=FieldValueForbidden,message="remove certificate, or set service instead of url: Ostiary issues certificates for Services only"
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !string(self.caBundle).contains('PRIVATE KEY')",fieldPath=".caBundle",reason=FieldValueForbidden,message="remove the private key: a CA bundle holds only certificates"
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || string(self.caBundle).contains('-----BEGIN CERTIFICATE-----')",fieldPath=".caBundle",reason=FieldValueForbidden,message="add a certificate in PEM: caBundle has none"
type Backend struct {
	// type is the phase in which the backend is called: Mutating, in which it may
	// change the object, or Validating, after all changes.
	// +required
	// +kubebuilder:validation:Enum=Validating;Mutating
	Type BackendType `json:"type"`

	// service is the Service in the cluster that the API server calls. Its
	// certificate must have the name <name>.<namespace>.svc. Set either service
	// or url.
	// +optional
	Service *BackendService `json:"service,omitempty"`

	// url is the address of a backend without a Service, as
	// https://host[:port]/path, without user, query and fragment. The API server
	// must be able to reach it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`

	// admissionReviewVersions are the versions of AdmissionReview that the
	// backend supports, the preferred one first.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=v1;v1beta1
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] != self[1]",reason=FieldValueDuplicate,message="name each version once"
	AdmissionReviewVersions []string `json:"admissionReviewVersions"`

	// sideEffects says whether a call changes anything but the request: None if
	// it never does, NoneOnDryRun if it does not for dry runs.
	// +required
	// +kubebuilder:validation:Enum=None;NoneOnDryRun
	SideEffects admissionregistrationv1.SideEffectClass `json:"sideEffects"`

	// caBundle holds the CA certificates, in PEM, with which the API server
	// verifies the backend's certificate. At most 64 KiB. With a url and none of
	// caBundle, caFrom and certificate, it uses the system roots of its host.
	// +optional
	// +kubebuilder:validation:MaxLength=87384
	CABundle []byte `json:"caBundle,omitempty"`

	// caFrom names the object that holds the CA bundle. A change takes effect
	// within seconds. If the new content is invalid, the condition CAReady
	// reports it and the previous bundle stays registered.
	// +optional
	CAFrom *CASource `json:"caFrom,omitempty"`

	// certificate makes Ostiary issue and renew the serving certificate of the
	// service.
	// +optional
	Certificate *BackendCertificate `json:"certificate,omitempty"`
}

// BackendService names a Service, its port and the path of the webhook.
type BackendService struct {
	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the name of a namespace: lower-case letters, digits and '-'"
	Namespace string `json:"namespace"`

	// name of the Service.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the name of a Service: lower-case letters, digits and '-', beginning with a letter"
	Name string `json:"name"`

	// path of the webhook, beginning with '/'. Default '/'.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",reason=FieldValueInvalid,message="begin path with '/'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[?#]')",reason=FieldValueInvalid,message="remove query and fragment from path"
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)+/?$')",reason=FieldValueInvalid,message="write each segment of path with lower-case letters, digits, '-' and '.': the API server rejects others"
	Path string `json:"path,omitempty"`

	// port of the Service. Default 443.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// CASource is the object that holds a CA bundle.
//
// +kubebuilder:validation:XValidation:rule="has(self.secret) != has(self.configMap)",reason=FieldValueInvalid,message="set either secret or configMap"
type CASource struct {
	// secret is a key of a Secret. Ostiary can read it only if a Role in its
	// namespace grants that.
	// +optional
	Secret *ObjectKey `json:"secret,omitempty"`

	// configMap is a key of a ConfigMap. Ostiary can read it only if a Role in its
	// namespace grants that.
	// +optional
	ConfigMap *ObjectKey `json:"configMap,omitempty"`
}

// ObjectKey names one key in the data of an object.
type ObjectKey struct {
	// namespace of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the name of a namespace: lower-case letters, digits and '-'"
	Namespace string `json:"namespace"`

	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",reason=FieldValueInvalid,message="write the name of one object: lower-case letters, digits, '-' and '.'"
	Name string `json:"name"`

	// key in the data of the object, such as ca.crt.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",reason=FieldValueInvalid,message="write a key with letters, digits, '-', '_' and '.'"
	Key string `json:"key"`
}

// BackendCertificate is a serving certificate that Ostiary issues.
type BackendCertificate struct {
	// secretName is the Secret of type kubernetes.io/tls, in the Service's
	// namespace, that holds tls.crt, tls.key and ca.crt. Ostiary creates it or
	// fills an empty one, if a Role in the namespace grants that.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",reason=FieldValueInvalid,message="write the name of one Secret: lower-case letters, digits, '-' and '.'"
	SecretName string `json:"secretName"`
}

// EffectivePort returns the port of the Service, or its default.
func (s *BackendService) EffectivePort() int32 {
	if s.Port == nil {
		return DefaultBackendPort
	}
	return *s.Port
}

// ServerName returns the DNS name that the Service's certificate must have.
func (s *BackendService) ServerName() string { return s.Name + "." + s.Namespace + ".svc" }
