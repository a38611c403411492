# SPDX-License-Identifier: BSD-2-Clause
# generated/revision.h names the commit that was built; benchmark rows carry it.
add_custom_target(pinion_revision
	COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
		-DOUT=${PROJECT_BINARY_DIR}/generated/revision.h
		-DVERSION=${PROJECT_VERSION}
		-P ${PROJECT_SOURCE_DIR}/cmake/write_revision.cmake
	BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/revision.h)
