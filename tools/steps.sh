# SPDX-License-Identifier: BSD-2-Clause
#
# steps.sh -- what the scripts behind the Makefile share (sourced by bash).
#
# A job is a list of steps. `step NAME COMMAND...` prints the name and how long
# the step took last time, runs the command with its output in a log, shows how
# far it has come, and closes the line with the result and the seconds it took.
# Exit status 77 means skipped: the last line of the output says why. Any other
# failure shows the end of the log and ends the job.
# Tests that ctest ran are counted from its output; any other step that calls
# itself a check (`check NAME COMMAND...`) counts as one.
# The script runs in the top folder of the sources, wherever it was called.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
. tools/status.sh
logs=build/logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0
# bash would go on counting from a SECONDS that make exports.
SECONDS=0
# One job per core, so that a build does not starve the machine.
export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}

# Adds ctest's results in a log to the totals.
count_tests() {
	local log=$1 line='^ *[0-9]+/[0-9]+ Test +#[0-9]+: '

	passed=$((passed + $(grep -cE "$line.* Passed " "$log")))
	skipped=$((skipped + $(grep -cE "$line.*\*\*\*Skipped" "$log")))
	failed=$((failed + $(grep -E "$line.*\*\*\*" "$log" |
		grep -vc '\*\*\*Skipped')))
}

summary() {
	echo "$passed passed, $failed failed, $skipped skipped in $SECONDS s"
}

give_up() {
	local name=$1 log=$2

	tail -n "${LOG_LINES:-60}" "$log"
	echo "$job: '$name' failed ($(how_it_ended "$result"));" \
		"all of its output is in $log" >&2
	# What broke may not have come so far as to be counted.
	[ "$failed" -gt 0 ] || failed=1
	summary
	exit 1
}

# Prints the tests that a step skipped.
show_skipped() {
	sed -n 's/^\t *[0-9]* - \(.*\) (Skipped)$/    skipped: \1/p' "$1"
}

# How far ninja or ctest has come, as its log says: "12/345", or nothing.
how_far() {
	tail -c 4000 "$1" | grep -oE '^\[[0-9]+/[0-9]+\]|^ *[0-9]+/[0-9]+ Test' |
		tail -n 1 | grep -oE '[0-9]+/[0-9]+'
}

# Shows how far a step has come until it is ended: on a terminal each second at
# the end of the line that `begun` begins, elsewhere twice a minute.
show_progress() {
	local begun=$1 log=$2 seconds=0 every=30 far

	[ ! -t 1 ] || every=1
	# The job may be killed: then nobody ends this. What is left of the last
	# sleep must not keep a pipe open.
	while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		seconds=$((seconds + 1))
		[ $((seconds % every)) = 0 ] || continue
		far=$(how_far "$log")
		if [ -t 1 ]; then
			printf '\r%s%7s %4d s ' "$begun" "$far" $seconds
		else
			printf '%s ' "${far:-$seconds s}"
		fi
	done
}

# head_of NAME FILE: how a step's line begins, with what it took last time if
# the file says so. All of it and the progress fit in 80 columns.
head_of() {
	local last

	last=$(cat "$2" 2>/dev/null) && last="($last s last time)"
	printf '%-44s %-18s ' "$1" "$last"
}

# Runs a step; its result is in $result (0, 77 or a failure), log in $log.
run_step() {
	local name=$1 start=$SECONDS begun took
	shift
	log=$logs/$job-$(tr -c 'a-zA-Z0-9\n' - <<<"$name").log
	took=${log%.log}.seconds
	begun=$(head_of "$name" "$took")
	printf '%s' "$begun"
	: >"$log"
	show_progress "$begun" "$log" &
	"$@" >"$log" 2>&1 </dev/null
	result=$?
	# As a job, not by its number: that may be another's if this has ended.
	kill %% 2>/dev/null
	wait 2>/dev/null
	[ ! -t 1 ] || printf '\r\033[K%s' "$begun"
	count_tests "$log"
	close_line $((SECONDS - start)) "$took"
	show_skipped "$log"
}

# Ends the line of a step that took so many seconds.
close_line() {
	case $result in
	0)
		printf 'ok %6d s\n' "$1"
		echo "$1" >"$2" ;;
	77) printf 'skipped: %s\n' "$(tail -n 1 "$log")" ;;
	*) printf 'FAILED %2d s (%s)\n' "$1" "$(how_it_ended $result)" ;;
	esac
}

step() {
	run_step "$@"
	[ "$result" = 0 ] || [ "$result" = 77 ] || give_up "$1" "$log"
}

# A step that is one test by itself.
check() {
	run_step "$@"
	case $result in
	0) passed=$((passed + 1)) ;;
	77) skipped=$((skipped + 1)) ;;
	*) failed=$((failed + 1))
		give_up "$1" "$log" ;;
	esac
}

# Installs the packages of the groups. One line even when it fails.
packages() {
	local start=$SECONDS said

	head_of "Debian packages for: $*" ""
	said=$(tools/install-deps "$@" 2>&1) || {
		echo FAILED
		echo "$said" >&2
		exit 1
	}
	printf 'ok %6d s%s\n' $((SECONDS - start)) "${said:+ ($said)}"
}

# Fails in one line when packages are missing, and installs nothing.
need() {
	local missing

	missing=$(tools/install-deps --list "$@") || exit 1
	[ -z "$missing" ] || {
		echo "$job: packages are missing: $missing" \
			"('make deps' installs them)" >&2
		exit 1
	}
}

# The C and C++ files of the repository, in $files. No files is an error. Root may
# work on a tree of another user, which git would refuse by default.
list_sources() {
	mapfile -t files < <(git -c safe.directory="$PWD" ls-files \
		'*.c' '*.h' '*.hpp' '*.cpp')
	[ "${#files[@]}" -gt 0 ] || {
		echo "git lists no sources here"
		return 1
	}
}

# A checksum of the tree: all files that git tracks or would track.
tree_id() {
	git -c safe.directory="$PWD" ls-files -co --exclude-standard -z |
		xargs -0r sha256sum 2>&1 | sha256sum
}

# Notes that `make check` passed on the tree with that number.
note_green() {
	echo "$1" >"$logs/check.green"
}

# Whether it passed on the current tree within the hour; later the machine may
# have changed.
is_green() {
	[ -n "$(find "$logs/check.green" -mmin -60 2>/dev/null)" ] &&
		[ "$(tree_id)" = "$(cat "$logs/check.green")" ]
}

configure() {
	step "configure ($1)" cmake --preset "$@"
}
