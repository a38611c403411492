/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics. The child operates on memory of the parent and keeps a model of it.
 * The model computes in the widest type: integers in 128 bits, other types in
 * long double complex, with values that are exact in both. */
#include "test.h"

#include <complex.h>
#include <sys/mman.h>

#include "side.h"

#define CAPS   (FI_ATOMIC | FI_RMA | FI_MSG)
#define MODE   (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define VALUES 4
#define CELL   32 /* bytes: the longest type */

typedef unsigned __int128 wide;
typedef long double complex number;

enum kind {
	BASE,
	FETCH,
	COMPARE,
	NKINDS,
};

static const struct {
	size_t bytes;
	char family; /* integer, unsigned, real, complex */
} types[] = {
	[FI_INT8] = { 1, 'i' },
	[FI_UINT8] = { 1, 'u' },
	[FI_INT16] = { 2, 'i' },
	[FI_UINT16] = { 2, 'u' },
	[FI_INT32] = { 4, 'i' },
	[FI_UINT32] = { 4, 'u' },
	[FI_INT64] = { 8, 'i' },
	[FI_UINT64] = { 8, 'u' },
	[FI_FLOAT] = { 4, 'r' },
	[FI_DOUBLE] = { 8, 'r' },
	[FI_FLOAT_COMPLEX] = { 8, 'c' },
	[FI_DOUBLE_COMPLEX] = { 16, 'c' },
	[FI_LONG_DOUBLE] = { sizeof(long double), 'r' },
	[FI_LONG_DOUBLE_COMPLEX] = { sizeof(number), 'c' },
	[FI_INT128] = { 16, 'i' },
	[FI_UINT128] = { 16, 'u' },
};

#define NTYPES PN_ARRAY_LEN(types)

/* --- the model ------------------------------------------------------------ */

static wide load_integer(const uint8_t *at, unsigned type)
{
	size_t bits = 8 * types[type].bytes;
	wide v = 0;

	memcpy(&v, at, types[type].bytes);
	if (types[type].family == 'i' && bits < 128 && v >> (bits - 1))
		v |= ~(wide)0 << bits;
	return v;
}

/* Inverting the sign bit makes signed integers compare like unsigned ones. */
static wide rank(wide v, unsigned type)
{
	return types[type].family == 'i' ? v ^ (wide)1 << 127 : v;
}

/* Whether a conditional swap takes place. `order` compares the value of the
 * call with that of the memory: below (-1), equal (0) or above it (1). */
static bool is_swapped(enum fi_op op, bool equal, int order)
{
	switch (op) {
	case FI_CSWAP:
		return equal;
	case FI_CSWAP_NE:
		return !equal;
	case FI_CSWAP_LE:
		return order <= 0;
	case FI_CSWAP_LT:
		return order < 0;
	case FI_CSWAP_GE:
		return order >= 0;
	default: /* FI_CSWAP_GT */
		return order > 0;
	}
}

static bool is_conditional(enum fi_op op)
{
	return op >= FI_CSWAP && op <= FI_CSWAP_GT;
}

static wide model_integer(enum fi_op op, unsigned type, wide o, wide x, wide c)
{
	wide ro = rank(o, type), rx = rank(x, type), rc = rank(c, type);

	if (is_conditional(op))
		return is_swapped(op, c == o, (rc > ro) - (rc < ro)) ? x : o;
	switch (op) {
	case FI_MIN:
		return rx < ro ? x : o;
	case FI_MAX:
		return rx > ro ? x : o;
	case FI_SUM:
		return o + x;
	case FI_PROD:
		return o * x;
	case FI_LOR:
		return o || x;
	case FI_LAND:
		return o && x;
	case FI_LXOR:
		return (o && !x) || (!o && x);
	case FI_BOR:
		return o | x;
	case FI_BAND:
		return o & x;
	case FI_BXOR:
		return o ^ x;
	case FI_ATOMIC_READ:
		return o;
	case FI_ATOMIC_WRITE:
		return x;
	default: /* FI_MSWAP */
		return (x & c) | (o & ~c);
	}
}

/* Order is that of the real part: complex numbers have none. */
static number model_number(enum fi_op op, number o, number x, number c)
{
	long double ro = creall(o), rx = creall(x), rc = creall(c);

	if (is_conditional(op))
		return is_swapped(op, c == o, (rc > ro) - (rc < ro)) ? x : o;
	switch (op) {
	case FI_MIN:
		return rx < ro ? x : o;
	case FI_MAX:
		return rx > ro ? x : o;
	case FI_SUM:
		return o + x;
	case FI_PROD:
		return o * x;
	case FI_LOR:
		return o != 0 || x != 0;
	case FI_LAND:
		return o != 0 && x != 0;
	case FI_LXOR:
		return (o != 0) != (x != 0);
	case FI_ATOMIC_WRITE:
		return x;
	default: /* FI_ATOMIC_READ */
		return o;
	}
}

static number load_number(const uint8_t *at, unsigned type)
{
	union {
		float f;
		double d;
		long double l;
		float complex fc;
		double complex dc;
		number lc;
	} v;

	memcpy(&v, at, types[type].bytes);
	switch (type) {
	case FI_FLOAT:
		return v.f;
	case FI_DOUBLE:
		return v.d;
	case FI_LONG_DOUBLE:
		return v.l;
	case FI_FLOAT_COMPLEX:
		return v.fc;
	case FI_DOUBLE_COMPLEX:
		return v.dc;
	default:
		return v.lc;
	}
}

static void store_number(uint8_t *at, unsigned type, number n)
{
	float f = (float)creall(n);
	double d = (double)creall(n);
	long double l = creall(n);
	float complex fc = (float complex)n;
	double complex dc = (double complex)n;
	const void *from = type == FI_FLOAT	       ? (void *)&f
			   : type == FI_DOUBLE	       ? (void *)&d
			   : type == FI_LONG_DOUBLE    ? (void *)&l
			   : type == FI_FLOAT_COMPLEX  ? (void *)&fc
			   : type == FI_DOUBLE_COMPLEX ? (void *)&dc
						       : (void *)&n;

	memcpy(at, from, types[type].bytes);
}

static bool is_integer(unsigned type)
{
	return types[type].family == 'i' || types[type].family == 'u';
}

/* Applies the operation to the value at `at`. */
static void model(enum fi_op op, unsigned type, uint8_t *at,
		  const uint8_t *operand, const uint8_t *compare)
{
	if (is_integer(type)) {
		wide v = model_integer(op, type, load_integer(at, type),
				       load_integer(operand, type),
				       load_integer(compare, type));

		memcpy(at, &v, types[type].bytes);
	} else {
		store_number(at, type,
			     model_number(op, load_number(at, type),
					  load_number(operand, type),
					  load_number(compare, type)));
	}
}

/* Whether two values are equal. A long double has padding bytes. */
static bool same(unsigned type, const uint8_t *a, const uint8_t *b)
{
	return is_integer(type) ? !memcmp(a, b, types[type].bytes)
				: load_number(a, type) == load_number(b, type);
}

/* fi_atomic(3). */
static bool is_defined(enum kind kind, unsigned type, unsigned op)
{
	bool bits = op == FI_BOR || op == FI_BAND || op == FI_BXOR ||
		    op == FI_MSWAP;
	bool ordered = op == FI_MIN || op == FI_MAX ||
		       (op >= FI_CSWAP_LE && op <= FI_CSWAP_GT);

	if ((bits && !is_integer(type)) ||
	    (ordered && types[type].family == 'c'))
		return false;
	if (op >= FI_CSWAP)
		return kind == COMPARE;
	return kind == FETCH || (kind == BASE && op != FI_ATOMIC_READ);
}

/* --- one operation -------------------------------------------------------- */

/* The child's model of the parent's memory. */
struct state {
	struct window w;
	uint8_t model[VALUES * CELL];
	uint64_t rng;
};

/* Small numbers: equal values occur, and products stay exact. */
static void draw_value(uint8_t *at, unsigned type, uint64_t *rng)
{
	long double re = ((long double)test_below(rng, 9) - 4) / 2;
	long double im = ((long double)test_below(rng, 9) - 4) / 2;
	wide v = test_below(rng, 2)
			 ? (wide)test_below(rng, 5) - 2
			 : (wide)test_random(rng) << 64 | test_random(rng);

	if (is_integer(type))
		memcpy(at, &v, types[type].bytes);
	else
		store_number(at, type,
			     types[type].family == 'c' ? re + im * I : re);
}

struct values {
	uint8_t operand[VALUES * CELL];
	uint8_t compare[VALUES * CELL];
	uint8_t result[VALUES * CELL];
};

/* An atomic operation on n values. */
struct operation {
	enum kind kind;
	unsigned type, op;
	size_t n;
};

static ssize_t post(struct side *s, const struct window *w,
		    const struct operation *o, struct values *v)
{
	if (o->kind == BASE)
		return fi_atomic(s->ep, v->operand, o->n, NULL, s->peer,
				 w->addr, w->key, o->type, o->op, v);
	if (o->kind == FETCH)
		return fi_fetch_atomic(s->ep,
				       o->op == FI_ATOMIC_READ ? NULL
							       : v->operand,
				       o->n, NULL, v->result, NULL, s->peer,
				       w->addr, w->key, o->type, o->op, v);
	return fi_compare_atomic(s->ep, v->operand, o->n, NULL, v->compare,
				 NULL, v->result, NULL, s->peer, w->addr,
				 w->key, o->type, o->op, v);
}

static bool operate(struct side *s, struct state *t, enum kind kind,
		    unsigned type, unsigned op)
{
	size_t n = 1 + test_below(&t->rng, VALUES), size = types[type].bytes;
	const struct operation o = { kind, type, op, n };
	struct fi_cq_tagged_entry end;
	struct values v = { 0 };

	for (size_t i = 0; i < n; i++) {
		draw_value(v.operand + i * size, type, &t->rng);
		draw_value(v.compare + i * size, type, &t->rng);
	}
	NEED(!post(s, &t->w, &o, &v));
	NEED(next_entry(s->tx, &end) && end.op_context == &v);
	NEED(end.flags == (FI_ATOMIC | (kind == BASE ? FI_WRITE : FI_READ)));
	for (size_t i = 0; i < n; i++) {
		if (kind != BASE)
			NEED(same(type, v.result + i * size,
				  t->model + i * size));
		model(op, type, t->model + i * size, v.operand + i * size,
		      v.compare + i * size);
	}
	return true;
}

/* Writes random values of the type. */
static bool write_random(struct side *s, struct state *t, unsigned type)
{
	struct fi_cq_tagged_entry end;

	memset(t->model, 0, sizeof(t->model));
	for (size_t i = 0; i < VALUES; i++)
		draw_value(t->model + i * types[type].bytes, type, &t->rng);
	NEED(!fi_write(s->ep, t->model, sizeof(t->model), NULL, s->peer,
		       t->w.addr, t->w.key, NULL));
	return next_entry(s->tx, &end);
}

/* Compares all values with the model. */
static bool agrees(struct side *s, struct state *t, unsigned type)
{
	struct fi_cq_tagged_entry end;
	uint8_t seen[sizeof(t->model)];

	NEED(!fi_read(s->ep, seen, sizeof(seen), NULL, s->peer, t->w.addr,
		      t->w.key, NULL));
	NEED(next_entry(s->tx, &end));
	for (size_t i = 0; i < VALUES; i++)
		NEED(same(type, seen + i * types[type].bytes,
			  t->model + i * types[type].bytes));
	return true;
}

/* --- every operation on every type ---------------------------------------- */

static int query_support(struct side *s, enum kind kind, unsigned type,
			 unsigned op, size_t *count)
{
	static const uint64_t flags[] = { 0, FI_FETCH_ATOMIC,
					  FI_COMPARE_ATOMIC };
	struct fi_atomic_attr attr = { 0 };
	int ret = kind == BASE ? fi_atomicvalid(s->ep, type, op, count)
		  : kind == FETCH
			  ? fi_fetch_atomicvalid(s->ep, type, op, count)
			  : fi_compare_atomicvalid(s->ep, type, op, count);

	/* Both queries must agree. */
	if (fi_query_atomic(s->domain, type, op, &attr, flags[kind]) != ret ||
	    (!ret && (attr.count != *count || attr.size != types[type].bytes)))
		return -1;
	return ret;
}

static bool check_operation(struct side *s, struct state *t, enum kind kind,
			    unsigned type, unsigned op)
{
	struct operation o = { kind, type, op, 1 };
	struct values v = { 0 };
	size_t count = 0;

	if (is_defined(kind, type, op)) {
		NEED(!query_support(s, kind, type, op, &count) &&
		     count >= VALUES);
		for (int i = 0; i < 3; i++)
			NEED(operate(s, t, kind, type, op));
		o.n = count + 1;
		NEED(post(s, &t->w, &o, &v) == -FI_EMSGSIZE);
	} else {
		NEED(query_support(s, kind, type, op, &count) ==
		     -FI_EOPNOTSUPP);
		NEED(post(s, &t->w, &o, &v) == -FI_EOPNOTSUPP);
	}
	return true;
}

static bool check_type(struct side *s, struct state *t, unsigned type)
{
	for (unsigned op = 0; op < FI_ATOMIC_OP_LAST; op++) {
		NEED(write_random(s, t, type));
		for (enum kind kind = BASE; kind < NKINDS; kind++)
			NEED(check_operation(s, t, kind, type, op));
		NEED(agrees(s, t, type));
	}
	return true;
}

static bool check_all(struct side *s)
{
	struct state t = { .rng = s->setup->seed };
	struct window none = { 0 };

	NEED(swap_bytes(s, &none, &t.w, sizeof(none)));
	for (unsigned type = 0; type < NTYPES; type++)
		NEED(check_type(s, &t, type));
	return sync_up(s);
}

static bool expose(struct side *s)
{
	uint8_t *memory = aligned_alloc(64, VALUES * CELL);
	struct window mine = { (uintptr_t)memory, 0 }, none;
	struct fid_mr *mr;

	NEED(!fi_mr_reg(s->domain, memory, VALUES * CELL, ACCESS, 0, 0, 0, &mr,
			NULL));
	mine.key = fi_mr_key(mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	NEED(sync_up(s));
	NEED(close_region(mr));
	free(memory);
	return true;
}

static void every_operation_on_every_type_agrees_with_a_model(void **state)
{
	struct setup setup = { .caps = CAPS,
			       .mr_mode = MODE,
			       .seed = test_seed() };

	(void)state;
	run_with(expose, check_all, &setup);
}

/* --- random programs, of one type at a time ------------------------------- */

static bool run_random(struct side *s)
{
	struct state t = { .rng = s->setup->seed };
	struct window none = { 0 };

	NEED(swap_bytes(s, &none, &t.w, sizeof(none)));
	for (int round = 0; round < 30; round++) {
		unsigned type = (unsigned)test_below(&t.rng, NTYPES);

		NEED(write_random(s, &t, type));
		for (int i = 0; i < 20; i++) {
			enum kind kind = test_below(&t.rng, NKINDS);
			unsigned op =
				(unsigned)test_below(&t.rng, FI_ATOMIC_OP_LAST);

			/* Products would not stay exact. */
			if (op != FI_PROD && is_defined(kind, type, op))
				NEED(operate(s, &t, kind, type, op));
		}
		NEED(agrees(s, &t, type));
	}
	return sync_up(s);
}

static void random_atomics_agree_with_a_model(void **state)
{
	struct setup setup = { .caps = CAPS,
			       .mr_mode = MODE,
			       .seed = test_seed() };

	(void)state;
	run_with(expose, run_random, &setup);
}

/* --- several at once ------------------------------------------------------ */

#define ADDS	  1000
#define IN_FLIGHT 10 /* in flight */

/* Both sides add to one cell of the parent, and the parent's CPU does, too.
 * Each must see another value. */
static bool add_both(struct side *s)
{
	uint64_t cell = 0, one = 1, got[IN_FLIGHT], sum = 0, theirs;
	struct window mine = { (uintptr_t)&cell, 0 }, w;
	fi_addr_t target = s->is_child ? s->peer : s->self;
	struct fi_cq_tagged_entry end;
	struct fid_mr *mr;

	NEED(!fi_mr_reg(s->domain, &cell, sizeof(cell), ACCESS, 0, 0, 0, &mr,
			NULL));
	mine.key = fi_mr_key(mr);
	NEED(swap_bytes(s, &mine, &w, sizeof(mine)));
	if (!s->is_child)
		w = mine;
	for (int i = 0; i < ADDS; i += IN_FLIGHT) {
		for (int j = 0; j < IN_FLIGHT; j++)
			NEED(!fi_fetch_atomic(s->ep, &one, 1, NULL, &got[j],
					      NULL, target, w.addr, w.key,
					      FI_UINT64, FI_SUM, NULL));
		for (int j = 0; j < IN_FLIGHT; j++)
			NEED(next_entry(s->tx, &end));
		for (int j = 0; j < IN_FLIGHT; j++)
			sum += got[j];
		if (!s->is_child)
			sum += __atomic_fetch_add(&cell, 1, __ATOMIC_RELAXED);
	}
	NEED(sync_up(s));
	NEED(swap_bytes(s, &sum, &theirs, sizeof(sum)));
	NEED(close_region(mr));
	if (!s->is_child) {
		uint64_t n = 2 * ADDS + ADDS / IN_FLIGHT;

		NEED(cell == n && sum + theirs == n * (n - 1) / 2);
	}
	return true;
}

static void atomics_of_several_initiators_are_atomic(void **state)
{
	struct setup setup = { .caps = CAPS, .mr_mode = MODE };

	(void)state;
	run_with(add_both, add_both, &setup);
}

/* --- calls with lists, and inject ----------------------------------------- */

static bool use_messages(struct side *s)
{
	uint64_t operand = 5, compare = 7, result = 0;
	struct fi_ioc x = { &operand, 1 }, c = { &compare, 1 };
	struct fi_ioc r = { &result, 1 };
	struct window w, none = { 0 };
	struct fi_rma_ioc at = { .count = 1 };
	struct fi_msg_atomic m = { .msg_iov = &x,
				   .iov_count = 1,
				   .addr = s->peer,
				   .rma_iov = &at,
				   .rma_iov_count = 1,
				   .datatype = FI_UINT64,
				   .op = FI_ATOMIC_WRITE };
	struct fi_cq_tagged_entry end;

	NEED(swap_bytes(s, &none, &w, sizeof(w)));
	at.addr = w.addr;
	at.key = w.key;
	NEED(!fi_atomicmsg(s->ep, &m, FI_INJECT | FI_COMPLETION));
	NEED(next_entry(s->tx, &end));
	NEED(!fi_inject_atomic(s->ep, &operand, 1, s->peer, w.addr, w.key,
			       FI_UINT64, FI_SUM));
	m.op = FI_MAX;
	NEED(!fi_fetch_atomicmsg(s->ep, &m, &r, NULL, 1, FI_COMPLETION));
	NEED(next_entry(s->tx, &end) && result == 10);
	NEED(!fi_fetch_atomicv(s->ep, &x, NULL, 1, &r, NULL, 1, s->peer, w.addr,
			       w.key, FI_UINT64, FI_SUM, NULL));
	NEED(next_entry(s->tx, &end) && result == 10);
	NEED(!fi_atomicv(s->ep, &x, NULL, 1, s->peer, w.addr, w.key, FI_UINT64,
			 FI_SUM, NULL));
	NEED(next_entry(s->tx, &end));
	compare = 20;
	m.op = FI_CSWAP;
	NEED(!fi_compare_atomicmsg(s->ep, &m, &c, NULL, 1, &r, NULL, 1,
				   FI_COMPLETION));
	NEED(next_entry(s->tx, &end) && result == 20);
	NEED(!fi_compare_atomicv(s->ep, &x, NULL, 1, &c, NULL, 1, &r, NULL, 1,
				 s->peer, w.addr, w.key, FI_UINT64, FI_CSWAP_NE,
				 NULL));
	NEED(next_entry(s->tx, &end) && result == 5);
	return sync_up(s);
}

static void atomic_calls_with_iovecs_do_the_same(void **state)
{
	struct setup setup = { .caps = CAPS, .mr_mode = MODE };

	(void)state;
	run_with(expose, use_messages, &setup);
}

/* --- reading -------------------------------------------------------------- */

/* Read-only memory, and a counter of a region. */
static bool expose_read_only(struct side *s)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *counter;
	uint8_t *memory =
		mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t cell = 3;
	struct fid_mr *mr[2];
	struct window w[2], none[2];

	NEED(memory != MAP_FAILED);
	NEED(!fi_cntr_open(s->domain, &attr, &counter, NULL));
	NEED(!fi_mr_reg(s->domain, memory, 4096, FI_REMOTE_READ, 0, 0, 0,
			&mr[0], NULL));
	NEED(!fi_mr_reg(s->domain, &cell, sizeof(cell), ACCESS, 0, 1, 0, &mr[1],
			NULL));
	NEED(!fi_mr_bind(mr[1], &counter->fid, FI_REMOTE_WRITE));
	NEED(!fi_mr_enable(mr[1]));
	w[0] = (struct window){ (uintptr_t)memory, fi_mr_key(mr[0]) };
	w[1] = (struct window){ (uintptr_t)&cell, fi_mr_key(mr[1]) };
	NEED(swap_bytes(s, w, none, sizeof(w)));
	NEED(sync_up(s));
	NEED(cell == 4 && fi_cntr_read(counter) == 1);
	NEED(close_region(mr[0]) && close_region(mr[1]));
	NEED(!fi_close(&counter->fid) && !munmap(memory, 4096));
	return true;
}

static bool read_read_only(struct side *s)
{
	static const enum fi_datatype kinds[] = { FI_UINT8, FI_UINT64,
						  FI_UINT128 };
	struct window w[2], none[2] = { 0 };
	uint8_t result[16], zero[16] = { 0 };
	struct fi_cq_tagged_entry end;
	uint64_t one = 1;

	NEED(swap_bytes(s, none, w, sizeof(w)));
	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++) {
		memset(result, 1, sizeof(result));
		NEED(!fi_fetch_atomic(s->ep, NULL, 1, NULL, result, NULL,
				      s->peer, w[0].addr, w[0].key, kinds[i],
				      FI_ATOMIC_READ, NULL));
		NEED(next_entry(s->tx, &end));
		NEED(!memcmp(result, zero, types[kinds[i]].bytes));
	}
	NEED(!fi_fetch_atomic(s->ep, NULL, 1, NULL, result, NULL, s->peer,
			      w[1].addr, w[1].key, FI_UINT64, FI_ATOMIC_READ,
			      NULL));
	NEED(next_entry(s->tx, &end) && result[0] == 3);
	NEED(!fi_atomic(s->ep, &one, 1, NULL, s->peer, w[1].addr, w[1].key,
			FI_UINT64, FI_SUM, NULL));
	NEED(next_entry(s->tx, &end));
	return sync_up(s);
}

static void reading_writes_nothing_and_is_not_counted(void **state)
{
	struct setup setup = { .caps = CAPS, .mr_mode = MODE };

	(void)state;
	run_with(expose_read_only, read_read_only, &setup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_operation_on_every_type_agrees_with_a_model),
		TEST(random_atomics_agree_with_a_model),
		TEST(atomics_of_several_initiators_are_atomic),
		TEST(atomic_calls_with_iovecs_do_the_same),
		TEST(reading_writes_nothing_and_is_not_counted),
	};

	return RUN_TESTS(tests);
}
