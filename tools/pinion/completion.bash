# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Completion of pinion(1) for bash. The command itself says what may follow
# (`pinion help --words`), so that this never differs from it.
_pinion()
{
	local cur=${COMP_WORDS[COMP_CWORD]} words=()
	local i

	# An "=" is a word of its own for bash: --device=so is three words.
	if [[ $cur == "=" ]]; then
		cur=
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		=) ;;
		-*)
			# Only the option just before decides what follows.
			if ((i == COMP_CWORD - 1)) ||
				{ ((i == COMP_CWORD - 2)) &&
					[[ ${COMP_WORDS[i + 1]} == "=" ]]; }; then
				words+=("${COMP_WORDS[i]}")
			fi
			;;
		*)
			if [[ ${COMP_WORDS[i - 1]} != -* &&
				${COMP_WORDS[i - 1]} != "=" ]]; then
				words+=("${COMP_WORDS[i]}")
			fi
			;;
		esac
	done
	mapfile -t COMPREPLY < <(compgen -W \
		"$("${COMP_WORDS[0]}" help --words -- "${words[@]}" \
			2>/dev/null)" -- "$cur")
}
complete -F _pinion pinion
