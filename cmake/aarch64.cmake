# SPDX-License-Identifier: BSD-2-Clause
# Toolchain for aarch64 on another machine. Compiler and C library are Debian's
# cross packages; the other libraries come from PINION_SYSROOT, which
# tools/aarch64-sysroot fills. Programs run under qemu where it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# try_compile() reads this file again, with only these variables set.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PINION_SYSROOT)
set(CMAKE_FIND_ROOT_PATH ${PINION_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PINION_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
	${PINION_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)

# Headers that differ between architectures lie apart, as hwloc's do.
foreach(language C CXX)
	set(CMAKE_${language}_FLAGS_INIT "-idirafter ${PINION_SYSROOT}/usr/include/aarch64-linux-gnu")
endforeach()

# Where the libraries of libraries are.
set(beside ${PINION_SYSROOT}/usr/lib/aarch64-linux-gnu:${PINION_SYSROOT}/lib/aarch64-linux-gnu)
foreach(kind EXE SHARED MODULE)
	# -L: libncursesw.so is a script that names others.
	set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${beside} -L${PINION_SYSROOT}/lib/aarch64-linux-gnu -L${PINION_SYSROOT}/usr/lib/aarch64-linux-gnu")
endforeach()

find_program(PINION_QEMU qemu-aarch64-static)
if(PINION_QEMU)
	set(CMAKE_CROSSCOMPILING_EMULATOR
		${PINION_QEMU} -L /usr/aarch64-linux-gnu -E
		LD_LIBRARY_PATH=${beside})
endif()
