/* SPDX-License-Identifier: BSD-2-Clause */
/* For builds that measure coverage. gcc writes its counters in exit() only;
 * children of tests end by _exit(), so as to skip the exit handlers of cmocka
 * and the monitor. This function replaces it (--wrap=_exit): it writes the
 * counters and ends the child. */
void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

_Noreturn void __wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}
