package lint

import "path/filepath"

// The types are the part of SARIF 2.1.0 that code scanning reads:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     Severity        `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		PhysicalLocation sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		ArtifactLocation sarifArtifact `json:"artifactLocation"`
		Region           *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
)

func sarifOf(findings []Finding, version string) sarifLog {
	run := sarifRun{
		Tool: sarifTool{Driver: sarifDriver{
			Name: "kubectl-ostiary", Version: version, InformationURI: "https://github.com/ostiary/ostiary/blob/main/docs/cli/lint.md",
			Rules: []sarifRule{
				{ID: ruleRead, ShortDescription: sarifText{"The file is not a policy"}},
				{ID: ruleSchema, ShortDescription: sarifText{"API servers reject the policy"}},
				{ID: ruleReview, ShortDescription: sarifText{"Ostiary rejects the policy"}},
				{ID: ruleRisk, ShortDescription: sarifText{"Ostiary warns about the policy"}},
				{ID: ruleTypes, ShortDescription: sarifText{"An expression does not fit the schema of a kind"}},
				{ID: ruleException, ShortDescription: sarifText{"An exception has no effect, or less than it says"}},
				{ID: ruleRehearsal, ShortDescription: sarifText{"A request fails with an error, or goes around the policy"}},
			},
		}},
		Results: []sarifResult{},
	}
	for _, f := range findings {
		at := sarifPhysical{ArtifactLocation: sarifArtifact{URI: filepath.ToSlash(f.File)}}
		if f.Line > 0 {
			at.Region = &sarifRegion{StartLine: f.Line, StartColumn: f.Column}
		}
		run.Results = append(run.Results, sarifResult{RuleID: f.Rule, Level: f.Severity, Message: sarifText{messageOf(f)}, Locations: []sarifLocation{{PhysicalLocation: at}}})
	}
	return sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
}
