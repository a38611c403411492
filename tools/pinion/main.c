/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>

#include <pinion/pinion.h>

int main(void)
{
	printf("pinion %s\n", pinion_version());
	return 0;
}
