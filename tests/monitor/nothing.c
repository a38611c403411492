/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that does nothing, for test_link. */
int main(void)
{
	return 0;
}
