package v1alpha1

import "net/url"

// AnnotationHelp holds an http or https URL that explains a policy. Ostiary appends it
// to denials and warnings.
const AnnotationHelp = GroupName + "/help"

// MaxHelpBytes limits the URL in AnnotationHelp.
const MaxHelpBytes = 256

// HelpURL returns the URL in AnnotationHelp, or "" if the annotation is absent or
// invalid.
func (p *WebhookPolicy) HelpURL() string {
	text := p.Annotations[AnnotationHelp]
	if len(text) > MaxHelpBytes {
		return ""
	}
	u, err := url.ParseRequestURI(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return u.String() // with everything escaped that is not printable
}
