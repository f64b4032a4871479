package chaos

// scenarios are in the order in which they run. A page in docs/chaos has a row for each.
func scenarios() []scenario {
	return []scenario{
		{name: "leaf-renewals", points: "1", flags: quickRenewal, run: leafRenewals},
		{name: "ca-rotations", points: "2", run: caRotations},
		{name: "ca-key-lost", points: "2", run: caKeyLost},
		{name: "leader-killed", points: "3", ci: true, run: leaderKilled},
		{name: "leader-paused", points: "4", run: leaderPaused},
		{name: "secrets-deleted", points: "5, 6", run: secretsDeleted},
		{name: "secrets-corrupted", points: "7", ci: true, run: secretsCorrupted},
		{name: "everything-lost", points: "8", run: everythingLost},
		{name: "leaf-expired-at-boot", points: "9", run: leafExpired},
		{name: "ca-expired-at-boot", points: "9", run: caExpired},
		{name: "bundles-emptied", points: "10, 30", run: bundlesEmptied},
		{name: "policies-changed", points: "none: what API servers may keep to", run: policiesChanged},
		{name: "policies-recreated", points: "none: what API servers may keep to", run: policiesRecreated},
		{name: "exceptions-changed", points: "none: exceptions", flags: openMetrics, run: exceptionsChanged},
		{name: "lookups-changed", points: "none: lookups", flags: youngLookups, run: lookupsChanged},
		{name: "old-ca-restored", points: "11", run: oldCARestored},
		{name: "clocks-wrong", points: "12", wrongClocks: true, run: clocksWrong},
		{name: "apiservers-restarted", points: "13", run: apiServersRestarted},
		{name: "apiservers-down", points: "14", run: apiServersDown},
		{name: "etcd-slow", points: "14", run: etcdSlow},
		{name: "etcd-killed", points: "14", etcd: etcd{members: 3}, run: etcdKilled},
		{name: "etcd-without-quorum", points: "14", etcd: etcd{members: 3}, run: etcdWithoutQuorum},
		{name: "etcd-full", points: "14", etcd: etcd{quota: smallQuota}, run: etcdFull},
		{name: "stalled-watch", points: "15", flags: realOverlap, run: stalledWatch},
		{name: "rolling-update", points: "16", run: rollingUpdate},
		{name: "scaled", points: "17", run: scaled},
		{name: "replicas-killed", points: "18", run: replicasKilled},
		{name: "replica-partitioned", points: "19", run: replicaPartitioned},
		{name: "replica-outdated", points: "19", flags: byURL, run: replicaOutdated},
		{name: "connections-reset", points: "19", run: connectionsReset},
		{name: "slow-backend", points: "20", run: slowBackend},
		{name: "throttled", points: "21", run: throttled},
		{name: "large-objects", points: "23", run: largeObjects},
		{name: "slow-clients", points: "25", run: slowClients},
		{name: "versions", points: "33", run: versions},
		{name: "soak", points: "34", flags: openMetrics, run: soak},
		{name: "attack-reviews", points: "none: hostile callers", attack: true, ci: true, flags: openMetrics, run: attackReviews},
		{name: "attack-bombs", points: "none: hostile callers", attack: true, flags: openMetrics, run: attackBombs},
		{name: "attack-connections", points: "none: hostile callers", attack: true, flags: openMetrics, run: attackConnections},
		{name: "attack-tenant", points: "none: a hostile tenant", attack: true, ci: true, flags: openMetrics, run: attackTenant},
		{name: "attack-ports", points: "none: hostile callers", attack: true, run: attackOtherPorts},
		{name: "attack-author", points: "none: a hostile author", attack: true, flags: reportingViolations, run: attackAuthor},
		{name: "audit-leader-killed", points: "none: the audit", flags: openMetrics, run: auditLeaderKilled},
		{name: "audit-apiservers-down", points: "none: the audit", flags: openMetrics, run: auditAPIServersDown},
		{name: "audit-etcd-full", points: "none: the audit", etcd: etcd{quota: smallQuota}, flags: openMetrics, run: auditEtcdFull},
		{name: "audit-objects-deleted", points: "none: the audit", flags: openMetrics, run: auditObjectsDeleted},
		{name: "audit-reports-removed", points: "none: the audit", flags: openMetrics, run: auditReportsRemoved},
		{name: "broken-rotation", points: "none: the harness itself", ci: true, run: brokenRotation},
	}
}

func quickRenewal(size) []string { return []string{"--certificate-renew-after=5s"} }

func realOverlap(s size) []string { return []string{"--trust-overlap=" + s.overlap().String()} }

// byURL has API servers call replicas by a URL, for which readiness is not watched.
func byURL(size) []string { return []string{urlFlag} }

func openMetrics(size) []string { return []string{"--metrics-auth=false"} }

// youngLookups have a lag that a scenario can exceed.
func youngLookups(size) []string { return []string{"--metrics-auth=false", "--lookup-max-age=1m"} }

func reportingViolations(size) []string {
	return []string{"--metrics-auth=false", "--report-violations=log,events"}
}
