# SPDX-License-Identifier: BSD-2-Clause
# One interface target carries the flags that every pinion target uses.
add_library(pinion_flags INTERFACE)
target_compile_definitions(pinion_flags INTERFACE _GNU_SOURCE)
target_compile_options(pinion_flags INTERFACE
	-Wall -Wextra -Wshadow -fno-omit-frame-pointer
	$<$<BOOL:${PINION_WERROR}>:-Werror>
	$<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
	$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
	$<$<C_COMPILER_ID:Clang>:-Wthread-safety>)
target_include_directories(pinion_flags INTERFACE
	${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
	${PROJECT_BINARY_DIR}/generated)
target_link_libraries(pinion_flags INTERFACE Threads::Threads)

if(PINION_HARDEN)
	# The flags of dpkg-buildflags with hardening=+all. For folders, not in
	# pinion_flags: so a target's own flags come last and win.
	add_compile_options(-fstack-protector-strong -Wformat -Wformat-security
		-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
	add_link_options(-Wl,-z,relro -Wl,-z,now)
	include(CheckPIESupported)
	check_pie_supported()
endif()
if(PINION_TESTS)
	# At close alone, which costs little: so every test is one of these.
	target_compile_definitions(pinion_flags INTERFACE PINION_CHECK_CLOSE=1)
endif()
if(PINION_CHECK)
	target_compile_definitions(pinion_flags INTERFACE PINION_CHECK=1)
endif()
if(PINION_SANITIZE)
	target_compile_options(pinion_flags INTERFACE
		-fsanitize=${PINION_SANITIZE} -fno-sanitize-recover=all)
	target_link_options(pinion_flags INTERFACE
		-fsanitize=${PINION_SANITIZE})
endif()
if(PINION_COVERAGE)
	# Atomic: threads count in the same places.
	target_compile_options(pinion_flags INTERFACE
		--coverage -fprofile-update=atomic -g -O1)
	target_compile_definitions(pinion_flags INTERFACE PINION_COVERAGE=1)
	target_link_options(pinion_flags INTERFACE --coverage)
endif()
if(PINION_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
		message(FATAL_ERROR "PINION_FUZZ needs clang: cmake --preset asan")
	endif()
	# Coverage for every object; the fuzz programs add the driver.
	target_compile_options(pinion_flags INTERFACE
		-fsanitize=fuzzer-no-link)
	target_link_options(pinion_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# pinion_assembly(FILE [FLAGS...]): the file defines functions in assembly.
# Link-time optimization would not see which names that assembly defines and
# uses.
function(pinion_assembly file)
	set_source_files_properties(${file} TARGET_DIRECTORY pinion_objects
		PROPERTIES COMPILE_OPTIONS "-fno-lto;${ARGN}")
endfunction()
