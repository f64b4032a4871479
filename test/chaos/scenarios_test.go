package chaos

// scenarios are in the order in which they run. docs/chaos.md has a row for each.
func scenarios() []scenario {
	return []scenario{
		{name: "leaf-renewals", points: "1", ci: true, flags: []string{"--certificate-renew-after=5s"}, run: leafRenewals},
		{name: "ca-rotations", points: "2", ci: true, run: caRotations},
		{name: "ca-key-lost", points: "2", run: caKeyLost},
		{name: "leader-killed", points: "3", ci: true, run: leaderKilled},
		{name: "leader-paused", points: "4", run: leaderPaused},
		{name: "secrets-deleted", points: "5, 6", ci: true, run: secretsDeleted},
		{name: "secrets-corrupted", points: "7", ci: true, run: secretsCorrupted},
		{name: "everything-lost", points: "8", ci: true, run: everythingLost},
		{name: "leaf-expired-at-boot", points: "9", run: leafExpired},
		{name: "ca-expired-at-boot", points: "9", run: caExpired},
		{name: "bundles-emptied", points: "10, 30", ci: true, run: bundlesEmptied},
		{name: "old-ca-restored", points: "11", run: oldCARestored},
		{name: "rolling-update", points: "16", ci: true, run: rollingUpdate},
		{name: "scaled", points: "17", run: scaled},
		{name: "replicas-killed", points: "18", run: replicasKilled},
		{name: "replica-partitioned", points: "19", run: replicaPartitioned},
		{name: "broken-rotation", points: "none: the harness itself", ci: true, run: brokenRotation},
	}
}
