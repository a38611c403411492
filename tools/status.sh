# SPDX-License-Identifier: BSD-2-Clause
#
# status.sh -- what an exit status says (sourced by bash).

# how_it_ended STATUS: a death by signal is named, not numbered.
how_it_ended() {
	local signal

	if [ "$1" -gt 128 ] && signal=$(kill -l $(($1 - 128)) 2>/dev/null); then
		echo "died of SIG$signal"
	else
		echo "exit status $1"
	fi
}
