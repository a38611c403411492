# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Checks that MPI jobs leave nothing behind: no file in /dev/shm, no process.

# own_shm "$0" "$@" -- runs the script again with its own /dev/shm, if it may
# have one, to see every file that is left: other tests may have files in the
# machine's. Otherwise nothing_left() looks for files with the process id of a
# rank.
own_shm() {
	local how

	[ -z "${PINION_OWN_SHM-}" ] || return 0
	for how in -m -Urm; do
		unshare $how mount -t tmpfs none /dev/shm 2>/dev/null ||
			continue
		export PINION_OWN_SHM=1
		exec unshare $how sh -c \
			'mount -t tmpfs none /dev/shm && exec "$@"' - "$@"
	done
}

# recorded FOLDER PROGRAM ARGUMENT... -- the words that run the program as a
# rank that records its process id in the folder.
recorded() {
	printf '%s\n' bash -c 'touch "$1/$$"; shift; exec "$@"' - "$@"
}

# nothing_left FOLDER N -- of N recorded ranks. What a rank had pinned is gone
# with its process.
nothing_left() {
	local ranks rank left namespace

	namespace=$(stat -Lc %i /proc/self/ns/pid) # segments bear it, too
	ranks=$(ls "$1")
	[ "$(wc -w <<<"$ranks")" = "$2" ] || { echo "ranks: $ranks"; return 1; }
	for rank in $ranks; do
		[ ! -e "/proc/$rank" ] ||
			{ echo "rank $rank still runs"; return 1; }
		left=$(find /dev/shm -path "*/$rank-$namespace")
		[ -z "$left" ] || { echo "a rank has left $left"; return 1; }
	done
	if [ -z "${PINION_OWN_SHM-}" ]; then
		echo "looked for what bears a rank's number"
		return 0
	fi
	left=$(find /dev/shm -mindepth 1 ! -type d)
	[ -z "$left" ] || { echo "left in shared memory: $left"; return 1; }
}
