#!/bin/bash
# Runs every fuzz target of the module in the current directory, one after the other, each for $1 (a duration, default
# 30s). Fails if a target finds a failure. The input of the failure is then in testdata/fuzz of the target's package.
#
# When the time of a target is over, go test may report a failure with the text "context deadline exceeded" only. It
# compares the contexts of its coordinator and of its workers while they end (golang/go#75804). Such a run has found no
# failure and writes no input, so the script runs the target once more.
set -euo pipefail
time=${1:-30s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() { # package, target
	local status=0
	nice go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 5s "$1" >"$log" 2>&1 || status=$?
	grep -v '^fuzz: elapsed' "$log" || true
	grep '^fuzz: elapsed' "$log" | tail -1 || true
	return $status
}

onlyTheClock() { grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input|failure while testing seed|panic:|goroutine ' "$log"; }

failed=() ran=0
for package in $(go list ./...); do
	for target in $(go test -list '^Fuzz' "$package" 2>/dev/null | grep '^Fuzz' || true); do
		echo "== ${package##*/} $target"
		ran=$((ran + 1))
		fuzz "$package" "$target" || { onlyTheClock && echo "ended by the clock; once more" && fuzz "$package" "$target"; } || failed+=("$package $target")
	done
done
echo "$ran fuzz targets, $time each; ${#failed[@]} failed"
[ "$ran" -gt 0 ] && [ ${#failed[@]} -eq 0 ] || { printf '%s\n' "failed:" "${failed[@]}"; exit 1; }
