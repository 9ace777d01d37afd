// What every generated program stands on: vectors, mathematics, the product of a few rows with packed weights, threads.
//
// REAL is float or double. A vector holds W of them. A tile is up to ROWS sequences by a few vectors of columns; its
// products are summed in registers (`multiply`), and the generated code finishes it with the cell's own equations.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif
#include <sched.h>

typedef REAL real;
#if defined(__AVX512F__)
#define BYTES 64
#define COLUMNS 4
#elif defined(__AVX2__)
#define BYTES 32
#define COLUMNS 2
#elif defined(__aarch64__)
#define BYTES 16
#define COLUMNS 4
#else
#define BYTES 16
#define COLUMNS 2
#endif

constexpr bool single = sizeof(real) == 4;
constexpr int W = BYTES / sizeof(real), ROWS = 6, TILE = COLUMNS;
template <bool> struct integers { typedef int32_t type; };
template <> struct integers<false> { typedef int64_t type; };
typedef integers<single>::type whole;
typedef real vec __attribute__((vector_size(BYTES)));
typedef whole ivec __attribute__((vector_size(BYTES)));
typedef real loose __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
#define INLINE static inline __attribute__((always_inline))

// ------------------------------------------------------------------------------------------ memory

INLINE vec splat(real x) { return x - vec{}; }

INLINE vec load(const real* p, int count) {
  if (__builtin_expect(count >= W, 1)) return *(const loose*)p;
#if defined(__AVX512F__)
  if constexpr (single) return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), (const void*)p);
  else return (vec)_mm512_maskz_loadu_pd((__mmask8)((1u << count) - 1), (const void*)p);
#else
  vec v = {};
  memcpy(&v, p, count * sizeof(real));
  return v;
#endif
}

INLINE void store(real* p, vec v, int count) {
  if (__builtin_expect(count >= W, 1)) { *(loose*)p = v; return; }
#if defined(__AVX512F__)
  if constexpr (single) _mm512_mask_storeu_ps((void*)p, (__mmask16)((1u << count) - 1), (__m512)v);
  else _mm512_mask_storeu_pd((void*)p, (__mmask8)((1u << count) - 1), (__m512d)v);
#else
  memcpy(p, &v, count * sizeof(real));
#endif
}

INLINE void add_to(real* p, vec v) { *(loose*)p = *(const loose*)p + v; }

INLINE real across(vec v, int count) {  // the sum of the first `count`
  if (count < W) for (int i = count; i < W; ++i) v[i] = 0;
  real sum = 0;
  for (int i = 0; i < W; ++i) sum += v[i];
  return sum;
}

// ------------------------------------------------------------------------------------------ mathematics
// No -ffast-math: it would flush denormals for the whole process. Comparisons are written so that NaN stays NaN.

INLINE vec pick(ivec yes, vec a, vec b) { return yes ? a : b; }
INLINE vec truth(ivec yes) { return yes ? splat(1) : splat(0); }
INLINE vec maximum(vec a, vec b) { return pick(a != a, a, pick(a < b, b, pick(b != b, b, a))); }
INLINE vec minimum(vec a, vec b) { return pick(a != a, a, pick(a > b, b, pick(b != b, b, a))); }
INLINE vec abs_(vec x) { return pick(x < splat(0), -x, pick(x == splat(0), splat(0), x)); }

INLINE vec power_of_two(ivec n) { return single ? (vec)((n + 127) << 23) : (vec)((n + 1023) << 52); }

INLINE vec inverse(vec d) {  // 1 / d for d of ordinary size
#if defined(__AVX512F__)
  if constexpr (single) {
    vec r = (vec)_mm512_rcp14_ps((__m512)d);
    return r + r * (splat(1) - d * r);
  }
#endif
  return splat(1) / d;
}

// e^x = 2^n e^r; gives n, and e^r - 1 = r + r² g(r), |r| <= log(2) / 2
INLINE vec reduced(vec x, ivec* n) {
  const real magic = single ? real(12582912) : real(6755399441055744);
  vec rounded = x * real(1.4426950408889634074) + magic - magic;
  *n = __builtin_convertvector(rounded, ivec);
  vec r, g;
  if constexpr (single) {
    r = x - rounded * real(0.693359375);
    r = r - rounded * real(-2.12194440e-4);
    g = splat(real(0.0013933823000420414));
    g = g * r + real(0.008363295263998496);
    g = g * r + real(0.041666463356065025);
    g = g * r + real(0.1666657628285211);
    g = g * r + real(0.5000000013624704);
  } else {
    r = x - rounded * real(6.93147180369123816490e-01);
    r = r - rounded * real(1.90821492927058770002e-10);
    g = splat(real(1.0 / 6227020800.0 / 14.0));
    const double factorial[] = {2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800, 39916800, 479001600, 6227020800.0};
#pragma GCC unroll 12
    for (int i = 11; i >= 0; --i) g = g * r + real(1.0 / factorial[i]);
  }
  return r + r * r * g;
}

INLINE vec between(vec x, real low, real high) {
  x = pick(x < splat(low), splat(low), x);
  return pick(x > splat(high), splat(high), x);
}

INLINE vec exp_(vec x) {
  ivec n;
  vec e = splat(1) + reduced(between(x, single ? -104 : -746, single ? 89 : 710), &n);
  ivec half = n >> 1;
  vec y = e * power_of_two(half) * power_of_two(n - half);
  return y;
}

INLINE vec expm1_(vec x) {
  ivec n;
  vec q = reduced(between(x, single ? -30 : -60, single ? 89 : 710), &n);
  ivec half = n >> 1;
  vec a = power_of_two(half), b = power_of_two(n - half);
  vec y = q * a * b + (a * b - splat(1));
  return pick(x > splat(single ? real(88.8) : real(709.9)), splat(INFINITY), pick(x == splat(0), x, y));
}

INLINE vec sigmoid(vec x) {
  ivec n;
  vec z = between(-x, single ? -87 : -708, single ? 87 : 708);
  vec e = reduced(z, &n);
  vec p = power_of_two(n);
  return pick(x < splat(single ? -88 : -709), splat(0), inverse(splat(1) + (p + p * e)));
}

INLINE vec tanh_(vec x) {
  ivec n;
  vec a = pick(x < splat(0), x, -x);  // -|x|
  a = pick(a < splat(single ? -10 : -20), splat(single ? -10 : -20), a);
  vec q = reduced(a + a, &n);
  vec p = power_of_two(n);
  vec m = p * q + (p - splat(1));  // e^(-2|x|) - 1
  vec y = -m * inverse(m + splat(2));
  return pick(x < splat(0), -y, y);
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
BY_ELEMENT(log_, std::log(x))
BY_ELEMENT(log1p_, std::log1p(x))
BY_ELEMENT(sin_, std::sin(x))
BY_ELEMENT(cos_, std::cos(x))
BY_ELEMENT(erf_, std::erf(x))
BY_ELEMENT(floor_, std::floor(x))
INLINE vec sqrt_(vec v) {
#if defined(__AVX512F__)
  if constexpr (single) return (vec)_mm512_sqrt_ps((__m512)v);
  else return (vec)_mm512_sqrt_pd((__m512d)v);
#else
  for (int i = 0; i < W; ++i) v[i] = std::sqrt(v[i]);
  return v;
#endif
}
INLINE vec pow_(vec v, real exponent) {
  for (int i = 0; i < W; ++i) v[i] = std::pow(v[i], exponent);
  return v;
}
INLINE vec softplus(vec x) {
  vec e = log1p_(exp_(-abs_(x)));
  return pick(x > splat(0), x + e, pick(x == x, e, x));
}

// ------------------------------------------------------------------------------------------ products

struct Segment {  // `depth` numbers of some rows; none if `rows` is null: their weights are stepped over
  const real* rows;
  int64_t stride, depth;
};

// out[v][m] = Σ rows[m][k] packed[k][v] over all segments
template <int M, int V> static void multiply(const Segment* s, int count, const real* packed, real* out) {
  vec sum[M][V] = {};
  for (; count--; ++s) {
    const int64_t depth = s->depth;
    if (!s->rows) { packed += depth * V * W; continue; }
    const real* row[M];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) row[m] = s->rows + m * s->stride;
    for (int64_t k = 0; k < depth; ++k) {
      vec column[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) column[v] = *(const vec*)(packed + v * W);
      __builtin_prefetch(packed + 8 * V * W);
      packed += V * W;
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const vec x = splat(row[m][k]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[m][v] += x * column[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) *(vec*)(out + (v * ROWS + m) * W) = sum[m][v];
}

typedef void (*Multiply)(const Segment*, int, const real*, real*);
#if COLUMNS == 4
#define FOR_COLUMNS(m) {multiply<m, 1>, multiply<m, 2>, multiply<m, 3>, multiply<m, 4>}
#else
#define FOR_COLUMNS(m) {multiply<m, 1>, multiply<m, 2>}
#endif
static const Multiply multiplies[ROWS][COLUMNS] = {FOR_COLUMNS(1), FOR_COLUMNS(2), FOR_COLUMNS(3),
                                                   FOR_COLUMNS(4), FOR_COLUMNS(5), FOR_COLUMNS(6)};

static void products(const Segment* s, int count, int64_t depth, const real* packed, int columns, int rows, real* out) {
  for (int c = 0; c < columns; c += COLUMNS) {
    const int v = columns - c < COLUMNS ? columns - c : COLUMNS;
    multiplies[rows - 1][v - 1](s, count, packed, out + c * ROWS * W);
    packed += depth * v * W;
  }
}

INLINE int block(int64_t rows) {  // the next few rows: as equal as they come, so that no block is a thin one
  const int64_t blocks = (rows + ROWS - 1) / ROWS;
  return int((rows + blocks - 1) / blocks);
}

// ------------------------------------------------------------------------------------------ packing

struct Piece {  // element (unit, k) of a matrix lies at data[unit * unit_stride + k * depth_stride]
  const real* data;
  int64_t unit_stride, depth_stride, depth;
};

// One class of lanes: `pieces[lane][segment]`; see `products` for the order in which they are read.
struct Pack {
  const Piece* pieces;
  int64_t lanes, segments, width, tile;
  real* out;
};

static void pack_one(const Piece* pieces, int64_t lanes, int64_t segments, int64_t width, int64_t tile, real* out,
                     int64_t me, int64_t threads) {
  int64_t depth = 0;
  for (int64_t q = 0; q < segments; ++q) depth += pieces[q].depth;
  const int64_t vectors = (width + W - 1) / W, tiles = (vectors + tile - 1) / tile;
  for (int64_t j = tiles * me / threads; j < tiles * (me + 1) / threads; ++j) {
    const int64_t wide = vectors - j * tile < tile ? vectors - j * tile : tile, columns = lanes * wide;
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t chunk = c / COLUMNS * COLUMNS, v = columns - chunk < COLUMNS ? columns - chunk : COLUMNS;
      const int64_t unit = (j * tile + c % wide) * W, count = width - unit < W ? width - unit : W;
      real* to = out + (j * tile * lanes + chunk) * depth * W + (c - chunk) * W;
      for (int64_t q = 0; q < segments; ++q) {
        const Piece& p = pieces[c / wide * segments + q];
        const real* from = p.data + unit * p.unit_stride;
        for (int64_t k = 0; k < p.depth; k += 16) {
          const int64_t n = p.depth - k < 16 ? p.depth - k : 16;
          if (count < W) for (int64_t i = 0; i < n; ++i) *(vec*)(to + (k + i) * v * W) = vec{};
          if (p.unit_stride == 1) {
            for (int64_t i = 0; i < n; ++i)
              memcpy(to + (k + i) * v * W, from + (k + i) * p.depth_stride, count * sizeof(real));
          } else {
            for (int64_t w = 0; w < count; ++w)
              for (int64_t i = 0; i < n; ++i)
                to[(k + i) * v * W + w] = from[w * p.unit_stride + (k + i) * p.depth_stride];
          }
        }
        to += p.depth * v * W;
      }
    }
  }
}

extern "C" void pack(const Pack* packs, int64_t count, int64_t threads) {
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
    for (int64_t i = 0; i < count; ++i)
      pack_one(packs[i].pieces, packs[i].lanes, packs[i].segments, packs[i].width, packs[i].tile, packs[i].out,
               omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  for (int64_t i = 0; i < count; ++i)
    pack_one(packs[i].pieces, packs[i].lanes, packs[i].segments, packs[i].width, packs[i].tile, packs[i].out, 0, 1);
}

// ------------------------------------------------------------------------------------------ the loop over time

struct Buffer {  // row r of step s lies at data + (rows[s] + r) * stride; from -1 - rows[s] in `before` if that is negative
  real* data;
  int64_t stride;
  const int64_t* rows;
  real* before;  // what was there before the first step
};

struct Call {
  int64_t steps, threads, by_unit;   // threads share the batch, or the units
  int64_t parts;                     // of the batch
  const int64_t* bounds;             // of the parts, in rows
  const int64_t* active;             // rows at each step; earlier steps stand before it
  const Buffer* buffers;
  const int64_t* widths;             // of each group
  const int64_t* tiles;              // vectors a tile of each group
  const int64_t* offsets;
  const real* constants;
  const real* const* vectors;
  const real* const* packs;
  real* sums;                        // [thread][2][sums_stride]: of the last steps, and of all before
  int64_t sums_stride;
  const int64_t* sum_offsets;
  real* rowsums;                     // [rowsum][thread][row]
  int64_t rowsum_parts, rows;
  std::atomic<int64_t>* meeting;     // two counters, zero
};

INLINE real* at(const Call& c, int buffer, int64_t s, int offset) {
  const Buffer& b = c.buffers[buffer];
  const int64_t row = b.rows[s];
  return (row >= 0 ? b.data + row * b.stride : b.before + (-1 - row) * b.stride) + c.offsets[offset];
}

INLINE real rowsum(const Call& c, int number, int64_t row) {
  real sum = 0;
  for (int64_t p = 0; p < c.rowsum_parts; ++p) sum += c.rowsums[(number * c.rowsum_parts + p) * c.rows + row];
  return sum;
}

static void meet(const Call& c, int64_t threads) {
  const int64_t round = c.meeting[1].load(std::memory_order_acquire);
  if (c.meeting[0].fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
    c.meeting[0].store(0, std::memory_order_relaxed);
    c.meeting[1].store(round + 1, std::memory_order_release);
    return;
  }
  for (int64_t i = 0; c.meeting[1].load(std::memory_order_acquire) == round; ++i) {
    if (i > 20000) sched_yield();
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#endif
  }
}

static void flush_sums(const Call& c, real* sums) {
  for (int64_t i = 0; i < c.sums_stride; ++i) {
    sums[c.sums_stride + i] += sums[i];
    sums[i] = 0;
  }
}

static void step(const Call& c, int64_t s, int64_t low, int64_t high, int64_t me, int64_t threads, real* sums);

static void part(const Call& c, int64_t low, int64_t high, int64_t me, int64_t threads, real* sums) {
  for (int64_t s = 0; s < c.steps; ++s) {
    const int64_t end = high < c.active[s] ? high : c.active[s];
    if (low < end || threads > 1) step(c, s, low, end, me, threads, sums);
    if (s % 64 == 63) flush_sums(c, sums);
  }
  flush_sums(c, sums);
}

static void work(const Call& c, int64_t me, int64_t threads) {
  if (c.by_unit) {
    part(c, 0, c.rows, me, threads, c.sums + me * 2 * c.sums_stride);
  } else {
    for (int64_t p = me; p < c.parts; p += threads)
      part(c, c.bounds[p], c.bounds[p + 1], 0, 1, c.sums + p * 2 * c.sums_stride);
  }
}

extern "C" void run(const Call* c) {
#ifdef _OPENMP
  if (c->threads > 1) {
#pragma omp parallel num_threads((int)c->threads)
    work(*c, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  work(*c, 0, 1);
}

extern "C" int64_t vector_width() { return W; }
extern "C" int64_t tile_width() { return TILE; }
