#!/bin/bash
# Runs every fuzz target of the module in the current directory in turn, each for $1 (a duration, default 30s).
# Fails when one finds something; the input that does it is then in testdata/fuzz of the target's package.
#
# A run that is ended by its clock can be reported as failed with nothing but "context deadline exceeded": go test
# compares the contexts of its coordinator and of its workers while they end (golang/go#75804). Nothing was found
# then, and no input is written; such a run is made once more.
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
