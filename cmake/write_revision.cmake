# SPDX-License-Identifier: BSD-2-Clause
execute_process(COMMAND git -C ${SOURCE} -c safe.directory=${SOURCE}
	describe --always --dirty
	OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
	set(revision "unknown")
endif()
set(text "#define PN_REVISION \"${revision}\"\n#define PN_VERSION \"${VERSION}\"\n")
set(old "")
if(EXISTS ${OUT})
	file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
	file(WRITE ${OUT} "${text}")
endif()
