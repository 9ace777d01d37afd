// The product of a few rows with packed weights, and the packing. One library for all programs of a dtype.

#ifdef _OPENMP
#include <omp.h>
#endif

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
      for (int v = 0; v < V; ++v) {
        column[v] = *(const vec*)(packed + v * W);
        __builtin_prefetch(packed + (8 * V + v) * W);
      }
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

#if COLUMNS == 4
#define FOR_COLUMNS(m) {multiply<m, 1>, multiply<m, 2>, multiply<m, 3>, multiply<m, 4>}
#else
#define FOR_COLUMNS(m) {multiply<m, 1>, multiply<m, 2>}
#endif
extern "C" const Multiply multiplies[ROWS][COLUMNS] = {FOR_COLUMNS(1), FOR_COLUMNS(2), FOR_COLUMNS(3),
                                                   FOR_COLUMNS(4), FOR_COLUMNS(5), FOR_COLUMNS(6)};

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

extern "C" const int64_t vector_width = W, tile_width = TILE;
