// SIMD vectors of reals: loads, stores, horizontal reductions, and the types that products.h and loop.h share.
//
// REAL is float or double. No standard header is included: parsing one takes longer than compiling the generated code.
// A tile is up to ROWS sequences by a few vectors of columns; its products are summed in registers (products.h), and the
// generated code finishes it with the cell's own equations (loop.h).

typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define memcpy __builtin_memcpy
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define MASKED 1  // masked loads and stores through GCC's builtins
#endif
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
#ifdef MASKED
typedef float v16f __attribute__((vector_size(64)));
typedef double v8d __attribute__((vector_size(64)));
#endif
#define INLINE static inline __attribute__((always_inline))

// ------------------------------------------------------------------------------------------ memory

INLINE vec splat(real x) { return x - vec{}; }

INLINE vec load(const real* p, int count) {
  if (__builtin_expect(count >= W, 1)) return *(const loose*)p;
#ifdef MASKED
  if constexpr (single) return (vec)__builtin_ia32_loadups512_mask((const float*)p, (v16f){}, (1u << count) - 1);
  else return (vec)__builtin_ia32_loadupd512_mask((const double*)p, (v8d){}, (1u << count) - 1);
#else
  vec v = {};
  memcpy(&v, p, count * sizeof(real));
  return v;
#endif
}

INLINE void store(real* p, vec v, int count) {
  if (__builtin_expect(count >= W, 1)) { *(loose*)p = v; return; }
#ifdef MASKED
  if constexpr (single) __builtin_ia32_storeups512_mask((float*)p, (v16f)v, (1u << count) - 1);
  else __builtin_ia32_storeupd512_mask((double*)p, (v8d)v, (1u << count) - 1);
#else
  memcpy(p, &v, count * sizeof(real));
#endif
}

INLINE void add_to(real* p, vec v) { *(loose*)p = *(const loose*)p + v; }

INLINE vec zero_tail(vec v, int count) {  // keeps the first `count` elements
  for (int i = count; i < W; ++i) v[i] = 0;
  return v;
}

INLINE real horizontal_sum(vec v) {
  typedef real half __attribute__((vector_size(BYTES / 2), may_alias));
  alignas(BYTES) real all[W];
  *(vec*)all = v;
  const half sums = *(half*)all + *(half*)(all + W / 2);
  real sum = 0;
  if constexpr (W >= 8) {
    typedef real quarter __attribute__((vector_size(BYTES / 4), may_alias));
    *(half*)all = sums;
    const quarter rest = *(quarter*)all + *(quarter*)(all + W / 4);
    for (int i = 0; i < W / 4; ++i) sum += rest[i];
  } else {
    for (int i = 0; i < W / 2; ++i) sum += sums[i];
  }
  return sum;
}

INLINE real nan_max(real a, real b) { return b > a || b != b ? b : a; }

INLINE real horizontal_max(vec v, int count) {  // of the first `count` elements; NaN if one is
  real most = v[0];
  for (int i = 1; i < count && i < W; ++i) most = nan_max(most, v[i]);
  return most;
}

// ------------------------------------------------------------------------------------------ products

struct Segment {  // `depth` columns of some rows; a null `rows` stands for zeros, whose weights are skipped
  const real* rows;
  int64_t stride, depth;
};
struct Band {  // where only the diagonal blocks of a matrix are not zero: their sizes, and where this part of it begins
  int64_t first_unit, units, first_depth, depth;
};
struct Piece {  // element (unit, k) of a matrix lies at data[unit * unit_stride + k * depth_stride]
  const real* data;
  int64_t unit_stride, depth_stride, depth;
  Band band;
};
struct Range {
  int64_t low, high;
};
// The depths that units `low` to `high` read, of those in `all`.
INLINE Range depths_of(const Band& band, int64_t low, int64_t high, Range all) {
  if (!band.units) return all;
  const int64_t from = (band.first_unit + low) / band.units * band.depth - band.first_depth;
  const int64_t to = ((band.first_unit + high - 1) / band.units + 1) * band.depth - band.first_depth;
  const int64_t first = from < all.low ? all.low : from > all.high ? all.high : from;
  return {first, to < first ? first : to > all.high ? all.high : to};
}
// Row pieces, up to 1 << shift vectors each, to prefetch during a product: one vector every `pace` iterations, so that the
// prefetches do not compete with the loads of the weights.
struct RowPrefetch {
  const real* const* rows;
  int64_t count, pace;
  int shift;
};
typedef void (*Multiply)(const Segment*, int, const real*, real*, const real*, RowPrefetch, bool);
typedef void (*InPlace)(const Segment*, int, const Piece*, int64_t, int64_t, int64_t, real*);

INLINE int64_t share(int64_t rows, int64_t most) {  // size of the next of equal shares of at most `most` rows
  const int64_t shares = (rows + most - 1) / most;
  return (rows + shares - 1) / shares;
}
INLINE int block(int64_t rows) { return int(share(rows, ROWS)); }
