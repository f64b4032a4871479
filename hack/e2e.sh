#!/usr/bin/env bash
# Runs the end-to-end tests on a node of this machine's own, which is gone after
# them. E2EFLAGS are further flags of go test.
set -euo pipefail
cd "$(dirname "$0")/.."

name=e2e
home=/var/lib/ostiary-cluster/$name

if [ "$(id -u)" != 0 ]; then
	echo "e2e: a node needs root, and Debian's packages: run this as root, or on a cluster of yours with make e2e-here" >&2
	exit 1
fi

# What a node could leave behind.
traces() {
	ip -o link show "ost-$name" 2>/dev/null || true
	iptables-save 2>/dev/null | grep -E 'KUBE-|CNI-' || true
	grep "$home" /proc/self/mountinfo || true
	find /sys/fs/cgroup -maxdepth 2 -name "ostiary-cluster-$name"
	grep -lsz "$home" /proc/[0-9]*/cmdline || true
	ls -d "$home" /var/lib/kubelet /var/lib/cni 2>/dev/null || true
	(cd /proc/sys && head -n 1 vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops)
}

bin/cluster -name "$name" down # one that was killed before its end
before=$(traces)
said=$(mktemp)
registry=
down() {
	trap - EXIT INT TERM
	[ -z "$registry" ] || kill "$registry" 2>/dev/null || true
	rm -f "$said"
	bin/cluster -name "$name" down
	after=$(traces)
	if [ "$before" != "$after" ]; then
		printf 'e2e: the node has left something behind. Before:\n%s\nAfter:\n%s\n' "$before" "$after" >&2
		exit 1
	fi
}
trap 'down' EXIT
trap 'exit 130' INT TERM

bin/cluster -name "$name" up
bin/cluster -name "$name" load-image dist/ostiary.tar
bin/cluster -name "$name" load-image dist/checks.tar

# Two releases in a registry on loopback, and their images on the node, which cannot reach it.
if [ -n "${E2E_COSIGN:-}" ]; then
	(cd hack/image && go build -o ../../bin/image .)
	bin/image registry -address 127.0.0.1:0 >"$said" &
	registry=$!
	until [ -s "$said" ] || ! kill -0 "$registry"; do sleep 0.1; done
	address=$(cat "$said")
	E2E_RELEASES=
	for version in v0.0.1 v0.0.2; do
		COSIGN="$E2E_COSIGN" hack/release.sh build "$version"
		E2E_RELEASES+="$version $(COSIGN="$E2E_COSIGN" hack/release.sh publish "$version" "$address/ostiary" | tr '\n' ' '),"
		bin/cluster -name "$name" load-image dist/release/ostiary.tar
	done
	export E2E_RELEASES E2E_COSIGN_KEY="$PWD/dist/cosign.pub"
fi
export KUBECONFIG="$home/kubeconfig" E2E_CHECKS=ostiary.dev/checks:1 E2E_AUDIT_LOG="$home/audit.json" E2E_RESTART="$PWD/bin/cluster -name $name restart"
status=0
# shellcheck disable=SC2086 # several flags
"$E2E_GOTESTSUM" --format standard-verbose --hide-summary=skipped -- -tags e2e,grpcnotrace -count=1 -timeout 45m ${E2EFLAGS:-} ./test/e2e | tee "$said" || status=$?
if [ "$status" != 0 ]; then
	printf '\n=== The cluster after that\n'
	bin/k8s/kubectl get pods -A -o wide || true
	bin/k8s/kubectl events -A --types=Warning || true
	bin/k8s/kubectl -n ostiary-system logs -l app.kubernetes.io/name=ostiary --prefix --tail=100 || true
	tail -n 30 "$home"/logs/kubelet.log || true
	sed -n '/^=== Failed/,$p' "$said" # once more: the last lines are what is read first
fi
down
exit "$status"
