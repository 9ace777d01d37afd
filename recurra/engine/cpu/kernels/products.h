// Matrix products with packed or unpacked weights, packing, weight gradients and fingerprints: one library per dtype.

#ifdef _OPENMP
#include <omp.h>
#endif

extern "C" {
extern int64_t (*free_threads)(int64_t);
int64_t (*free_threads)(int64_t) = nullptr;  // of free_cores.h; set when this library is loaded
}

// out[v][m] = Σ rows[m][k] packed[k][v] over all segments; added to `out` if `accumulate`. `prefetch`: the weights exceed
// the L2 cache, and the ones needed next, from `next` on, are prefetched, two lines per iteration.
template <int M, int V, bool prefetch>
static void multiply(const Segment* s, int count, const real* packed, real* out, const real* next, RowPrefetch row_prefetch, bool accumulate) {
  vec sum[M][V] = {};
  if (accumulate)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m][v] = *(const vec*)(out + (v * ROWS + m) * W);
  const int64_t prefetches = row_prefetch.count << row_prefetch.shift;
  int64_t prefetched = 0, wait = row_prefetch.pace;
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
      packed += V * W;
      if (prefetch) {
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + W, 0, 2);
        next += 2 * W;
      }
      if (--wait == 0 && prefetched < prefetches) {
        __builtin_prefetch(row_prefetch.rows[prefetched >> row_prefetch.shift] + (prefetched & ((1 << row_prefetch.shift) - 1)) * W, 0, 2);
        wait = row_prefetch.pace;
        ++prefetched;
      }
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

#if COLUMNS == 4
#define FOR_COLUMNS(m, prefetch) {multiply<m, 1, prefetch>, multiply<m, 2, prefetch>, multiply<m, 3, prefetch>, multiply<m, 4, prefetch>}
#else
#define FOR_COLUMNS(m, prefetch) {multiply<m, 1, prefetch>, multiply<m, 2, prefetch>}
#endif
#define FOR_ROWS(prefetch) \
  {FOR_COLUMNS(1, prefetch), FOR_COLUMNS(2, prefetch), FOR_COLUMNS(3, prefetch), FOR_COLUMNS(4, prefetch), FOR_COLUMNS(5, prefetch), FOR_COLUMNS(6, prefetch)}
extern "C" const Multiply multiplies[2][ROWS][COLUMNS] = {FOR_ROWS(false), FOR_ROWS(true)};

// ------------------------------------------------------------------------------------------ a single row
// Products of a single row read each weight once, so they read them unpacked: checking whether packed weights are still
// current would read all of them as well.

template <int...> struct Indices {};
template <int n, int... rest> struct Upto : Upto<n - 1, n - 1, rest...> {};
template <int... all> struct Upto<0, all...> { typedef Indices<all...> type; };

// The lower or upper halves of the groups of `group` elements of a, then of b.
constexpr int half_of(int i, int group, int upper) {
  const int at = i % (W / 2), half = group / 2;
  return (i < W / 2 ? 0 : W) + at / half * group + at % half + upper * half;
}
template <int group, int upper, int... i> INLINE vec halves(vec a, vec b, Indices<i...>) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, half_of(i, group, upper)...);
#else
  return __builtin_shuffle(a, b, ivec{half_of(i, group, upper)...});
#endif
}

// The sums of n vectors, each left as a group of W / n elements that are still to be added.
template <int n> INLINE vec sums_of(const vec* v) {
  if constexpr (n == 1) return v[0];
  else {
    const vec a = sums_of<n / 2>(v), b = sums_of<n / 2>(v + n / 2);
    typename Upto<W>::type all;
    return halves<2 * W / n, 0>(a, b, all) + halves<2 * W / n, 1>(a, b, all);
  }
}

// Weights that are contiguous along the depth: dot products of up to W units from `unit` on, FEW at a time. One function, so
// that no sum leaves the registers.
INLINE vec dots(const Segment* segments, int count, const Piece* pieces, int64_t unit, int units) {
  constexpr int FEW = W < 4 ? W : 4;
  vec sums[W];
#pragma GCC unroll 8
  for (int u = 0; u < W; u += FEW) {
    vec sum[FEW] = {};
    for (int q = 0; q < count; ++q) {
      const Piece& p = pieces[q];
      const real* const row = segments[q].rows;
      if (!row || p.depth_stride != 1) continue;
      const real* weights[FEW];
#pragma GCC unroll 4
      for (int i = 0; i < FEW; ++i) weights[i] = p.data + (unit + (u + i < units ? u + i : units - 1)) * p.unit_stride;
      const int last = (u + FEW < units ? u + FEW : units);
      const Range read = depths_of(p.band, unit + (u < last ? u : last - 1), unit + last, {0, p.depth});
      int64_t k = read.low;
      for (; k + W <= read.high; k += W) {
        const vec x = *(const loose*)(row + k);
#pragma GCC unroll 4
        for (int i = 0; i < FEW; ++i) sum[i] += x * *(const loose*)(weights[i] + k);
      }
      if (k < read.high) {
        const vec x = load(row + k, int(read.high - k));
#pragma GCC unroll 4
        for (int i = 0; i < FEW; ++i) sum[i] += x * load(weights[i] + k, int(read.high - k));
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < FEW; ++i) sums[u + i] = sum[i];
  }
  return sums_of<W>(sums);
}

// Weights that are contiguous along the units: V vectors of units, the last one possibly partial.
template <int V>
INLINE void across_units(const real* row, const Piece& p, int64_t unit, int64_t units, real* out) {
  vec sum[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) sum[v] = *(const vec*)(out + v * ROWS * W);
  const int last = units < V * W ? int(units - (V - 1) * W) : W;
  const Range read = depths_of(p.band, unit, unit + (units < V * W ? units : V * W), {0, p.depth});
  const real* weights = p.data + unit + read.low * p.depth_stride;
  for (int64_t k = read.low; k < read.high; ++k, weights += p.depth_stride) {
    const vec x = splat(row[k]);
#pragma GCC unroll 8
    for (int v = 0; v < V - 1; ++v) sum[v] += x * *(const loose*)(weights + v * W);
    sum[V - 1] += x * load(weights + (V - 1) * W, last);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) *(vec*)(out + v * ROWS * W) = sum[v];
}

static void add_strided(const real* row, const Piece& p, const real* weights, int64_t units, real* out) {
  for (int64_t u = 0; u < units; ++u)
    for (int64_t k = 0; k < p.depth; ++k)
      out[u / W * ROWS * W + u % W] += row[k] * weights[u * p.unit_stride + k * p.depth_stride];
}

static void add_unpacked(const real* row, const Piece& p, int64_t unit, int64_t units, real* out) {
  if (p.unit_stride != 1) return add_strided(row, p, p.data + unit * p.unit_stride, units, out);
  for (int vectors; units > 0; unit += vectors * W, out += vectors * ROWS * W, units -= vectors * W) {
    vectors = units > 7 * W ? 8 : units > 3 * W ? 4 : 1;
    if (vectors == 8) across_units<8>(row, p, unit, units, out);
    else if (vectors == 4) across_units<4>(row, p, unit, units, out);
    else across_units<1>(row, p, unit, units, out);
  }
}

// The products of all lanes for `units` units from `unit` on; `pieces[lane][segment]`.
extern "C" void in_place(const Segment* segments, int count, const Piece* pieces, int64_t lanes, int64_t unit, int64_t units,
                         real* out) {
  for (const Segment* s = segments; s < segments + count; ++s)
    for (int64_t k = 0; s->rows && k < s->depth; k += 64 / sizeof(real)) __builtin_prefetch(s->rows + k);  // the rows may be in another core's cache
  const int64_t wide = (units + W - 1) / W;
  for (; lanes--; pieces += count, out += wide * ROWS * W) {
    for (int64_t v = 0; v < wide; ++v) {
      const int64_t left = units - v * W;
      *(vec*)(out + v * ROWS * W) = dots(segments, count, pieces, unit + v * W, left < W ? int(left) : W);
    }
    for (int q = 0; q < count; ++q)
      if (segments[q].rows && pieces[q].depth_stride != 1) add_unpacked(segments[q].rows, pieces[q], unit, units, out);
  }
}

// ------------------------------------------------------------------------------------------ packing

// Lanes with the same operands: `pieces[lane][segment]`; `products` in loop.h reads them in this order.
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
        for (int64_t k = 0; k < p.depth; k += 64) {
          const int64_t n = p.depth - k < 64 ? p.depth - k : 64;
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
  threads = threads > 1 ? free_threads(threads) : 1;
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

// ------------------------------------------------------------------------------------------ sums over time
// gradient[unit][column] = Σ δ[row][unit] value[row][column] over the rows of all steps. A block of rows at a time is copied
// to contiguous panels: all columns of the values for the L2 cache, a tile of δ for the L1 cache (rows at a distance of a
// power of two would evict each other). Each block is summed from zero, so rounding grows with the number of blocks.

constexpr int BLOCK_ROWS = 128, PANEL = 8 * ROWS;  // rows of a block; columns of a panel of values
constexpr int64_t SUM_BYTES = 3 << 20;  // bytes of sums that stay cached
static_assert(PANEL * sizeof(real) % BYTES == 0, "whole vectors");

struct RowRange {  // rows of δ from `first` on pair with values from row `from` on, in `before` if `early`, else in `values`
  int64_t early, from, first, rows;
};

struct Target {
  real* out;
  int64_t out_stride, columns;
  const real* values;
  const real* before;
  int64_t stride;
  const RowRange* ranges;
  int64_t count;
};

struct Gradient {
  const real* delta;
  int64_t stride, width, rows;
  const Target* targets;
  int64_t count;
};

template <int M, int V> static void outer(const real* values, const real* panel, int64_t rows, real* out) {
  vec sum[M][V] = {};
  for (int64_t k = 0; k < rows; ++k) {
    vec column[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) column[v] = *(const vec*)(panel + v * W);
    panel += V * W;
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const vec x = splat(values[m]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[m][v] += x * column[v];
    }
    values += PANEL;
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) *(vec*)(out + (m * V + v) * W) += sum[m][v];
}

typedef void (*Outer)(const real*, const real*, int64_t, real*);
#if COLUMNS == 4
#define OUTER(m) {outer<m, 1>, outer<m, 2>, outer<m, 3>, outer<m, 4>}
#else
#define OUTER(m) {outer<m, 1>, outer<m, 2>}
#endif
static const Outer outers[ROWS][COLUMNS] = {OUTER(1), OUTER(2), OUTER(3), OUTER(4), OUTER(5), OUTER(6)};

template <int V> INLINE void copy_full_panel(const real* from, int64_t stride, int64_t rows, real* to) {
  for (int64_t k = 0; k < rows; ++k, from += stride, to += V * W) {
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) {
      __builtin_prefetch(from + 12 * stride + c * W);  // the hardware prefetcher does not follow rows this prefetch apart
      *(vec*)(to + c * W) = *(const loose*)(from + c * W);
    }
  }
}

static void copy_panel(const real* from, int64_t stride, int64_t rows, int64_t columns, int64_t vectors, real* to) {
  if (columns == vectors * W) {
    if (vectors == 4) return copy_full_panel<4>(from, stride, rows, to);
    if (vectors == 3) return copy_full_panel<3>(from, stride, rows, to);
    if (vectors == 2) return copy_full_panel<2>(from, stride, rows, to);
  }
  for (int64_t k = 0; k < rows; ++k, from += stride)
    for (int64_t c = 0; c < vectors; ++c, to += W)
      *(vec*)to = columns > c * W ? load(from + c * W, int(columns - c * W < W ? columns - c * W : W)) : vec{};
}

// Copies rows from `row` on of a target's columns `low` to `high` into panels.
static void copy_values(const Target& t, int64_t row, int64_t rows, int64_t low, int64_t high, real* to) {
  for (int64_t c = low; c < high; c += PANEL, to += rows * PANEL) {
    const int64_t columns = high - c < PANEL ? high - c : PANEL;
    for (int64_t q = 0; q < t.count; ++q) {
      const RowRange& p = t.ranges[q];
      const int64_t first = row > p.first ? row : p.first, end = p.first + p.rows;
      const int64_t last = row + rows < end ? row + rows : end;
      const real* const values = (p.early ? t.before : t.values) + (p.from + first - p.first) * t.stride;
      if (first < last) copy_panel(values + c, t.stride, last - first, columns, PANEL / W, to + (first - row) * PANEL);
    }
  }
}

struct Part {  // of a thread: some tiles of δ, and one of `shares` shares of each target's columns
  int64_t first_tile, last_tile, share, shares;
  int64_t low(const Target& t) const { return cut(t, share); }
  int64_t high(const Target& t) const { return cut(t, share + 1); }
  int64_t cut(const Target& t, int64_t i) const {
    const int64_t at = (t.columns + ROWS - 1) / ROWS * i / shares * ROWS;
    return at < t.columns ? at : t.columns;
  }
  int64_t columns(const Gradient& g) const {
    int64_t all = 0;
    for (int64_t i = 0; i < g.count; ++i) all += high(g.targets[i]) - low(g.targets[i]);
    return all;
  }
  int64_t padded_columns(const Gradient& g) const {  // padded to whole panels
    int64_t all = 0;
    for (int64_t i = 0; i < g.count; ++i) all += (high(g.targets[i]) - low(g.targets[i]) + PANEL - 1) / PANEL * PANEL;
    return all;
  }
};

static void sum_part(const Gradient& g, const Part& part, real* scratch) {
  real* const panel = scratch, *const values = panel + BLOCK_ROWS * COLUMNS * W, *const sums = values + BLOCK_ROWS * part.padded_columns(g);
  const int64_t tile_numbers = part.columns(g) * COLUMNS * W;
  for (int64_t i = 0; i < (part.last_tile - part.first_tile) * tile_numbers; i += W) *(vec*)(sums + i) = vec{};
  for (int64_t row = 0; row < g.rows; row += BLOCK_ROWS) {
    const int64_t rows = g.rows - row < BLOCK_ROWS ? g.rows - row : BLOCK_ROWS;
    real* to = values;
    for (int64_t i = 0; i < g.count; ++i) {
      const int64_t low = part.low(g.targets[i]), high = part.high(g.targets[i]);
      copy_values(g.targets[i], row, rows, low, high, to);
      to += (high - low + PANEL - 1) / PANEL * PANEL * rows;
    }
    for (int64_t j = part.first_tile; j < part.last_tile; ++j) {
      const int64_t first = j * COLUMNS * W, units = g.width - first < COLUMNS * W ? g.width - first : COLUMNS * W;
      const int v = int((units + W - 1) / W);
      copy_panel(g.delta + row * g.stride + first, g.stride, rows, units, v, panel);
      real* out = sums + (j - part.first_tile) * tile_numbers;
      const real* from = values;
      for (int64_t i = 0; i < g.count; ++i) {
        const int64_t own = part.high(g.targets[i]) - part.low(g.targets[i]);
        for (int64_t c = 0; c < own; c += PANEL, from += rows * PANEL) {
          const int64_t end = own - c < PANEL ? own - c : PANEL;
          for (int64_t m = 0; m < end; m += ROWS) {
            const int count = int(end - m < ROWS ? end - m : ROWS);
            outers[count - 1][v - 1](from + m, panel, rows, out);
            out += count * v * W;
          }
        }
      }
    }
  }
  for (int64_t j = part.first_tile; j < part.last_tile; ++j) {
    const int64_t first = j * COLUMNS * W, units = g.width - first < COLUMNS * W ? g.width - first : COLUMNS * W;
    const int64_t v = (units + W - 1) / W;
    const real* from = sums + (j - part.first_tile) * tile_numbers;
    for (int64_t i = 0; i < g.count; ++i) {
      const Target& t = g.targets[i];
      const int64_t low = part.low(t), high = part.high(t);
      for (int64_t block = low; block < high; block += W)  // the same few cache lines serve all units
        for (int64_t u = 0; u < units; ++u)
          for (int64_t m = block; m < high && m < block + W; ++m)
            t.out[(first + u) * t.out_stride + m] = from[(m - low) * v * W + u];
      from += (high - low) * v * W;
    }
  }
}

// A thread's part of a gradient.
static Part part_of(const Gradient* gradients, int64_t i, int64_t me, int64_t threads) {
  int64_t shares = 1;
  while (shares * shares * 4 <= threads && threads % (shares * 2) == 0) shares *= 2;
  const int64_t ranks = threads / shares, tiles = (gradients[i].width + COLUMNS * W - 1) / (COLUMNS * W);
  if (tiles < ranks) return {0, tiles, me, threads};
  const int64_t rank = (me / shares + i) % ranks;  // spreads odd tiles over the threads
  return {tiles * rank / ranks, tiles * (rank + 1) / ranks, me % shares, shares};
}

// Tiles of δ whose sums stay cached while all rows are processed.
static int64_t tiles_at_once(const Gradient& g, const Part& part) {
  const int64_t tiles = part.last_tile - part.first_tile, fitting = SUM_BYTES / (1 + part.columns(g) * COLUMNS * BYTES);
  return share(tiles, fitting > 1 ? fitting : 1);
}

static void sum_share(const Gradient* gradients, int64_t count, int64_t me, int64_t threads, real* scratch) {
  for (int64_t i = 0; i < count; ++i) {
    const Part part = part_of(gradients, i, me, threads);
    for (Part some = part; some.first_tile < part.last_tile; some.first_tile = some.last_tile) {
      some.last_tile = part.last_tile;
      some.last_tile = some.first_tile + tiles_at_once(gradients[i], some);
      sum_part(gradients[i], some, scratch);
    }
  }
}

struct GradientCall {
  const Gradient* gradients;
  int64_t count, threads;
  real* scratch;      // `stride` elements per thread
  int64_t stride;
};

// Elements of scratch memory per thread: panels of δ and of values, and the sums.
extern "C" int64_t sum_room(const GradientCall* s) {
  int64_t most = 0;
  for (int64_t i = 0; i < s->count; ++i)
    for (int64_t me = 0; me < s->threads; ++me) {
      const Gradient& g = s->gradients[i];
      const Part part = part_of(s->gradients, i, me, s->threads);
      const int64_t sums = tiles_at_once(g, part) * part.columns(g) * COLUMNS * W;
      const int64_t needed = BLOCK_ROWS * (COLUMNS * W + part.padded_columns(g)) + sums;
      most = needed > most ? needed : most;
    }
  return (most + 15) / 16 * 16;
}

// With fewer threads than requested, some do the work of two.
extern "C" void sum_over_time(const GradientCall* s) {
#ifdef _OPENMP
  const int64_t threads = s->threads > 1 ? free_threads(s->threads) : 1;
  if (threads > 1) {
#pragma omp parallel for schedule(static, 1) num_threads((int)threads)
    for (int64_t me = 0; me < s->threads; ++me)
      sum_share(s->gradients, s->count, me, s->threads, s->scratch + me * s->stride);
    return;
  }
#endif
  for (int64_t me = 0; me < s->threads; ++me) sum_share(s->gradients, s->count, me, s->threads, s->scratch);
}

// ------------------------------------------------------------------------------------------ fingerprints of weights

struct WordArray {
  const uint32_t* words;
  int64_t count;
};

// A hash of the contents: each lane is a polynomial with an odd, hence invertible, base.
static uint64_t fingerprint_of(const WordArray& all) {
  typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
  words sums[4] = {};
  uint64_t mixed = uint64_t(all.count);
  const uint32_t* p = all.words;
  int64_t left = all.count;
  for (; left >= 64; left -= 64, p += 64)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const words here = *(const words*)(p + 16 * i);
      sums[i] = (sums[i] + (here ^ here >> 16)) * 0x9E3779B1u;  // fold the sign bit down: a product would not, and two sign changes would cancel
    }
  for (; left; --left) mixed = (mixed + *p++) * 0x9E3779B97F4A7C15ull;
  for (int i = 1; i < 4; ++i) sums[0] = sums[0] * 0x85EBCA77u + sums[i];  // vectorised: for small weights this dominates
  for (int w = 0; w < 16; ++w) {
    mixed = (mixed + sums[0][w]) * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

static uint64_t combine(uint64_t mixed, uint64_t next) { return ((mixed ^ mixed >> 29) + next) * 0x9E3779B97F4A7C15ull; }

// The hash of several arrays, in order.
extern "C" uint64_t fingerprint(const WordArray* all, int64_t count, int64_t threads) {
  uint64_t mixed = 0;
#ifdef _OPENMP
  threads = threads > 1 ? free_threads(threads) : 1;
  if (threads > 1) {
#pragma omp parallel for ordered schedule(static, 1) num_threads((int)threads)
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t own = fingerprint_of(all[i]);
#pragma omp ordered
      mixed = combine(mixed, own);
    }
    return mixed;
  }
#endif
  for (int64_t i = 0; i < count; ++i) mixed = combine(mixed, fingerprint_of(all[i]));
  return mixed;
}

extern "C" const int64_t vector_width = W, tile_width = TILE, tile_rows = ROWS;
