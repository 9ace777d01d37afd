// Elementwise functions, and the loop over time around the generated step function.

#ifdef _OPENMP
#include <omp.h>
#endif
extern "C" int sched_yield(void);

// ------------------------------------------------------------------------------------------ mathematics
// Compiled without -ffast-math, which would flush denormals for the whole process. Comparisons propagate NaN.

INLINE vec pick(ivec yes, vec a, vec b) { return yes ? a : b; }
INLINE vec truth(ivec yes) { return yes ? splat(1) : splat(0); }
INLINE vec maximum(vec a, vec b) { return pick(a != a, a, pick(a < b, b, pick(b != b, b, a))); }
INLINE vec minimum(vec a, vec b) { return pick(a != a, a, pick(a > b, b, pick(b != b, b, a))); }
INLINE vec abs_(vec x) { return pick(x < splat(0), -x, pick(x == splat(0), splat(0), x)); }

INLINE vec power_of_two(ivec n) { return single ? (vec)((n + 127) << 23) : (vec)((n + 1023) << 52); }

INLINE vec inverse(vec d) {  // 1 / d; d is a normal number, neither tiny nor huge
#ifdef MASKED
  if constexpr (single) {
    vec r = (vec)__builtin_ia32_rcp14ps512_mask((v16f)d, (v16f){}, 0xffff);
    return r + r * (splat(1) - d * r);
  }
#endif
  return splat(1) / d;
}

INLINE vec at_least(vec x, real low) {  // the instruction returns its second operand if one is NaN
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_maxps512_mask((v16f)splat(low), (v16f)x, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_maxpd512_mask((v8d)splat(low), (v8d)x, (v8d){}, 0xff, 4);
#else
  return pick(x < splat(low), splat(low), x);
#endif
}

INLINE vec at_most(vec x, real high) {
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_minps512_mask((v16f)splat(high), (v16f)x, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_minpd512_mask((v8d)splat(high), (v8d)x, (v8d){}, 0xff, 4);
#else
  return pick(x > splat(high), splat(high), x);
#endif
}

INLINE vec between(vec x, real low, real high) { return at_most(at_least(x, low), high); }

// Range reduction e^x = 2^n e^r with |r| <= log(2) / 2. Adding a constant whose last mantissa bit is one rounds x / log(2)
// to the integer n and leaves n plus the exponent bias in the lowest bits: `bits`, shifted up, is 2^n if that is normal.
struct Reduced {
  vec less_one;  // e^r - 1 = r + r² g(r)
  ivec bits;
  vec power() const { return (vec)(bits << (single ? 23 : 52)); }
  ivec n() const { return bits - (ivec)splat(large); }
  static constexpr real large = single ? real(12582912 + 127) : real(6755399441055744 + 1023);
};

template <int sign> INLINE Reduced reduced(vec x) {  // of x, or of -x
  const vec shifted = x * real(sign * 1.4426950408889634074) + Reduced::large;
  const vec n = shifted - Reduced::large;
  vec r, g;
  if constexpr (single) {
    r = (sign < 0 ? -x : x) - n * real(0.693359375);
    r = r - n * real(-2.12194440e-4);
    g = splat(real(0.0013933823000420414));
    g = g * r + real(0.008363295263998496);
    g = g * r + real(0.041666463356065025);
    g = g * r + real(0.1666657628285211);
    g = g * r + real(0.5000000013624704);
  } else {
    r = (sign < 0 ? -x : x) - n * real(6.93147180369123816490e-01);
    r = r - n * real(1.90821492927058770002e-10);
    g = splat(real(1.0 / 6227020800.0 / 14.0));
    const double factorial[] = {2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800.0};
#pragma GCC unroll 12
    for (int i = 11; i >= 0; --i) g = g * r + real(1.0 / factorial[i]);
  }
  return {r + r * r * g, (ivec)shifted};
}

INLINE vec exp_(vec x) {
  const Reduced e = reduced<1>(between(x, single ? -104 : -746, single ? 89 : 710));
  const ivec n = e.n(), half = n >> 1;
  return (splat(1) + e.less_one) * power_of_two(half) * power_of_two(n - half);
}

INLINE vec expm1_(vec x) {
  const Reduced e = reduced<1>(between(x, single ? -30 : -60, single ? 89 : 710));
  const ivec n = e.n(), half = n >> 1;
  const vec q = e.less_one, a = power_of_two(half), b = power_of_two(n - half);
  vec small = q * a * b + (a * b - splat(1)), large = (splat(1) + q) * a * b - splat(1);  // a * b may overflow although the result does not
  return pick(x > splat(40), large, pick(x == splat(0), x, small));
}

INLINE vec sigmoid(vec x) {
  const Reduced e = reduced<-1>(between(x, single ? -87 : -708, single ? 87 : 708));
  const vec p = e.power(), y = inverse(splat(1) + (p + p * e.less_one));
  return pick(x < splat(single ? -88 : -709), splat(0), y);
}

INLINE vec tanh_(vec x) {
  const ivec sign = (ivec)splat(-0.0f);
  const vec a = at_least((vec)((ivec)x | sign), single ? -10 : -20);  // -|x|
  const Reduced e = reduced<1>(a + a);
  const vec p = e.power(), m = p * e.less_one + (p - splat(1));  // e^(-2|x|) - 1
  const vec y = m * inverse(m + splat(2));
  return (vec)(((ivec)y & ~sign) | ((ivec)x & sign));
}

#define BY_ELEMENT(name, expression)                \
  INLINE vec name(vec v) {                          \
    vec r = v;                                      \
    for (int i = 0; i < W; ++i) {                   \
      const real x = v[i];                          \
      r[i] = expression;                            \
    }                                               \
    return r;                                       \
  }
BY_ELEMENT(log_one_by_one, single ? __builtin_logf(x) : __builtin_log(x))
BY_ELEMENT(log1p_one_by_one, single ? __builtin_log1pf(x) : __builtin_log1p(x))
BY_ELEMENT(sin_, single ? __builtin_sinf(x) : __builtin_sin(x))
BY_ELEMENT(cos_, single ? __builtin_cosf(x) : __builtin_cos(x))
BY_ELEMENT(erf_, single ? __builtin_erff(x) : __builtin_erf(x))
BY_ELEMENT(floor_, single ? __builtin_floorf(x) : __builtin_floor(x))
INLINE vec sqrt_(vec v) {
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_sqrtps512_mask((v16f)v, (v16f){}, 0xffff, 4);
  else return (vec)__builtin_ia32_sqrtpd512_mask((v8d)v, (v8d){}, 0xff, 4);
#else
  for (int i = 0; i < W; ++i) v[i] = single ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
  return v;
#endif
}

// x = 2^n m with m in [√½, √2); log(m) by the polynomial of Moshier's Cephes library.
INLINE vec log_(vec x) {
  if constexpr (!single) return log_one_by_one(x);
  const ivec tiny = x < splat(real(1.17549435e-38));
  const ivec bits = (ivec)pick(tiny, x * real(8388608), x), n = (bits - 0x3f3504f3) >> 23;
  const vec f = (vec)(bits - (n << 23)) - splat(1), z = f * f;
  const vec power = __builtin_convertvector(n, vec) - pick(tiny, splat(23), splat(0));
  const real terms[] = {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1};
  vec g = splat(terms[0]);
#pragma GCC unroll 8
  for (int i = 1; i < 9; ++i) g = g * f + terms[i];
  const vec y = f + (f * z * g + power * real(-2.12194440e-4) - real(0.5) * z) + power * real(0.693359375);
  const real infinity = __builtin_inf();
  const vec edge = pick(x == splat(0), splat(-infinity), splat(__builtin_nan("")));
  return pick(x == splat(infinity), x, pick(x > splat(0), y, edge));
}

INLINE vec log1p_(vec x) {  // corrects log(1 + x) for the rounding error of 1 + x
  if constexpr (!single) return log1p_one_by_one(x);
  const vec u = splat(1) + x, lost = x - (u - splat(1));
  const vec y = log_(u);
  return pick((u > splat(0)) & (u < splat(real(1e30))), y + lost / u, y);
}

INLINE vec pow_(vec v, real exponent) {
  for (int i = 0; i < W; ++i) v[i] = single ? __builtin_powf(v[i], exponent) : __builtin_pow(v[i], exponent);
  return v;
}
INLINE vec softplus(vec x) {
  vec e = log1p_(exp_(-abs_(x)));
  return pick(x > splat(0), x + e, pick(x == x, e, x));
}

// ------------------------------------------------------------------------------------------ the loop over time

struct Buffer {  // row r of step s is at data + (rows[s] + r) * stride; negative rows[s]: row -1 - rows[s] of `before`
  real* data;
  int64_t stride;
  const int64_t* rows;
  real* before;  // values before the first step
};

struct Call {  // arguments of `run`; the order of fields is that of kernel.py
  const Buffer* buffers;
  const real* const* vectors;
  const void* const* packs;
  real* sums;                        // [part][2][sums_stride]: sums of the last up to 64 steps, and of all before
  real* rowsums;                     // [rowsum][thread][row], then the same as unreduced vectors
  int64_t* sync;                     // words for synchronisation of threads, initially zero
  int64_t steps, threads, by_unit;   // by_unit: threads share the units; else the batch
  int64_t work_stealing;             // by_unit: idle threads take tiles of others
  int64_t parts, steps_per_item;     // parts of the batch; steps of one work item
  const int64_t* bounds;             // first row of each part
  const int64_t* spans;              // first step of each part, and the one after its last
  const int64_t* active;             // rows at each step; negative indices: steps before
  const int64_t* widths;             // of each group
  const int64_t* tiles;              // vectors per tile of each group
  const int64_t* offsets;
  const real* constants;
  int64_t sums_stride;
  const int64_t* sum_offsets;
  int64_t rowsum_parts, rows;
  int64_t exceeds_cache;             // the weights do not fit into the cache
  const Multiply (*multiplies)[ROWS][COLUMNS];  // without and with prefetch of weights, by rows and columns
  InPlace in_place;                  // a single row with unpacked weights, whose addresses are in `packs`
};

INLINE real* at(const Call& c, int buffer, int64_t s, int offset) {
  const Buffer& b = c.buffers[buffer];
  const int64_t row = b.rows[s];
  return (row >= 0 ? b.data + row * b.stride : b.before + (-1 - row) * b.stride) + c.offsets[offset];
}

// The distance from a row of step `s` to the same row of the next step.
INLINE int64_t to_next(const Call& c, int buffer, int64_t s, const real* here, int offset) {
  return s + 1 < c.steps ? at(c, buffer, s + 1, offset) - here : 0;
}

INLINE real rowsum(const Call& c, int number, int64_t row) {
  real sum = 0;
  for (int64_t p = 0; p < c.rowsum_parts; ++p) sum += c.rowsums[(number * c.rowsum_parts + p) * c.rows + row];
  return sum;
}

// The unreduced vectors of one of `all` row sums.
INLINE real* row_vectors(const Call& c, int all, int number, int64_t me) {
  const int64_t sums = (all * c.rowsum_parts * c.rows + W - 1) / W * W;
  return c.rowsums + sums + (number * c.rowsum_parts + me) * c.rows * W;
}

INLINE real rowmax(const Call& c, int number, int64_t row) {
  const real* const parts = c.rowsums + number * c.rowsum_parts * c.rows + row;
  real most = parts[0];
  for (int64_t p = 1; p < c.rowsum_parts; ++p) most = nan_max(most, parts[p * c.rows]);
  return most;
}

// Back-off of a spin wait: pause instructions, then yields of the processor.
INLINE void pause(int64_t turn) {
  if (turn > 1000) sched_yield();
#if defined(__x86_64__)
  else if (turn > 200) __builtin_ia32_pause();
#endif
}

// Each thread counts its barriers in a cache line of its own and waits until all others have reached that count.
static void barrier(const Call& c, int64_t me, int64_t threads) {
  const int64_t round = c.sync[me * 8] + 1;
  __atomic_store_n(c.sync + me * 8, round, __ATOMIC_RELEASE);
  for (int64_t other = 0; other < threads; ++other)
    for (int64_t i = 0; __atomic_load_n(c.sync + other * 8, __ATOMIC_ACQUIRE) < round; ++i) pause(i);
}

// Work stealing for threads that share the units. Each thread starts with its own range of tiles, whose weights its cache
// may still hold; an idle thread takes tiles from the end of another's range. A range is one atomic word: the number of the
// group execution, the next tile, and the end.
struct TileRange {
  uint64_t all;
  uint64_t number() const { return all >> 32; }
  int64_t next() const { return int64_t(all >> 16 & 0xffff); }
  int64_t end() const { return int64_t(all & 0xffff); }
};

struct TileScheduler {
  const Call& c;
  const int64_t tiles, me, threads;
  const bool reversed;  // from the last tile to the first: the weights read last are still in the cache
  uint64_t number;

  uint64_t* range_of(int64_t of) const { return (uint64_t*)c.sync + (threads + of) * 8; }
  int64_t first(int64_t of) const { return tiles * of / threads; }

  TileScheduler(const Call& c, int64_t tiles, int64_t me, int64_t threads, bool reversed)
      : c(c), tiles(tiles), me(me), threads(threads), reversed(reversed), number((TileRange{*range_of(me)}.number() + 1) & 0xffffffff) {
    __atomic_store_n(range_of(me), number << 32 | uint64_t(first(me)) << 16 | uint64_t(first(me + 1)), __ATOMIC_RELEASE);
  }

  // Takes half of the rest of the own range, or one tile of another's; false if none is left.
  bool take(int64_t& low, int64_t& high) const {
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t of = (me + i) % threads, both = first(of) + first(of + 1);
      TileRange range{__atomic_load_n(range_of(of), __ATOMIC_ACQUIRE)};
      while (range.number() == number && range.next() < range.end()) {
        const int64_t some = i ? 1 : (range.end() - range.next() + 1) / 2;
        const uint64_t left = i ? range.all - 1 : range.all + (uint64_t(some) << 16);
        if (!__atomic_compare_exchange_n(range_of(of), &range.all, left, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
        low = i ? range.end() - 1 : range.next();
        high = low + some;
        if (reversed) {
          const int64_t mirrored = both - high;
          high = both - low;
          low = mirrored;
        }
        return true;
      }
    }
    return false;
  }
};

INLINE RowPrefetch paced_prefetch(const real* const* rows, int64_t count, int64_t wide, int64_t depth) {
  const int shift = wide > 2 ? 2 : wide > 1;
  const int64_t pace = count ? depth / (count << shift) : 1;
  return {rows, count, pace > 1 ? pace : 1, shift};
}

// Weights that exceed the cache are read in spans of their depth, each for a group of rows, so that both stay cached.
constexpr int64_t SPAN = 512, ROW_GROUP = 8 * ROWS;

INLINE int64_t span_of(const Call& c, int64_t depth) { return c.exceeds_cache && !c.in_place && depth > SPAN ? SPAN : depth; }
INLINE int64_t row_group(const Call& c, int64_t rows) { return c.exceeds_cache ? share(rows, ROW_GROUP) : block(rows); }

// The pieces of segments between two depths; returns their number.
template <int count>
INLINE int slice_segments(const Segment (&all)[count], int64_t from, int64_t to, Segment* part) {
  int found = 0;
  for (const Segment& s : all) {
    const int64_t low = from > 0 ? from : 0, high = to < s.depth ? to : s.depth;
    if (low < high) part[found++] = {s.rows ? s.rows + low : nullptr, s.stride, high - low};
    from -= s.depth;
    to -= s.depth;
  }
  return found;
}

struct Tile {  // `vectors` vectors of units from `first` on, of all lanes of a pack
  int64_t first, vectors, width, lanes;
};

// The products of a block of rows with a span of weights from depth `k` on. `turn` is the number of the block in its row
// group; each of the first two prefetches half of the next span.
template <int count>
INLINE void products(const Call& c, const Segment (&all)[count], int64_t depth, int64_t k, const void* pack, Tile tile,
                     int rows, int64_t turn, bool reversed, RowPrefetch prefetch, real* out) {
  if (c.in_place) {
    const int64_t unit = tile.first * W, left = tile.width - unit;
    for (int64_t a = 0; a < prefetch.count; ++a)
      for (int64_t v = 0; v < tile.vectors; ++v) __builtin_prefetch(prefetch.rows[a] + v * W);
    c.in_place(all, count, (const Piece*)pack, tile.lanes, unit, left < tile.vectors * W ? left : tile.vectors * W, out);
    return;
  }
  const real* packed = (const real*)pack + tile.first * tile.lanes * depth * W;
  const int columns = int(tile.lanes * tile.vectors);
  const int64_t span = span_of(c, depth) < depth - k ? span_of(c, depth) : depth - k;
  const bool last = k + span == depth;
  Segment part[count];
  const int parts = slice_segments(all, k, k + span, part);
  const Multiply (*const multiplies)[COLUMNS] = c.multiplies[c.exceeds_cache && turn < 2];
  for (int q = 0; q < columns; q += COLUMNS) {
    const int v = columns - q < COLUMNS ? columns - q : COLUMNS;
    const real* const next = packed + W * (last ? (reversed ? -columns : columns) * depth : (k + span) * v) + 2 * turn * span * W;
    multiplies[rows - 1][v - 1](part, parts, packed + k * v * W, out + q * ROWS * W, next, q ? RowPrefetch{} : prefetch, k > 0);
    packed += depth * v * W;
  }
}

static void flush_sums(const Call& c, real* sums, int64_t me, int64_t threads) {
  for (int64_t i = c.sums_stride * me / threads; i < c.sums_stride * (me + 1) / threads; ++i) {
    sums[c.sums_stride + i] += sums[i];
    sums[i] = 0;
  }
}

static void step(const Call& c, int64_t s, int64_t low, int64_t high, int64_t me, int64_t threads, real* sums);

// Steps `from` to `to` of a part of the batch.
static void steps(const Call& c, int64_t part, int64_t from, int64_t to, int64_t me, int64_t threads) {
  const int64_t low = c.bounds[part], high = c.bounds[part + 1];
  real* const sums = c.sums + part * 2 * c.sums_stride;
  for (int64_t s = from; s < to; ++s) {
    const int64_t end = high < c.active[s] ? high : c.active[s];
    if (low < end || threads > 1) step(c, s, low, end, me, threads, sums);
    if (s % 64 == 63 || s + 1 == c.spans[2 * part + 1]) {
      flush_sums(c, sums, me, threads);
      if (threads > 1) barrier(c, me, threads);
    }
  }
}

// A work item: some steps of one part of the batch. Threads prefer their own parts, whose values they have cached, then take
// the part with most steps left: no two cores of a shared machine are equally fast. The order of additions does not depend
// on which thread runs an item.
struct WorkItem {
  int64_t part, from, to;
};

static bool next_item(const Call& c, int64_t me, int64_t threads, WorkItem& item) {
  int64_t* const lock = c.sync, *const done = c.sync + 8, *const taken = done + c.parts;
  for (int64_t i = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); ++i) pause(i);
  if (item.part >= 0) {
    done[item.part] += item.to - item.from;
    taken[item.part] = 0;
  }
  item.part = -1;
  int64_t most = 0;
  for (int64_t p = 0; p < c.parts; ++p) {
    const int64_t left = c.spans[2 * p + 1] - c.spans[2 * p] - done[p];
    const int64_t own = c.parts * me / threads <= p && p < c.parts * (me + 1) / threads;
    if (taken[p] || left == 0 || left + own * c.steps <= most) continue;
    most = left + own * c.steps;
    item = {p, c.spans[2 * p + 1] - left, c.spans[2 * p + 1] - left + (left < c.steps_per_item ? left : c.steps_per_item)};
  }
  if (item.part >= 0) taken[item.part] = 1;
  __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
  return item.part >= 0;
}

static void work(const Call& c, int64_t me, int64_t threads) {
  if (c.parts == 1) return steps(c, 0, c.spans[0], c.spans[1], me, threads);
  for (WorkItem item{-1, 0, 0}; next_item(c, me, threads, item);) steps(c, item.part, item.from, item.to, 0, 1);
}

static void run_threads(const Call& c) {
#ifdef _OPENMP
  if (c.threads > 1) {
#pragma omp parallel num_threads((int)c.threads)
    {
      const int64_t threads = omp_get_num_threads();  // may be fewer than requested
      Call here = c;
      if (c.by_unit) here.rowsum_parts = threads;
      work(here, omp_get_thread_num(), threads);
    }
    return;
  }
#endif
  work(c, 0, 1);
}

extern "C" void run(const Call* c) {
  run_threads(*c);
  real* const totals = c->sums + c->sums_stride;  // of the first part; those of the others are added
  for (int64_t p = 1; p < c->parts; ++p)
    for (int64_t i = 0; i < c->sums_stride; ++i) totals[i] += totals[p * 2 * c->sums_stride + i];
}
