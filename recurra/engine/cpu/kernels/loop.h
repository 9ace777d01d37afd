// The loop over time around the generated step function.

#ifdef _OPENMP
#include <omp.h>
#endif
extern "C" int sched_yield(void);

struct Buffer {  // row r of step s is at data + (rows[s] + r) * stride; negative rows[s]: row -1 - rows[s] of `before`
  real* data;
  int64_t stride;
  const int64_t* rows;
  real* before;  // values before the first step
};

// Which numbers of a row a result reads: `terms` each. For every term and vector of results, `runs` has the first place if
// the places are consecutive, else one of the marks below, and `places` has each of them; -1 reads nothing. `grids` has, for
// a vector of results, what all its places have in common.
struct Grid {  // places first + term * by_term + lane * by_lane; first = -1: none such
  int32_t first, by_term, by_lane;
};
struct IndexMap {
  const int32_t* places;
  const int32_t* runs;
  const Grid* grids;
  int64_t terms, vectors;
};
constexpr int32_t SCATTERED = -1, NOTHING = -2, REPEATED = -3;  // REPEATED - place: one place, for all

struct Call {  // arguments of `run`; the order of fields is that of kernel.py
  const Buffer* buffers;
  const real* const* vectors;
  const void* const* packs;
  real* sums;                        // [part][2][sums_stride]: sums of the last up to 64 steps, and of all before
  real* rowsums;                     // [rowsum][part of the units][row], then the same as unreduced vectors
  int64_t* sync;                     // words for synchronisation of threads, initially zero
  int64_t steps, threads, by_unit;   // by_unit: threads share the units; else the batch
  int64_t work_stealing;             // by_unit: idle threads take tiles of others
  int64_t parts, steps_per_item;     // parts of the batch, or of the columns; steps of one work item
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
  int64_t (*free_threads)(int64_t);  // of so many threads, those that find a core
  const IndexMap* maps;
  const real* const* literals;       // rows of constants
  int64_t by_column;                 // parts are columns that do not depend on each other, not rows
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

// One term of a vector of results, from a row in memory; `none` where nothing is read. Functions, not inlined: a step may
// gather a hundred times, and compiling them in place would take a minute.
#define SHARED static __attribute__((noinline))
SHARED vec take_scattered(const int32_t* places, const real* row, real none) {
  vec v = splat(none);
  for (int i = 0; i < W; ++i)
    if (places[i] >= 0) v[i] = row[places[i]];
  return v;
}

INLINE vec take(const IndexMap& map, int64_t term, const real* row, int64_t column, int count, real none) {
  const int64_t at = term * map.vectors + column / W;
  const int32_t run = map.runs[at];
  if (run >= 0) return load(row + run, count);
  if (run <= REPEATED) return splat(row[REPEATED - run]);
  return run == NOTHING ? splat(none) : take_scattered(map.places + at * W, row, none);
}

SHARED vec gather_one(const IndexMap& map, const real* row, int64_t column, int count) {
  return take(map, 0, row, column, count, 0);
}

// Sums over the terms of a grid, of products with a second one if there is one: a column of a matrix, or a matrix times a
// vector. Several sums at once, since an addition waits for the one before.
struct Operand {
  const real* row;
  Grid grid;
};
INLINE bool by_vector(const Operand& a) { return a.grid.by_lane == 0 || a.grid.by_lane == 1; }

template <bool spread> INLINE vec term_at(const Operand& a, int64_t q, int count) {
  const real* const place = a.row + a.grid.first + q * a.grid.by_term;
  return spread ? splat(*place) : load(place, count);
}

template <bool two, bool spread, bool other_spread>
SHARED vec sum_by_vector(const Operand& a, const Operand& b, int64_t terms, int count) {
  vec sums[4] = {};
  int64_t q = 0;
  for (; q + 4 <= terms; q += 4)
    for (int k = 0; k < 4; ++k)
      sums[k] += two ? term_at<spread>(a, q + k, count) * term_at<other_spread>(b, q + k, count)
                     : term_at<spread>(a, q + k, count);
  for (; q < terms; ++q)
    sums[0] += two ? term_at<spread>(a, q, count) * term_at<other_spread>(b, q, count) : term_at<spread>(a, q, count);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The terms are consecutive: each lane has its own dot product.
template <bool two> SHARED vec sum_by_lane(const Operand& a, const Operand& b, int64_t terms, int count) {
  vec result = {};
  for (int lane = 0; lane < count; ++lane) {
    const real* const x = a.row + a.grid.first + lane * a.grid.by_lane;
    const real* const y = two ? b.row + b.grid.first + lane * b.grid.by_lane : x;
    vec sums[2] = {};
    int64_t q = 0;
    for (; q + 2 * W <= terms; q += 2 * W)
      for (int k = 0; k < 2; ++k) {
        const vec value = load(x + q + k * W, W);
        sums[k] += two ? value * load(y + q + k * W, W) : value;
      }
    for (; q < terms; q += W) {
      const int rest = terms - q < W ? int(terms - q) : W;
      const vec value = zero_tail(load(x + q, rest), rest);
      sums[0] += two ? value * zero_tail(load(y + q, rest), rest) : value;
    }
    result[lane] = horizontal_sum(sums[0] + sums[1]);
  }
  return result;
}

SHARED vec gather_sum(const IndexMap& map, const real* row, int64_t column, int count) {
  const Operand a = {row, map.grids[column / W]};
  if (a.grid.first >= 0) {
    if (a.grid.by_lane == 1) return sum_by_vector<false, false, false>(a, a, map.terms, count);
    if (a.grid.by_term == 1) return sum_by_lane<false>(a, a, map.terms, count);
  }
  vec sum = {};
  for (int64_t q = 0; q < map.terms; ++q)
    if (map.runs[q * map.vectors + column / W] != NOTHING) sum += take(map, q, row, column, count, 0);
  return sum;
}

SHARED vec gather_max(const IndexMap& map, const real* row, int64_t column, int count) {
  vec most = splat(-__builtin_inf());
  for (int64_t q = 0; q < map.terms; ++q) most = maximum(most, take(map, q, row, column, count, -__builtin_inf()));
  return most;
}

SHARED vec gather_dot(const IndexMap& map, const real* row, const IndexMap& other, const real* its, int64_t column,
                      int count) {
  const Operand a = {row, map.grids[column / W]}, b = {its, other.grids[column / W]};
  if (a.grid.first >= 0 && b.grid.first >= 0) {
    if (by_vector(a) && by_vector(b)) {
      if (a.grid.by_lane && b.grid.by_lane) return sum_by_vector<true, false, false>(a, b, map.terms, count);
      if (a.grid.by_lane) return sum_by_vector<true, false, true>(a, b, map.terms, count);
      if (b.grid.by_lane) return sum_by_vector<true, true, false>(a, b, map.terms, count);
    }
    if (a.grid.by_term == 1 && b.grid.by_term == 1) return sum_by_lane<true>(a, b, map.terms, count);
  }
  vec sum = {};
  for (int64_t q = 0; q < map.terms; ++q)
    if (map.runs[q * map.vectors + column / W] != NOTHING)
      sum += take(map, q, row, column, count, 0) * take(other, q, its, column, count, 0);
  return sum;
}

// Loops over the axes of a matrix: vectors of columns at a time, and a sum over columns that comes in parts.
#define UNROLLED _Pragma("GCC unroll 4")
constexpr int FAR = 1024;  // numbers from a place of a matrix to the one that is prefetched beside it
template <int N> struct Vectors { static constexpr int value = N; };
INLINE void add_part(real& all, vec part, int64_t first_column) {
  all = first_column ? all + horizontal_sum(part) : horizontal_sum(part);
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
// group execution in 16 bits, and the next tile and the end in 24 bits each. A barrier ends each execution, so two threads
// differ by less than 2^16 executions; kernel.py asks for no stealing if there are more tiles than 24 bits can count.
struct TileRange {
  uint64_t all;
  uint64_t number() const { return all >> 48; }
  int64_t next() const { return int64_t(all >> 24 & 0xffffff); }
  int64_t end() const { return int64_t(all & 0xffffff); }
};

struct TileScheduler {
  const Call& c;
  const int64_t tiles, me, threads;
  const bool reversed;  // from the last tile to the first: the weights read last are still in the cache
  uint64_t number;

  uint64_t* range_of(int64_t of) const { return (uint64_t*)c.sync + (threads + of) * 8; }
  int64_t first(int64_t of) const { return tiles * of / threads; }

  TileScheduler(const Call& c, int64_t tiles, int64_t me, int64_t threads, bool reversed)
      : c(c), tiles(tiles), me(me), threads(threads), reversed(reversed), number((TileRange{*range_of(me)}.number() + 1) & 0xffff) {
    __atomic_store_n(range_of(me), number << 48 | uint64_t(first(me)) << 24 | uint64_t(first(me + 1)), __ATOMIC_RELEASE);
  }

  // Takes half of the rest of the own range, or one tile of another's; false if none is left.
  bool take(int64_t& low, int64_t& high) const {
    for (int64_t i = 0; i < threads; ++i) {
      const int64_t of = (me + i) % threads, both = first(of) + first(of + 1);
      TileRange range{__atomic_load_n(range_of(of), __ATOMIC_ACQUIRE)};
      while (range.number() == number && range.next() < range.end()) {
        const int64_t some = i ? 1 : (range.end() - range.next() + 1) / 2;
        const uint64_t left = i ? range.all - 1 : range.all + (uint64_t(some) << 24);
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

// The pieces of segments between two depths, as `units` read them: what they do not read is null. Returns their number.
template <int count>
INLINE int slice_segments(const Segment (&all)[count], const Band (&bands)[count], Range units, int64_t from, int64_t to,
                          Segment* part) {
  int found = 0;
  for (int q = 0; q < count; ++q) {
    const Segment& s = all[q];
    const int64_t low = from > 0 ? from : 0, high = to < s.depth ? to : s.depth;
    if (low < high) {
      const Range read = depths_of(bands[q], units.low, units.high, {low, high});
      if (low < read.low) part[found++] = {nullptr, 0, read.low - low};
      if (read.low < read.high) part[found++] = {s.rows ? s.rows + read.low : nullptr, s.stride, read.high - read.low};
      if (read.high < high) part[found++] = {nullptr, 0, high - read.high};
    }
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
INLINE void products(const Call& c, const Segment (&all)[count], const Band (&bands)[count], int64_t depth, int64_t k,
                     const void* pack, Tile tile, int rows, int64_t turn, bool reversed, RowPrefetch prefetch, real* out) {
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
  const int64_t end = (tile.first + tile.vectors) * W;
  Segment part[3 * count];
  const int parts = slice_segments(all, bands, {tile.first * W, end < tile.width ? end : tile.width}, k, k + span, part);
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

// Steps `from` to `to` of a part of the batch, or of all rows for one of `shares` of the columns.
static void steps(const Call& c, int64_t part, int64_t from, int64_t to, int64_t me, int64_t threads, int64_t shares) {
  const int64_t low = c.by_column ? 0 : c.bounds[part], high = c.by_column ? c.rows : c.bounds[part + 1];
  real* const sums = c.sums + part * 2 * c.sums_stride;
  for (int64_t s = from; s < to; ++s) {
    const int64_t end = high < c.active[s] ? high : c.active[s];
    if (c.by_column) step(c, s, low, end, part, shares, sums);
    else if (low < end || threads > 1) step(c, s, low, end, me, threads, sums);
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
  const bool whole = c.parts == 1 || (c.by_column && threads == 1);  // one thread reads whole rows faster than parts
  if (whole) return steps(c, 0, c.spans[0], c.spans[1], me, threads, 1);
  for (WorkItem item{-1, 0, 0}; next_item(c, me, threads, item);) steps(c, item.part, item.from, item.to, 0, 1, c.parts);
}

static void run_threads(const Call& c) {
#ifdef _OPENMP
  const int64_t threads = c.threads > 1 ? c.free_threads(c.threads) : 1;
  if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
    work(c, omp_get_thread_num(), omp_get_num_threads());  // may be fewer than requested
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
