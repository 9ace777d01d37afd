// The product of a few rows with packed weights, and the packing. One library for all programs of a dtype.

#ifdef _OPENMP
#include <omp.h>
#endif

// out[v][m] = Σ rows[m][k] packed[k][v] over all segments, or, if there is `more` already, that is added. `far`: the weights
// outgrow the second cache, and those that are needed after these are asked for (from `next` on, two lines a turn).
template <int M, int V, bool far>
static void multiply(const Segment* s, int count, const real* packed, real* out, const real* next, Asked asked, bool more) {
  vec sum[M][V] = {};
  if (more)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[m][v] = *(const vec*)(out + (v * ROWS + m) * W);
  const int64_t asks = asked.count << asked.shift;
  int64_t asks_done = 0, wait = asked.pace;
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
      if (far) {
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + W, 0, 2);
        next += 2 * W;
      }
      if (--wait == 0 && asks_done < asks) {
        __builtin_prefetch(asked.rows[asks_done >> asked.shift] + (asks_done & ((1 << asked.shift) - 1)) * W, 0, 2);
        wait = asked.pace;
        ++asks_done;
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
#define FOR_COLUMNS(m, far) {multiply<m, 1, far>, multiply<m, 2, far>, multiply<m, 3, far>, multiply<m, 4, far>}
#else
#define FOR_COLUMNS(m, far) {multiply<m, 1, far>, multiply<m, 2, far>}
#endif
#define FOR_ROWS(far) \
  {FOR_COLUMNS(1, far), FOR_COLUMNS(2, far), FOR_COLUMNS(3, far), FOR_COLUMNS(4, far), FOR_COLUMNS(5, far), FOR_COLUMNS(6, far)}
extern "C" const Multiply multiplies[2][ROWS][COLUMNS] = {FOR_ROWS(false), FOR_ROWS(true)};

// ------------------------------------------------------------------------------------------ a single row
// Its products do nothing but read the weights once, and do so where they are: packing would have to look at them all to see
// whether they are still the same.

template <int...> struct Indices {};
template <int n, int... rest> struct Upto : Upto<n - 1, n - 1, rest...> {};
template <int... all> struct Upto<0, all...> { typedef Indices<all...> type; };

// Vectors of groups of numbers: the lower or the upper half of each group of a, then of b.
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

// The sums of n vectors, each as a group of W / n numbers that are still to be added.
template <int n> INLINE vec sums_of(const vec* v) {
  if constexpr (n == 1) return v[0];
  else {
    const vec a = sums_of<n / 2>(v), b = sums_of<n / 2>(v + n / 2);
    typename Upto<W>::type all;
    return halves<2 * W / n, 0>(a, b, all) + halves<2 * W / n, 1>(a, b, all);
  }
}

// Where the depth of weights lies side by side: W units from `unit` on, or as many as there are, a few at a time. All of them
// in one piece of code, so that no sum leaves the registers.
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
      int64_t k = 0;
      for (; k + W <= p.depth; k += W) {
        const vec x = *(const loose*)(row + k);
#pragma GCC unroll 4
        for (int i = 0; i < FEW; ++i) sum[i] += x * *(const loose*)(weights[i] + k);
      }
      if (k < p.depth) {
        const vec x = load(row + k, int(p.depth - k));
#pragma GCC unroll 4
        for (int i = 0; i < FEW; ++i) sum[i] += x * load(weights[i] + k, int(p.depth - k));
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < FEW; ++i) sums[u + i] = sum[i];
  }
  return sums_of<W>(sums);
}

// Weights whose units lie side by side: V vectors of them, or what there is of the last.
template <int V> INLINE void across_units(const real* row, const Piece& p, const real* weights, int64_t units, real* out) {
  vec sum[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) sum[v] = *(const vec*)(out + v * ROWS * W);
  const int last = units < V * W ? int(units - (V - 1) * W) : W;
  for (int64_t k = 0; k < p.depth; ++k, weights += p.depth_stride) {
    const vec x = splat(row[k]);
#pragma GCC unroll 8
    for (int v = 0; v < V - 1; ++v) sum[v] += x * *(const loose*)(weights + v * W);
    sum[V - 1] += x * load(weights + (V - 1) * W, last);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) *(vec*)(out + v * ROWS * W) = sum[v];
}

static void scattered(const real* row, const Piece& p, const real* weights, int64_t units, real* out) {
  for (int64_t u = 0; u < units; ++u)
    for (int64_t k = 0; k < p.depth; ++k)
      out[u / W * ROWS * W + u % W] += row[k] * weights[u * p.unit_stride + k * p.depth_stride];
}

static void add_across(const real* row, const Piece& p, int64_t unit, int64_t units, real* out) {
  const real* weights = p.data + unit * p.unit_stride;
  if (p.unit_stride != 1) return scattered(row, p, weights, units, out);
  for (int vectors; units > 0; weights += vectors * W, out += vectors * ROWS * W, units -= vectors * W) {
    vectors = units > 7 * W ? 8 : units > 3 * W ? 4 : 1;
    if (vectors == 8) across_units<8>(row, p, weights, units, out);
    else if (vectors == 4) across_units<4>(row, p, weights, units, out);
    else across_units<1>(row, p, weights, units, out);
  }
}

// The sums of all lanes from `unit` on; `pieces[lane][segment]`.
extern "C" void in_place(const Segment* segments, int count, const Piece* pieces, int64_t lanes, int64_t unit, int64_t units,
                         real* out) {
  for (const Segment* s = segments; s < segments + count; ++s)
    for (int64_t k = 0; s->rows && k < s->depth; k += 64 / sizeof(real)) __builtin_prefetch(s->rows + k);  // from other cores
  const int64_t wide = (units + W - 1) / W;
  for (; lanes--; pieces += count, out += wide * ROWS * W) {
    for (int64_t v = 0; v < wide; ++v) {
      const int64_t left = units - v * W;
      *(vec*)(out + v * ROWS * W) = dots(segments, count, pieces, unit + v * W, left < W ? int(left) : W);
    }
    for (int q = 0; q < count; ++q)
      if (segments[q].rows && pieces[q].depth_stride != 1) add_across(segments[q].rows, pieces[q], unit, units, out);
  }
}

// ------------------------------------------------------------------------------------------ packing

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
// gradient[unit][column] = Σ δ[row][unit] value[row][column] over the rows of all steps. A block of rows at a time is laid
// side by side, all columns of the values for the second cache, a tile of δ for the first (where they come from, rows apart
// by a power of two drive each other out). Each block is summed from zero, so rounding grows with the number of blocks.

constexpr int DEEP = 128, BESIDE = 8 * ROWS;  // rows of a block, columns of values side by side
constexpr int64_t HELD = 3 << 20;  // bytes of sums at a time
static_assert(BESIDE * sizeof(real) % BYTES == 0, "whole vectors");

struct Stretch {  // rows that meet those of δ from `first` on: `from` tells where they begin, in `values` or in what was before
  int64_t early, from, first, rows;
};

struct Target {
  real* out;
  int64_t out_stride, columns;
  const real* values;
  const real* before;
  int64_t stride;
  const Stretch* stretches;
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
    values += BESIDE;
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

template <int V> INLINE void lay_whole(const real* from, int64_t stride, int64_t rows, real* to) {
  for (int64_t k = 0; k < rows; ++k, from += stride, to += V * W) {
#pragma GCC unroll 4
    for (int c = 0; c < V; ++c) {
      __builtin_prefetch(from + 12 * stride + c * W);  // rows lie too far apart for the processor to guess the next
      *(vec*)(to + c * W) = *(const loose*)(from + c * W);
    }
  }
}

static void lay(const real* from, int64_t stride, int64_t rows, int64_t columns, int64_t vectors, real* to) {
  if (columns == vectors * W) {
    if (vectors == 4) return lay_whole<4>(from, stride, rows, to);
    if (vectors == 3) return lay_whole<3>(from, stride, rows, to);
    if (vectors == 2) return lay_whole<2>(from, stride, rows, to);
  }
  for (int64_t k = 0; k < rows; ++k, from += stride)
    for (int64_t c = 0; c < vectors; ++c, to += W)
      *(vec*)to = columns > c * W ? load(from + c * W, int(columns - c * W < W ? columns - c * W : W)) : vec{};
}

// Rows `row` and on of a target's columns `low` to `high`, from wherever they are.
static void lay_values(const Target& t, int64_t row, int64_t rows, int64_t low, int64_t high, real* to) {
  for (int64_t c = low; c < high; c += BESIDE, to += rows * BESIDE) {
    const int64_t columns = high - c < BESIDE ? high - c : BESIDE;
    for (int64_t q = 0; q < t.count; ++q) {
      const Stretch& p = t.stretches[q];
      const int64_t first = row > p.first ? row : p.first, end = p.first + p.rows;
      const int64_t last = row + rows < end ? row + rows : end;
      const real* const values = (p.early ? t.before : t.values) + (p.from + first - p.first) * t.stride;
      if (first < last) lay(values + c, t.stride, last - first, columns, BESIDE / W, to + (first - row) * BESIDE);
    }
  }
}

struct Part {  // of a thread: tiles of δ, and of each target's columns every so many blocks
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
  int64_t beside(const Gradient& g) const {  // the same as they are laid side by side
    int64_t all = 0;
    for (int64_t i = 0; i < g.count; ++i) all += (high(g.targets[i]) - low(g.targets[i]) + BESIDE - 1) / BESIDE * BESIDE;
    return all;
  }
};

static void sum_part(const Gradient& g, const Part& part, real* room) {
  real* const panel = room, *const values = panel + DEEP * COLUMNS * W, *const sums = values + DEEP * part.beside(g);
  const int64_t tile_numbers = part.columns(g) * COLUMNS * W;
  for (int64_t i = 0; i < (part.last_tile - part.first_tile) * tile_numbers; i += W) *(vec*)(sums + i) = vec{};
  for (int64_t row = 0; row < g.rows; row += DEEP) {
    const int64_t rows = g.rows - row < DEEP ? g.rows - row : DEEP;
    real* to = values;
    for (int64_t i = 0; i < g.count; ++i) {
      const int64_t low = part.low(g.targets[i]), high = part.high(g.targets[i]);
      lay_values(g.targets[i], row, rows, low, high, to);
      to += (high - low + BESIDE - 1) / BESIDE * BESIDE * rows;
    }
    for (int64_t j = part.first_tile; j < part.last_tile; ++j) {
      const int64_t first = j * COLUMNS * W, units = g.width - first < COLUMNS * W ? g.width - first : COLUMNS * W;
      const int v = int((units + W - 1) / W);
      lay(g.delta + row * g.stride + first, g.stride, rows, units, v, panel);
      real* out = sums + (j - part.first_tile) * tile_numbers;
      const real* from = values;
      for (int64_t i = 0; i < g.count; ++i) {
        const int64_t own = part.high(g.targets[i]) - part.low(g.targets[i]);
        for (int64_t c = 0; c < own; c += BESIDE, from += rows * BESIDE) {
          const int64_t end = own - c < BESIDE ? own - c : BESIDE;
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
      for (int64_t block = low; block < high; block += W)  // so that the same few lines are read for all units
        for (int64_t u = 0; u < units; ++u)
          for (int64_t m = block; m < high && m < block + W; ++m)
            t.out[(first + u) * t.out_stride + m] = from[(m - low) * v * W + u];
      from += (high - low) * v * W;
    }
  }
}

// What a thread has of a gradient.
static Part part_of(const Gradient* gradients, int64_t i, int64_t me, int64_t threads) {
  int64_t shares = 1;
  while (shares * shares * 4 <= threads && threads % (shares * 2) == 0) shares *= 2;
  const int64_t ranks = threads / shares, tiles = (gradients[i].width + COLUMNS * W - 1) / (COLUMNS * W);
  if (tiles < ranks) return {0, tiles, me, threads};
  const int64_t rank = (me / shares + i) % ranks;  // not the same thread gets the odd tile of all
  return {tiles * rank / ranks, tiles * (rank + 1) / ranks, me % shares, shares};
}

// Tiles of δ whose sums stay near while all rows pass by.
static int64_t tiles_at_once(const Gradient& g, const Part& part) {
  const int64_t tiles = part.last_tile - part.first_tile, held = HELD / (1 + part.columns(g) * COLUMNS * BYTES);
  return share(tiles, held > 1 ? held : 1);
}

static void sum_some(const Gradient* gradients, int64_t count, int64_t me, int64_t threads, real* room) {
  for (int64_t i = 0; i < count; ++i) {
    const Part part = part_of(gradients, i, me, threads);
    for (Part some = part; some.first_tile < part.last_tile; some.first_tile = some.last_tile) {
      some.last_tile = part.last_tile;
      some.last_tile = some.first_tile + tiles_at_once(gradients[i], some);
      sum_part(gradients[i], some, room);
    }
  }
}

struct Summing {
  const Gradient* gradients;
  int64_t count, threads;
  real* room;      // for each thread `stride` numbers
  int64_t stride;
};

// Numbers a thread needs: panels of δ and of values, and the sums.
extern "C" int64_t sum_room(const Summing* s) {
  int64_t most = 0;
  for (int64_t i = 0; i < s->count; ++i)
    for (int64_t me = 0; me < s->threads; ++me) {
      const Gradient& g = s->gradients[i];
      const Part part = part_of(s->gradients, i, me, s->threads);
      const int64_t sums = tiles_at_once(g, part) * part.columns(g) * COLUMNS * W;
      const int64_t needed = DEEP * (COLUMNS * W + part.beside(g)) + sums;
      most = needed > most ? needed : most;
    }
  return (most + 15) / 16 * 16;
}

// If there are fewer threads than were asked for, some do the work of two.
extern "C" void sum_over_time(const Summing* s) {
#ifdef _OPENMP
  if (s->threads > 1) {
#pragma omp parallel for schedule(static, 1) num_threads((int)s->threads)
    for (int64_t me = 0; me < s->threads; ++me)
      sum_some(s->gradients, s->count, me, s->threads, s->room + me * s->stride);
    return;
  }
#endif
  sum_some(s->gradients, s->count, 0, 1, s->room);
}

// ------------------------------------------------------------------------------------------ what weights hold

struct Numbers {
  const uint32_t* words;
  int64_t count;
};

// A number that differs when any of the numbers differ: each lane is a polynomial with an odd, hence invertible, base.
static uint64_t fingerprint_of(const Numbers& all) {
  typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
  words sums[4] = {};
  uint64_t mixed = uint64_t(all.count);
  const uint32_t* p = all.words;
  int64_t left = all.count;
  for (; left >= 64; left -= 64, p += 64)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const words here = *(const words*)(p + 16 * i);
      sums[i] = (sums[i] + (here ^ here >> 16)) * 0x9E3779B1u;  // no product brings a sign down: two changed would be none
    }
  for (; left; --left) mixed = (mixed + *p++) * 0x9E3779B97F4A7C15ull;
  for (int i = 1; i < 4; ++i) sums[0] = sums[0] * 0x85EBCA77u + sums[i];  // all at once: small weights are mostly this
  for (int w = 0; w < 16; ++w) {
    mixed = (mixed + sums[0][w]) * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

static uint64_t and_then(uint64_t mixed, uint64_t next) { return ((mixed ^ mixed >> 29) + next) * 0x9E3779B97F4A7C15ull; }

// Of all of them, in their order.
extern "C" uint64_t fingerprint(const Numbers* all, int64_t count, int64_t threads) {
  uint64_t mixed = 0;
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel for ordered schedule(static, 1) num_threads((int)threads)
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t own = fingerprint_of(all[i]);
#pragma omp ordered
      mixed = and_then(mixed, own);
    }
    return mixed;
  }
#endif
  for (int64_t i = 0; i < count; ++i) mixed = and_then(mixed, fingerprint_of(all[i]));
  return mixed;
}

extern "C" const int64_t vector_width = W, tile_width = TILE, tile_rows = ROWS;
