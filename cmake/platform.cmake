# SPDX-License-Identifier: BSD-2-Clause
# Ends with the message of src/base/platform.h where pinion cannot run.
block()
	set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
	try_compile(PINION_PLATFORM SOURCE_FROM_CONTENT platform.c
		"#include \"${PROJECT_SOURCE_DIR}/src/base/platform.h\"\nint pn_platform;\n"
		OUTPUT_VARIABLE said)
	if(NOT PINION_PLATFORM)
		unset(PINION_PLATFORM CACHE)
		string(REGEX MATCH "error:? \"([^\"]*)\"" matched "${said}")
		if(matched)
			message(FATAL_ERROR "${CMAKE_MATCH_1}")
		endif()
		message(FATAL_ERROR "the C compiler does not work: ${said}")
	endif()
endblock()
