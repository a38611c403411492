/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * platform -- what pinion runs on. The monitor changes code of the C library
 * and makes system calls itself, so it depends on processor and library.
 * cmake/platform.cmake compiles this file first and prints the message.
 */
#ifndef PN_BASE_PLATFORM_H
#define PN_BASE_PLATFORM_H

#if !defined(__LP64__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "pinion runs on x86-64 and aarch64 with 64 bits, and on nothing else"
#else
#include <features.h>
#ifndef __GLIBC__
#error "pinion needs glibc: other C libraries (musl) are not supported"
#endif
#endif

#endif
