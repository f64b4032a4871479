package oracles

// GatekeeperDifferences are the intended differences from Gatekeeper's engines.
func GatekeeperDifferences() []Difference { return nil }
