# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# again COMMAND... -- runs a command, and once more if mpirun answered too late.
#
# Ranks that finalize wait two seconds for mpirun's answer (PMIx 4.2, a fixed
# limit), then exit without it. On a very busy machine mpirun therefore reports
# that rank 0 was "exiting improperly" and fails, whatever the transport. Ranks
# that crash, abort or exit with an error are reported in other words.
#
# Each command has a folder of its own for temporary files: a job of Open MPI
# that ends removes the folder of the sessions, in which another may just make
# its own.
again() {
	local said status

	said=$(mktemp -d) || return 1
	TMPDIR=$said "$@" >"$said/out" 2>"$said/err"
	status=$?
	if [ $status != 0 ] && grep -q 'exiting improperly' "$said/err"; then
		echo "run again: mpirun was too late" >&2
		TMPDIR=$said "$@" >"$said/out" 2>"$said/err"
		status=$?
	fi
	cat "$said/out"
	cat "$said/err" >&2
	rm -rf "$said"
	return $status
}
