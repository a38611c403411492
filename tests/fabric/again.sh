# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# again COMMAND... -- runs it, and once more when mpirun was not heard of in time.
#
# Ranks that finalize give mpirun two seconds to answer (PMIx 4.2, not to be set)
# and then end without it. On a machine so busy mpirun misses their farewell, says
# that its rank 0 was "exiting improperly" and fails, over whatever messages went.
# Ranks that crash, abort or exit with an error are told of in other words.
again() {
	local said status

	said=$(mktemp -d) || return 1
	"$@" >"$said/out" 2>"$said/err"
	status=$?
	if [ $status != 0 ] && grep -q 'exiting improperly' "$said/err"; then
		echo "run again: mpirun was too late" >&2
		"$@" >"$said/out" 2>"$said/err"
		status=$?
	fi
	cat "$said/out"
	cat "$said/err" >&2
	rm -rf "$said"
	return $status
}
