#!/bin/sh
# Copies what the Helm chart installs as kustomize does: a chart cannot reach
# files outside of its folder.
set -eu
cd "$(dirname "$0")/.."

to=charts/ostiary/files
rm -rf "$to"
mkdir -p "$to"
cat config/crd/bases/*.yaml > "$to/crd.yaml"
cp config/rbac/*_role.yaml config/rbac/role.yaml config/rbac/user_roles.yaml config/rbac/service_account.yaml config/rbac/author_policy.yaml \
	config/rbac/exception_policy.yaml "$to"
cp config/components/certmanager/role.yaml "$to/certmanager_role.yaml"
cp config/components/reports/reports.yaml config/components/reports/cluster_reports.yaml "$to"
cp config/components/reports/role.yaml "$to/reports_role.yaml"
cp config/webhook/service.yaml "$to/webhook_service.yaml"
cp config/components/prometheus/service.yaml "$to/metrics_service.yaml"
cp config/components/prometheus/service_monitor.yaml config/components/prometheus/prometheus_rule.yaml "$to"
cp config/components/prometheus/dashboard.json "$to"
cp config/self-test/self_test.yaml config/uninstall/uninstall.yaml "$to"
