/* SPDX-License-Identifier: BSD-2-Clause */
/* Executes atomics: every operation on every type.
 *
 * Aligned values of up to 8 bytes are exchanged by compare-and-swap, so they
 * are atomic with respect to the program's own atomics, too. Longer values and
 * unaligned ones are exchanged under a lock of the process. Signed integers
 * wrap around. */
#include <complex.h>
#include <string.h>

#include "provider/onesided.h"

#define MAX_BYTES sizeof(long double complex)

/* Computes the new value of one `old` value. */
typedef void compute_fn(enum fi_op op, const void *old, const void *operand,
			const void *compare, void *out);

/* Operations that need neither order nor bits: all types have them. */
#define COMMON(type)                  \
	case FI_PROD:                 \
		r = (type)(o * x);    \
		break;                \
	case FI_LOR:                  \
		r = (type)(o || x);   \
		break;                \
	case FI_LAND:                 \
		r = (type)(o && x);   \
		break;                \
	case FI_LXOR:                 \
		r = (type)(!o != !x); \
		break;                \
	case FI_ATOMIC_WRITE:         \
		r = x;                \
		break;                \
	case FI_CSWAP:                \
		r = c == o ? x : o;   \
		break;                \
	case FI_CSWAP_NE:             \
		r = c != o ? x : o;   \
		break

#define ORDERED                     \
	case FI_MIN:                \
		r = x < o ? x : o;  \
		break;              \
	case FI_MAX:                \
		r = x > o ? x : o;  \
		break;              \
	case FI_CSWAP_LE:           \
		r = c <= o ? x : o; \
		break;              \
	case FI_CSWAP_LT:           \
		r = c < o ? x : o;  \
		break;              \
	case FI_CSWAP_GE:           \
		r = c >= o ? x : o; \
		break;              \
	case FI_CSWAP_GT:           \
		r = c > o ? x : o;  \
		break

#define BITS(type)                              \
	case FI_BOR:                            \
		r = (type)(o | x);              \
		break;                          \
	case FI_BAND:                           \
		r = (type)(o & x);              \
		break;                          \
	case FI_BXOR:                           \
		r = (type)(o ^ x);              \
		break;                          \
	case FI_MSWAP:                          \
		r = (type)((x & c) | (o & ~c)); \
		break

#define COMPUTE(name, type, ...)                                              \
	static void name(enum fi_op op, const void *old, const void *operand, \
			 const void *compare, void *out)                      \
	{                                                                     \
		type o, x = 0, c = 0, r;                                      \
                                                                              \
		memcpy(&o, old, sizeof(o));                                   \
		if (operand)                                                  \
			memcpy(&x, operand, sizeof(x));                       \
		if (compare)                                                  \
			memcpy(&c, compare, sizeof(c));                       \
		switch (op) {                                                 \
			__VA_ARGS__;                                          \
		default: /* FI_ATOMIC_READ */                                 \
			r = o;                                                \
		}                                                             \
		memcpy(out, &r, sizeof(r));                                   \
	}

#define SUM(type)                  \
	case FI_SUM:               \
		r = (type)(o + x); \
		break

#define COMPUTE_UNSIGNED(name, type) \
	COMPUTE(name, type, SUM(type); COMMON(type); ORDERED; BITS(type))
#define COMPUTE_REAL(name, type) \
	COMPUTE(name, type, SUM(type); COMMON(type); ORDERED)
#define COMPUTE_COMPLEX(name, type) COMPUTE(name, type, SUM(type); COMMON(type))

/* Operations that do not depend on the sign use the unsigned type, which wraps
 * around. Small types are computed as int and truncated. */
#define COMPUTE_SIGNED(name, type, twin)                                      \
	COMPUTE(name##_ordered, type, ORDERED)                                \
	static void name(enum fi_op op, const void *old, const void *operand, \
			 const void *compare, void *out)                      \
	{                                                                     \
		if (op == FI_MIN || op == FI_MAX ||                           \
		    (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT))                 \
			name##_ordered(op, old, operand, compare, out);       \
		else                                                          \
			twin(op, old, operand, compare, out);                 \
	}

/* A product of two 16-bit values would be computed as int and overflow. */
#define COMPUTE_SHORT(name, type)                                             \
	COMPUTE(name##_rest, type, SUM(type); COMMON(type); ORDERED;          \
		BITS(type))                                                   \
	static void name(enum fi_op op, const void *old, const void *operand, \
			 const void *compare, void *out)                      \
	{                                                                     \
		type o, x;                                                    \
                                                                              \
		if (op != FI_PROD) {                                          \
			name##_rest(op, old, operand, compare, out);          \
			return;                                               \
		}                                                             \
		memcpy(&o, old, sizeof(o));                                   \
		memcpy(&x, operand, sizeof(x));                               \
		o = (type)((uint32_t)o * x);                                  \
		memcpy(out, &o, sizeof(o));                                   \
	}

COMPUTE_SHORT(compute_u8, uint8_t)
COMPUTE_SHORT(compute_u16, uint16_t)
COMPUTE_UNSIGNED(compute_u32, uint32_t)
COMPUTE_UNSIGNED(compute_u64, uint64_t)
COMPUTE_UNSIGNED(compute_u128, unsigned __int128)
COMPUTE_SIGNED(compute_i8, int8_t, compute_u8)
COMPUTE_SIGNED(compute_i16, int16_t, compute_u16)
COMPUTE_SIGNED(compute_i32, int32_t, compute_u32)
COMPUTE_SIGNED(compute_i64, int64_t, compute_u64)
COMPUTE_SIGNED(compute_i128, __int128, compute_u128)
COMPUTE_REAL(compute_float, float)
COMPUTE_REAL(compute_double, double)
COMPUTE_REAL(compute_long_double, long double)
COMPUTE_COMPLEX(compute_float_complex, float complex)
COMPUTE_COMPLEX(compute_double_complex, double complex)
COMPUTE_COMPLEX(compute_long_double_complex, long double complex)

/* --- types ---------------------------------------------------------------- */

enum family {
	FAMILY_INTEGER,
	FAMILY_REAL,
	FAMILY_COMPLEX,
};

static const struct {
	size_t bytes;
	enum family family;
	compute_fn *compute;
} types[] = {
	[FI_INT8] = { 1, FAMILY_INTEGER, compute_i8 },
	[FI_UINT8] = { 1, FAMILY_INTEGER, compute_u8 },
	[FI_INT16] = { 2, FAMILY_INTEGER, compute_i16 },
	[FI_UINT16] = { 2, FAMILY_INTEGER, compute_u16 },
	[FI_INT32] = { 4, FAMILY_INTEGER, compute_i32 },
	[FI_UINT32] = { 4, FAMILY_INTEGER, compute_u32 },
	[FI_INT64] = { 8, FAMILY_INTEGER, compute_i64 },
	[FI_UINT64] = { 8, FAMILY_INTEGER, compute_u64 },
	[FI_FLOAT] = { sizeof(float), FAMILY_REAL, compute_float },
	[FI_DOUBLE] = { sizeof(double), FAMILY_REAL, compute_double },
	[FI_FLOAT_COMPLEX] = { sizeof(float complex), FAMILY_COMPLEX,
			       compute_float_complex },
	[FI_DOUBLE_COMPLEX] = { sizeof(double complex), FAMILY_COMPLEX,
				compute_double_complex },
	[FI_LONG_DOUBLE] = { sizeof(long double), FAMILY_REAL,
			     compute_long_double },
	[FI_LONG_DOUBLE_COMPLEX] = { sizeof(long double complex),
				     FAMILY_COMPLEX,
				     compute_long_double_complex },
	[FI_INT128] = { 16, FAMILY_INTEGER, compute_i128 },
	[FI_UINT128] = { 16, FAMILY_INTEGER, compute_u128 },
};

size_t pn_fi_datatype_bytes(unsigned type)
{
	return type < PN_ARRAY_LEN(types) ? types[type].bytes : 0;
}

static bool family_has(enum family family, unsigned op)
{
	switch (op) {
	case FI_BOR:
	case FI_BAND:
	case FI_BXOR:
	case FI_MSWAP:
		return family == FAMILY_INTEGER;
	case FI_MIN:
	case FI_MAX:
	case FI_CSWAP_LE:
	case FI_CSWAP_LT:
	case FI_CSWAP_GE:
	case FI_CSWAP_GT:
		return family != FAMILY_COMPLEX;
	default:
		return op < FI_ATOMIC_OP_LAST;
	}
}

bool pn_fi_atomic_valid(enum pn_fi_rma_kind kind, unsigned type, unsigned op)
{
	bool compares = op >= FI_CSWAP && op <= FI_MSWAP;

	if (!pn_fi_datatype_bytes(type) || !family_has(types[type].family, op))
		return false;
	if (op == FI_ATOMIC_READ)
		return kind == PN_FI_FETCH;
	return compares == (kind == PN_FI_COMPARE);
}

/* --- memory --------------------------------------------------------------- */

static pthread_mutex_t wide_lock = PTHREAD_MUTEX_INITIALIZER;

struct value {
	const void *operand, *compare;
	void *before;
};

/* For values that no compare-exchange of the machine covers. */
static void exchange_wide(const struct pn_fi_atomic_args *r, uint8_t *at,
			  size_t bytes, const struct value *v)
{
	uint8_t old[MAX_BYTES], new[MAX_BYTES];

	pthread_mutex_lock(&wide_lock);
	memcpy(old, at, bytes);
	/* A read must not write: the memory may be read-only. */
	if (r->op != FI_ATOMIC_READ) {
		types[r->type].compute(r->op, old, v->operand, v->compare, new);
		memcpy(at, new, bytes);
	}
	pthread_mutex_unlock(&wide_lock);
	if (v->before)
		memcpy(v->before, old, bytes);
}

#define EXCHANGE(type_name)                                                   \
	static void exchange_##type_name(const struct pn_fi_atomic_args *r,   \
					 uint8_t *at, const struct value *v)  \
	{                                                                     \
		type_name *cell = (void *)at; /* NOLINT: a type */            \
		type_name old = __atomic_load_n(cell, __ATOMIC_SEQ_CST), new; \
		bool done = r->op == FI_ATOMIC_READ;                          \
                                                                              \
		while (!done) {                                               \
			types[r->type].compute(r->op, &old, v->operand,       \
					       v->compare, &new);             \
			done = __atomic_compare_exchange_n(cell, &old, new,   \
							   false,             \
							   __ATOMIC_SEQ_CST,  \
							   __ATOMIC_RELAXED); \
		}                                                             \
		if (v->before)                                                \
			memcpy(v->before, &old, sizeof(old));                 \
	}

EXCHANGE(uint8_t)
EXCHANGE(uint16_t)
EXCHANGE(uint32_t)
EXCHANGE(uint64_t)

static void exchange(const struct pn_fi_atomic_args *r, uint8_t *at,
		     size_t bytes, const struct value *v)
{
	size_t whole = (uintptr_t)at & (bytes - 1) ? 0 : bytes;

	switch (whole) {
	case 1:
		exchange_uint8_t(r, at, v);
		break;
	case 2:
		exchange_uint16_t(r, at, v);
		break;
	case 4:
		exchange_uint32_t(r, at, v);
		break;
	case 8:
		exchange_uint64_t(r, at, v);
		break;
	default:
		exchange_wide(r, at, bytes, v);
	}
}

void pn_fi_atomic_run(const struct pn_fi_atomic_args *r)
{
	size_t bytes = types[r->type].bytes;

	for (size_t i = 0; i < r->bytes; i += bytes) {
		struct value v = {
			.operand = r->operand ? r->operand + i : NULL,
			.compare = r->compare ? r->compare + i : NULL,
			.before = r->before ? r->before + i : NULL,
		};

		exchange(r, (uint8_t *)r->at + i, bytes, &v);
	}
}
