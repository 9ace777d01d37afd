// Many steps of sequences whose weights reach their own unit alone, while no weight changes.
//
// Words that read no state run for all steps before the others, and words that no state needs after them: one word for
// all items, so that it is decoded once. An item is a step of a sequence, step × batch + sequence. Then cotangents of
// roots go back through the steps, and gradient and influence are products over all items. Structures are filled by
// row_chunk.py; every field has eight bytes; rows are addresses and strides, as in words.

struct Place { int64_t address, step; };
struct Phase { const int64_t *words, *ends; int64_t count; };  // where each word ends
struct RowLink { int64_t to, from; Place row; };               // ∂(root `to`)/∂(root `from` before)
struct RowFactor { int64_t root; Place row; };                 // of a cotangent, in that of a product
struct RowUse { int64_t first_factor, factors; Place operand; };
struct RowTurned { int64_t from, ld, wide, deep, to; };  // a matrix (wide, deep), and where its columns are rows
struct RowReadout { int64_t root, column; };
struct RowBlock { int64_t units, deep, along_units, gradient, first_use, uses, first_kept; };  // `kept` has its places
struct RowGroup {  // blocks that reach the same roots; the first `carried` of these are carried
  int64_t width, roots, carried, first_link, links, first_block, blocks, first_readout, readouts;
};
struct RowChunk {
  Phase before, during, after;
  real** regions;
  const int64_t* strides;
  const int32_t* maps;
  int64_t batch, some, group_count, outputs, states, kept_size;
  const RowGroup* groups;
  const RowLink* links;
  const RowFactor* factors;
  const RowUse* uses;
  const RowReadout* readouts;
  const RowBlock* blocks;
  const RowTurned* turns;
  int64_t turn_count;
  const int64_t* kept;
  real *c, *first, *delta, *operand, *turned, *next;  // work: see row_chunk.py
};
enum { SCRATCH, INPUT, STATE, NEW, POOL, COTANGENT, OUTPUTS, KEPT, GRADIENT };  // regions, as in row_program.py

// ------------------------------------------------------------------------------------------ forward

static void product_of_items(const Memory& m, const int64_t* at, int64_t items) {
  const int64_t to = m.strides[at[0] >> 40], from = m.strides[at[1] >> 40];
  real *const y = m.at(at[0]), *const v = m.at(at[1]), *const w = m.at(at[2]);
  for (int64_t i = 0; i < items; ++i) product(y + i * to, v + i * from, w, at[3], at[4], at[5], at[6]);
}

// Copies, zeros and sums of products for some items.
static void copy_items(const Memory& m, const int64_t* at, int64_t items) {
  const int64_t width = at[0], y_at = at[1], a_at = at[2], step = at[3];
  const int64_t to = m.strides[y_at >> 40], from = m.strides[a_at >> 40];
  real* y = m.at(y_at);
  Row a{m.at(a_at), step};
  for (int64_t i = 0; i < items; ++i, y += to, a.p += from) COLUMNS_OF(width) store(y + j, a.get(j, count), count);
}

static void zero_items(const Memory& m, const int64_t* at, int64_t items) {
  real* const y = m.at(at[1]);
  for (int64_t i = 0; i < items; ++i) __builtin_memset(y + i * m.strides[at[1] >> 40], 0, at[0] * sizeof(real));
}

static void add_product_items(const Memory& m, const int64_t* at, int64_t items) {
  const int64_t width = at[0], to = m.strides[at[1] >> 40], from = m.strides[at[2] >> 40], other = m.strides[at[4] >> 40];
  real* y = m.at(at[1]);
  Row a{m.at(at[2]), at[3]}, b{m.at(at[4]), at[5]};
  for (int64_t i = 0; i < items; ++i, y += to, a.p += from, b.p += other)
    COLUMNS_OF(width) add_row(y + j, a.get(j, count) * b.get(j, count), count);
}

static void run_items(const Phase& phase, const Memory& m, int64_t items) {  // word by word
  for (int64_t n = 0; n < phase.count; ++n) {
    const int64_t start = n ? phase.ends[n - 1] : 0, *const at = phase.words + start;
    if (*at == ELEMENTWISE) elementwise(m, at + 1, items);
    else if (*at == PRODUCT) product_of_items(m, at + 1, items);
    else if (*at == COPY) copy_items(m, at + 1, items);
    else if (*at == ZERO) zero_items(m, at + 1, items);
    else if (*at == ADD_PRODUCT) add_product_items(m, at + 1, items);
    else for (int64_t i = m.sequence; i < m.sequence + items; ++i) run_one(at, phase.ends[n] - start, Memory{m.regions, m.strides, m.maps, i});
  }
}

// Words of the loop over steps, with the addresses of its first item: decoding them takes as long as a short row.
struct Ready {
  int64_t code;
  Element element;  // of ELEMENTWISE; PRODUCT and COPY have their rows in it
  int64_t ld, deep, flipped, w_item;
  const real* w;
};
constexpr int64_t MOST_READY = 64;  // words after these are decoded at every step

static int64_t read_words(const Phase& phase, const Memory& m, Ready* ready) {
  const int64_t count = phase.count < MOST_READY ? phase.count : MOST_READY;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t* const at = phase.words + (n ? phase.ends[n - 1] : 0);
    Ready& word = ready[n];
    Element& e = word.element;
    word.code = *at;
    if (*at == ELEMENTWISE) read_element(m, at + 1, e);
    else if (*at == PRODUCT) {
      e.y = m.at(at[1]), e.a.p = m.at(at[2]), word.w = m.at(at[3]), word.ld = at[4], e.width = at[5], word.deep = at[6];
      word.flipped = at[7], e.step.y = m.strides[at[1] >> 40], e.step.a = m.strides[at[2] >> 40], word.w_item = m.strides[at[3] >> 40];
    } else if (*at == COPY) {
      e.width = at[1], e.y = m.at(at[2]), e.a = {m.at(at[3]), at[4]};
      e.step.y = m.strides[at[2] >> 40], e.step.a = m.strides[at[3] >> 40];
    }
  }
  return count;
}

static void run_ready(const RowChunk& r, const Ready* ready, int64_t count, int64_t i) {  // the words, for item i
  for (const Ready* word = ready; word < ready + count; ++word) {
    const Element& e = word->element;
    if (word->code == ELEMENTWISE) apply(e, i, 1);
    else if (word->code == PRODUCT)
      product(e.y + i * e.step.y, e.a.p + i * e.step.a, word->w + i * word->w_item, word->ld, e.width, word->deep, word->flipped);
    else if (word->code == COPY) {
      real* const y = e.y + i * e.step.y;
      const Row a{e.a.p + i * e.step.a, e.a.step};
      COLUMNS_OF(e.width) store(y + j, a.get(j, count), count);
    } else {
      const int64_t n = word - ready, start = n ? r.during.ends[n - 1] : 0;
      run_one(r.during.words + start, r.during.ends[n] - start, Memory{r.regions, r.strides, r.maps, i});
    }
  }
  if (count == r.during.count) return;
  const int64_t start = r.during.ends[count - 1], end = r.during.ends[r.during.count - 1];
  run_one(r.during.words + start, end - start, Memory{r.regions, r.strides, r.maps, i});
}

// Matrices that every step multiplies by, with the numbers that a vector takes side by side.
extern "C" void row_chunk_turn(const RowChunk* given) {
  const Memory m{given->regions, given->strides, given->maps, 0};
  for (const RowTurned* t = given->turns; t < given->turns + given->turn_count; ++t) {
    const real* const from = m.at(t->from);
    real* const to = m.at(t->to);
    for (int64_t i = 0; i < t->wide; ++i) for (int64_t k = 0; k < t->deep; ++k) to[k * t->wide + i] = from[i * t->ld + k];
  }
}

// Some items at a time, in the same part of the scratch: their rows stay in the caches.
extern "C" void row_chunk_forward(const RowChunk* given, int64_t items) {
  const RowChunk& r = *given;
  Ready ready[MOST_READY];
  real* const scratch = r.regions[SCRATCH];
  for (int64_t first = 0; first < items; first += r.some) {
    const int64_t now = items - first < r.some ? items - first : r.some;
    r.regions[SCRATCH] = scratch - first * r.strides[SCRATCH];
    run_items(r.before, Memory{r.regions, r.strides, r.maps, first}, now);
    const int64_t count = read_words(r.during, Memory{r.regions, r.strides, r.maps, 0}, ready);
    for (int64_t i = first; i < first + now; ++i) run_ready(r, ready, count, i);
    run_items(r.after, Memory{r.regions, r.strides, r.maps, first}, now);
  }
  r.regions[SCRATCH] = scratch;
}

// ------------------------------------------------------------------------------------------ backward

INLINE bool is_zero(ivec v) {  // in all places
  typedef long long words __attribute__((vector_size(BYTES)));
  const words w = (words)v;
  long long all = 0;
  for (int q = 0; q < BYTES / 8; ++q) all |= w[q];
  return !all;
}

struct ItemRow { const real* p; int64_t item, step; };  // null: nothing
static ItemRow row_of(const RowChunk& r, const Place& place) {
  if (place.address < 0) return {nullptr, 0, 0};
  return {Memory{r.regions, r.strides, r.maps, 0}.at(place.address), r.strides[place.address >> 40], place.step};
}

// Cotangents c (roots, items, width) go back through the steps; those before the chunk to `first` (roots, batch, width).
// Where all of an item are zero, as the cotangents of the last state are long before it, those before it stay.
static void row_adjoint(const RowChunk& r, const RowGroup& g, int64_t items, real* first, bool of_last) {
  const int64_t all = items * g.width, back = r.batch * g.width;
  __builtin_memset(first, 0, g.roots * back * sizeof(real));
  struct Link { ItemRow own; real *from, *to, *first; } links[MOST * 2 * MOST];
  const RowLink* const given = r.links + g.first_link;
  for (int64_t l = 0; l < g.links; ++l)
    links[l] = {row_of(r, given[l].row), r.c + given[l].to * all, r.c + given[l].from * all - back, first + given[l].from * back};
  for (int64_t i = items - 1, zeros = 0; i >= 0; --i) {
    ivec any = {};
    for (int64_t l = 0; l < g.links; ++l) {
      const Link& link = links[l];
      const Row own{link.own.p + i * link.own.item, link.own.step};
      const real* const from = link.from + i * g.width;
      real* const to = (i < r.batch ? link.first : link.to) + i * g.width;
      COLUMNS_OF(g.width) {
        const vec sum = load(to + j, count) + load(from + j, count) * own.get(j, count);
        store(to + j, sum, count);
        any |= sum != vec{};
      }
    }
    if (!of_last) continue;
    zeros = is_zero(any) ? zeros + 1 : 0;
    if (zeros == r.batch) return;
  }
}

// The cotangent of a product in all items, (items, width); the first item in which it is not zero.
static int64_t row_delta(const RowChunk& r, const RowGroup& g, const RowUse& use, int64_t items) {
  int64_t found = items;
  ItemRow rows[2 * MOST];
  const real* from[2 * MOST];
  for (int64_t f = 0; f < use.factors; ++f) {
    rows[f] = row_of(r, r.factors[use.first_factor + f].row);
    from[f] = r.c + r.factors[use.first_factor + f].root * items * g.width;
  }
  for (int64_t i = 0; i < items; ++i) {
    ivec any = {};
    real* const to = r.delta + i * g.width;
    COLUMNS_OF(g.width) {
      vec sum = load(from[0] + i * g.width + j, count) * Row{rows[0].p + i * rows[0].item, rows[0].step}.get(j, count);
      for (int64_t f = 1; f < use.factors; ++f)
        sum += load(from[f] + i * g.width + j, count) * Row{rows[f].p + i * rows[f].item, rows[f].step}.get(j, count);
      store(to + j, sum, count);
      any |= sum != vec{};
    }
    if (found == items && !is_zero(any)) found = i;
  }
  return found;
}

template <int R, int C> INLINE void add_tile(real* to, int64_t ld, ItemRow outer, const real* inner, int64_t inner_item,
                                             int64_t items, int last) {
  vec sum[R][C];
  UNROLLED for (int q = 0; q < R; ++q) UNROLLED for (int c = 0; c < C; ++c) sum[q][c] = vec{};
  for (int64_t i = 0; i < items; ++i, inner += inner_item, outer.p += outer.item) {
    vec v[C];
    UNROLLED for (int c = 0; c < C; ++c) v[c] = c + 1 < C ? *(const loose*)(inner + c * W) : load(inner + c * W, last);
    UNROLLED for (int q = 0; q < R; ++q) {
      const vec f = splat(outer.p[q * outer.step]);
      UNROLLED for (int c = 0; c < C; ++c) sum[q][c] += f * v[c];
    }
  }
  UNROLLED for (int q = 0; q < R; ++q)
    UNROLLED for (int c = 0; c < C; ++c) {
      real* const y = to + q * ld + c * W;
      const int count = c + 1 < C ? W : last;
      store(y, load(y, count) + sum[q][c], count);
    }
}

template <int R, int C> INLINE void add_rows(real* to, int64_t rows, int64_t ld, const ItemRow& outer, const real* inner,
                                             int64_t inner_item, int64_t items, int last) {
  int64_t q = 0;
  const auto tile = [&] { return ItemRow{outer.p + q * outer.step, outer.item, outer.step}; };
  for (; q + R <= rows; q += R) add_tile<R, C>(to + q * ld, ld, tile(), inner, inner_item, items, last);
  for (; q < rows; ++q) add_tile<1, C>(to + q * ld, ld, tile(), inner, inner_item, items, last);
}

// to (rows, width) += Σ over items of outer ⊗ inner, some items at a time: those stay in the first cache
static void add_products(real* to, int64_t rows, ItemRow outer, ItemRow inner, int64_t width, int64_t items) {
  constexpr int64_t some = 64;
  for (; items > 0; items -= some, outer.p += some * outer.item, inner.p += some * inner.item) {
    const int64_t now = items < some ? items : some;
    int64_t j = 0;
    for (; j + 4 * W <= width; j += 4 * W) add_rows<4, 4>(to + j, rows, width, outer, inner.p + j, inner.item, now, W);
    for (; j + 2 * W <= width; j += 2 * W) add_rows<8, 2>(to + j, rows, width, outer, inner.p + j, inner.item, now, W);
    for (; j < width; j += W) add_rows<8, 1>(to + j, rows, width, outer, inner.p + j, inner.item, now, left(width, j));
  }
}

// to += Σ δ ⊗ v over items of the sequences from `b` on, each `stride`-th, δ being zero before item `low`.
static void add_block(const RowChunk& r, const RowBlock& block, const RowUse& use, int64_t width, real* to, int64_t low,
                      int64_t items, int64_t b, int64_t stride) {
  const int64_t start = stride == 1 ? low : low / stride * stride + b, units = block.units, deep = block.deep;
  if (start >= items) return;
  const int64_t count_of_items = (items - start + stride - 1) / stride;
  ItemRow operand = row_of(r, use.operand);
  operand.p += start * operand.item, operand.item *= stride;
  const ItemRow delta{r.delta + start * width, width * stride, 1};
  if (operand.item || (operand.step != 1 && deep > 1)) {  // one after another, and not on as many pages
    for (int64_t i = 0; i < count_of_items; ++i) {
      const Row row{operand.p + i * operand.item, operand.step};
      COLUMNS_OF(deep) store(r.operand + i * deep + j, row.get(j, count), count);
    }
    operand = {r.operand, deep, 1};
  }
  if (block.along_units) return add_products(to, deep, operand, delta, units, count_of_items);
  if (deep >= W || units < W) return add_products(to, units, delta, operand, deep, count_of_items);
  __builtin_memset(r.turned, 0, units * deep * sizeof(real));  // vectors of units, turned at the end
  add_products(r.turned, deep, operand, delta, units, count_of_items);
  for (int64_t k = 0; k < deep; ++k) for (int64_t j = 0; j < units; ++j) to[j * deep + k] += r.turned[k * units + j];
}

// to += f ⊙ kept, f by unit
static void add_kept(const RowBlock& block, real* to, const real* f, const real* kept) {
  const int64_t outer = block.along_units ? block.deep : block.units, inner = block.along_units ? block.units : block.deep;
  for (int64_t i = 0; i < outer; ++i)
    if (!block.along_units) add_scaled(to + i * inner, kept + i * inner, f[i], inner);
    else COLUMNS_OF(inner) add_row(to + i * inner + j, load(f + j, count) * load(kept + i * inner + j, count), count);
}

// Calls `take(block, use, low)` for each use of a weight, when its δ is at hand.
template <class Take> INLINE void each_use(const RowChunk& r, const RowGroup& g, int64_t items, Take take) {
  int64_t at_hand = -1, low = items;
  for (const RowBlock* block = r.blocks + g.first_block; block < r.blocks + g.first_block + g.blocks; ++block)
    for (const RowUse* use = r.uses + block->first_use; use < r.uses + block->first_use + block->uses; ++use) {
      if (!use->factors) continue;
      if (use->first_factor != at_hand) low = row_delta(r, g, *use, items), at_hand = use->first_factor;
      take(*block, *use, low);
    }
}

// Calls `take(block)` for each block.
template <class Take> INLINE void each_block(const RowChunk& r, const RowGroup& g, Take take) {
  for (const RowBlock* block = r.blocks + g.first_block; block < r.blocks + g.first_block + g.blocks; ++block) take(*block);
}

static void row_gradient(const RowChunk& r, const RowGroup& g, int64_t items, const real* cotangents, bool fresh) {
  __builtin_memset(r.c, 0, g.roots * items * g.width * sizeof(real));
  for (const RowReadout* o = r.readouts + g.first_readout; o < r.readouts + g.first_readout + g.readouts; ++o)
    for (int64_t i = 0; i < items; ++i)
      add_scaled(r.c + (o->root * items + i) * g.width, cotangents + i * r.outputs + o->column, 1, g.width);
  row_adjoint(r, g, items, r.first, false);
  real *const gradient = r.regions[GRADIENT], *const kept = r.regions[KEPT];
  each_use(r, g, items, [&](const RowBlock& block, const RowUse& use, int64_t low) {
    add_block(r, block, use, g.width, gradient + block.gradient, low, items, 0, 1);
  });
  if (!fresh) each_block(r, g, [&](const RowBlock& block) {
    for (int64_t s = 0; s < g.carried; ++s)
      for (int64_t b = 0; b < r.batch; ++b)
        add_kept(block, gradient + block.gradient, r.first + (s * r.batch + b) * g.width, kept + b * r.kept_size + r.kept[block.first_kept + s]);
  });
}

static void row_influence(const RowChunk& r, const RowGroup& g, int64_t items, bool fresh) {  // to `next`
  for (int64_t s = 0; s < g.carried; ++s) {
    __builtin_memset(r.c, 0, g.roots * items * g.width * sizeof(real));
    real* const last = r.c + (s * items + items - r.batch) * g.width;
    for (int64_t j = 0; j < r.batch * g.width; ++j) last[j] = 1;
    row_adjoint(r, g, items, r.first, true);
    each_block(r, g, [&](const RowBlock& block) {
      const int64_t *const places = r.kept + block.first_kept, size = block.units * block.deep;
      for (int64_t b = 0; b < r.batch; ++b) {
        real* const to = r.next + b * r.kept_size + places[s];
        __builtin_memset(to, 0, size * sizeof(real));
        for (int64_t old = 0; !fresh && old < g.carried; ++old)
          add_kept(block, to, r.first + (old * r.batch + b) * g.width, r.regions[KEPT] + b * r.kept_size + places[old]);
      }
    });
    each_use(r, g, items, [&](const RowBlock& block, const RowUse& use, int64_t low) {
      for (int64_t b = 0; b < r.batch; ++b)
        add_block(r, block, use, g.width, r.next + b * r.kept_size + r.kept[block.first_kept + s], low, items, b, r.batch);
    });
  }
}

// Adds the gradient of Σ cotangents · outputs; with `goes_on`, advances the influence, which is zero if it is `fresh`.
extern "C" void row_chunk_backward(const RowChunk* given, int64_t items, const real* cotangents, int64_t fresh, int64_t goes_on) {
  const RowChunk& r = *given;
  for (const RowGroup* g = r.groups; g < r.groups + r.group_count; ++g) {
    row_gradient(r, *g, items, cotangents, fresh);
    if (goes_on) row_influence(r, *g, items, fresh);
  }
  if (goes_on) memcpy(r.regions[KEPT], r.next, r.batch * r.kept_size * sizeof(real));
  __builtin_memmove(r.regions[STATE], r.regions[STATE] + items * r.states, r.batch * r.states * sizeof(real));
}

// to (rows, width) = a (rows, deep) times b (deep, width), or is added to; of any strides from row to row.
extern "C" void sheet_product(real* to, int64_t to_ld, const real* a, int64_t a_ld, const real* b, int64_t b_ld,
                              int64_t rows, int64_t deep, int64_t width, int64_t adds) {
  constexpr int64_t some = 4 * W;  // columns: those of b stay in the first cache
  for (int64_t j = 0; j < width; j += some) {
    const int64_t now = width - j < some ? width - j : some;
    for (int64_t q = 0; q < rows && !adds; ++q) __builtin_memset(to + q * to_ld + j, 0, now * sizeof(real));
    const ItemRow columns{a, 1, a_ld}, part{b + j, b_ld, 1};
    if (now == some) add_rows<4, 4>(to + j, rows, to_ld, columns, part.p, b_ld, deep, W);
    else for (int64_t k = 0; k < now; k += W) add_rows<8, 1>(to + j + k, rows, to_ld, columns, part.p + k, b_ld, deep, left(now, k));
  }
}
