// An interpreter for programs over rows and matrices: one step of a network, its derivatives, and its influence.
//
// A program is a list of 64-bit words: a code, then its arguments. An address is a region (upper bits) and an offset; each
// sequence has its own part of a region, or all share it. ELEMENTWISE_CASES is generated from the table of operations.

struct Memory {
  real* const* regions;
  const int64_t* strides;  // of each region, from sequence to sequence
  const int32_t* maps;
  int64_t sequence;
  real* at(int64_t address) const {
    const int64_t region = address >> 40;
    return regions[region] + sequence * strides[region] + (address & ((int64_t(1) << 40) - 1));
  }
};
struct Row {  // numbers with a stride: 0 repeats one number, 1 is a row, another a column or diagonal
  const real* p;
  int64_t step;
  real operator[](int64_t j) const { return p[j * step]; }
  vec get(int64_t j, int count) const {
    if (step == 1) return load(p + j, count);
    if (step == 0) return splat(*p);
    vec v = {};
    for (int i = 0; i < count; ++i) v[i] = p[(j + i) * step];
    return v;
  }
};
INLINE int left(int64_t width, int64_t j) { return width - j < W ? int(width - j) : W; }
#define COLUMNS_OF(width) for (int64_t j = 0; j < (width); j += W) if (const int count = left(width, j))
INLINE void add_row(real* to, vec v, int count) { store(to, load(to, count) + v, count); }
INLINE void add_scaled(real* to, const real* from, real factor, int64_t width) {
  const vec f = splat(factor);
  int64_t j = 0;
  for (; j + W <= width; j += W) *(loose*)(to + j) = *(const loose*)(to + j) + f * *(const loose*)(from + j);
  if (j < width) add_row(to + j, f * load(from + j, int(width - j)), int(width - j));
}
INLINE real dot(const real* a, const real* b, int64_t width) {
  vec s = {}, t = {};
  int64_t j = 0;
  for (; j + 2 * W <= width; j += 2 * W) {
    s += *(const loose*)(a + j) * *(const loose*)(b + j);
    t += *(const loose*)(a + j + W) * *(const loose*)(b + j + W);
  }
  for (; j < width; j += W) s += load(a + j, left(width, j)) * load(b + j, left(width, j));
  return horizontal_sum(s + t);
}

// ------------------------------------------------------------------------------------------ rows

#define UNROLLED _Pragma("GCC unroll 8")
template <int...> struct Indices {};
template <int n, int... rest> struct Upto : Upto<n - 1, n - 1, rest...> {};
template <int... all> struct Upto<0, all...> { typedef Indices<all...> type; };
template <int... i> INLINE vec neighbours(vec a, vec b, Indices<i...>) {  // sums of neighbours, of a and then of b
#ifdef __clang__
  return __builtin_shufflevector(a, b, (2 * i)...) + __builtin_shufflevector(a, b, (2 * i + 1)...);
#else
  return __builtin_shuffle(a, b, ivec{(2 * i)...}) + __builtin_shuffle(a, b, ivec{(2 * i + 1)...});
#endif
}
template <int n> INLINE vec group_sums(const vec* v) {  // each sum of n neighbours in n vectors, in order
  if constexpr (n == 1) return v[0];
  else {
    typename Upto<W>::type all;
    return neighbours(group_sums<n / 2>(v), group_sums<n / 2>(v + n / 2), all);
  }
}

// W rows of a matrix times v: their products are summed in vectors, one per row, and these together.
INLINE vec rows_times(const real* m, int64_t ld, const real* v, int64_t deep) {
  vec s[W];
  for (int q = 0; q < W; ++q) s[q] = vec{};
  int64_t k = 0;
  for (; k + W <= deep; k += W) {
    const vec u = *(const loose*)(v + k);
#pragma GCC unroll 16
    for (int q = 0; q < W; ++q) s[q] += u * *(const loose*)(m + q * ld + k);
  }
  if (k < deep) {
    const int count = int(deep - k);
    const vec u = load(v + k, count);
#pragma GCC unroll 16
    for (int q = 0; q < W; ++q) s[q] += u * load(m + q * ld + k, count);
  }
  return group_sums<W>(s);
}

template <int deep> INLINE void short_rows(real* y, const real* v, const real* m, int64_t wide) {  // several in a vector
  alignas(BYTES) real again[W];
  for (int q = 0; q < W; ++q) again[q] = v[q % deep];
  const vec u = *(const vec*)again;
  int64_t i = 0;
  for (; i + W <= wide; i += W) {
    vec s[deep];
#pragma GCC unroll 16
    for (int q = 0; q < deep; ++q) s[q] = u * *(const loose*)(m + i * deep + q * W);
    *(loose*)(y + i) = group_sums<deep>(s);
  }
  for (; i < wide; ++i) y[i] = dot(m + i * deep, v, deep);
}

// C vectors of columns of a matrix (deep, …), times v; `last` numbers of the last one. Even and odd depths apart: a sum
// that waits for the one before would take twice as long.
template <int C> INLINE void columns_times(real* y, const real* v, const real* m, int64_t ld, int64_t deep, int last) {
  vec even[C], odd[C];
  UNROLLED for (int c = 0; c < C; ++c) even[c] = odd[c] = vec{};
  int64_t k = 0;
  for (; k + 2 <= deep; k += 2, m += 2 * ld) {
    const vec f = splat(v[k]), g = splat(v[k + 1]);
    UNROLLED for (int c = 0; c < C; ++c) {
      even[c] += f * load(m + c * W, c + 1 < C ? W : last);
      odd[c] += g * load(m + ld + c * W, c + 1 < C ? W : last);
    }
  }
  if (k < deep) UNROLLED for (int c = 0; c < C; ++c) even[c] += splat(v[k]) * load(m + c * W, c + 1 < C ? W : last);
  UNROLLED for (int c = 0; c < C; ++c) store(y + c * W, even[c] + odd[c], c + 1 < C ? W : last);
}

static void product(real* y, const real* v, const real* m, int64_t ld, int64_t wide, int64_t deep, bool flipped) {
  if (flipped) {  // y = v M, M (deep, wide)
    int64_t j = 0;
    for (; j + 4 * W <= wide; j += 4 * W) columns_times<4>(y + j, v, m + j, ld, deep, W);
    for (; j < wide; j += W) columns_times<1>(y + j, v, m + j, ld, deep, left(wide, j));
    return;
  }
  if (ld == deep && deep < W) switch (deep) {
    case 1: return short_rows<1>(y, v, m, wide);
    case 2: return short_rows<2>(y, v, m, wide);
    case 4: if constexpr (W > 4) return short_rows<4>(y, v, m, wide); break;
    case 8: if constexpr (W > 8) return short_rows<8>(y, v, m, wide); break;
  }
  int64_t i = 0;
  for (; i + W <= wide; i += W) *(loose*)(y + i) = rows_times(m + i * ld, ld, v, deep);
  for (; i < wide; ++i) y[i] = dot(m + i * ld, v, deep);
}

static void gather(real* y, int64_t width, const int32_t* m, int64_t terms, Row a, const int32_t* n, Row b, bool largest) {
  for (int64_t j = 0; j < width; ++j) {
    real total = largest ? -__builtin_inf() : real(0);
    for (int64_t q = 0; q < terms; ++q) {
      const int32_t place = m[q * width + j];
      if (place < 0) continue;
      const real value = n ? a[place] * b[n[q * width + j]] : a[place];
      total = largest ? nan_max(total, value) : total + value;
    }
    y[j] = total;
  }
}

// ------------------------------------------------------------------------------------------ matrices of derivatives

// to (rows, deep) += from (rows, wide) M, with M (wide, deep), or its transpose
static void multiply(real* to, int64_t to_ld, const real* from, int64_t from_ld, int64_t rows, const real* m, int64_t ld,
                     int64_t wide, int64_t deep, bool flipped) {
  for (int64_t i = 0; i < rows; ++i) {
    if (flipped) for (int64_t c = 0; c < deep; ++c) to[i * to_ld + c] += dot(from + i * from_ld, m + c * ld, wide);
    else for (int64_t k = 0; k < wide; ++k)
      if (const real factor = from[i * from_ld + k]; factor != 0) add_scaled(to + i * to_ld, m + k * ld, factor, deep);
  }
}

static void scatter(real* to, int64_t to_ld, const real* from, int64_t from_ld, int64_t rows, int64_t width,
                    const int32_t* m, int64_t terms, const int32_t* n, Row b) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t q = 0; q < terms; ++q)
      for (int64_t j = 0; j < width; ++j) {
        const int32_t place = m[q * width + j];
        if (place < 0) continue;
        to[i * to_ld + place] += n ? from[i * from_ld + j] * b[n[q * width + j]] : from[i * from_ld + j];
      }
}

// ------------------------------------------------------------------------------------------ influence

constexpr int MOST = 16;  // states of a unit, and products that read one weight
struct Own {  // the influence of `units` × `deep` weights on the states of their own unit
  int64_t units, deep, along_units, olds, roots, terms, readouts, gradient_stride, read_stride;
  real* kept[MOST];                    // [old], and of the first roots the new
  Row jacobian[MOST + MOST][MOST];     // [root][old]; null where a state does not depend on another
  Row delta[MOST + MOST][MOST];        // [root][term]
  Row operand[MOST];                   // [term], by depth
  const real* read[MOST + MOST];       // [root] cotangents of the root: (readouts, units); null if it is not read out
  real* gradient;
};

#define UNITS(row) (by_unit ? (row).get(j, count) : splat((row)[i]))
struct NewOwn { vec kept[MOST], gradient; };
// The influence after the step of `count` weights from (i, j) on, of which `at` is the first; their gradient for readout q.
template <bool by_unit> INLINE void advance_own(const Own& o, int64_t i, int64_t j, int count, int64_t at, int64_t q, NewOwn& to) {
  vec old[MOST], term[MOST];
  for (int s = 0; s < o.olds; ++s) old[s] = load(o.kept[s] + at, count);
  for (int t = 0; t < o.terms; ++t) term[t] = by_unit ? splat(o.operand[t][i]) : o.operand[t].get(j, count);
  to.gradient = vec{};
  for (int r = 0; r < o.roots; ++r) {
    vec sum = {};
    for (int s = 0; s < o.olds; ++s) if (o.jacobian[r][s].p) sum += UNITS(o.jacobian[r][s]) * old[s];
    for (int t = 0; t < o.terms; ++t) if (o.delta[r][t].p) sum += UNITS(o.delta[r][t]) * term[t];
    if (r < o.olds) to.kept[r] = sum;
    if (o.read[r]) to.gradient += UNITS((Row{o.read[r] + q * o.read_stride, 1})) * sum;
  }
}
#undef UNITS

// by_unit: vectors run over units, else over depth. `give(at, gradient, count)` takes the gradient of each vector.
template <bool by_unit, class Give> INLINE void own_any(const Own& o, Give give) {
  const int64_t outer = by_unit ? o.deep : o.units, inner = by_unit ? o.units : o.deep;
  NewOwn now;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < inner; j += W) {
      const int count = left(inner, j);
      const int64_t at = i * inner + j;
      for (int64_t q = 1; q < o.readouts; ++q) {
        advance_own<by_unit>(o, i, j, count, at, q, now);
        store(o.gradient + q * o.gradient_stride + at, now.gradient, count);
      }
      advance_own<by_unit>(o, i, j, count, at, 0, now);
      for (int s = 0; s < o.olds; ++s) store(o.kept[s] + at, now.kept[s], count);
      give(at, now.gradient, count);
    }
}

template <class Give> INLINE void own_simple(const Own& o, Give give) {  // one state, one product, vectors over depth
  const Row d = o.delta[0][0], v = o.operand[0], jacobian = o.jacobian[0][0];
  const int64_t deep = o.deep;
  for (int64_t i = 0; i < o.units; ++i) {
    const vec keep = splat(jacobian.p ? jacobian[i] : real(0)), add = splat(d.p ? d[i] : real(0));
    const vec back = splat(o.read[0] ? o.read[0][i] : real(0));
    real* const p = o.kept[0] + i * o.deep;
    int64_t j = 0;
#pragma GCC unroll 4
    for (; j + W <= deep; j += W) {
      const vec x = v.step ? *(const loose*)(v.p + j) : splat(*v.p), sum = keep * *(const loose*)(p + j) + add * x;
      *(loose*)(p + j) = sum;
      give(i * o.deep + j, back * sum, W);
    }
    if (j < o.deep) {
      const int count = int(o.deep - j);
      const vec sum = keep * load(p + j, count) + add * v.get(j, count);
      store(p + j, sum, count);
      give(i * o.deep + j, back * sum, count);
    }
  }
}

template <int deep, int... i> INLINE vec repeated(vec v, int first, Indices<i...>) {  // each of some elements `deep` times
#ifdef __clang__
  vec found;
  for (int q = 0; q < W; ++q) found[q] = v[first + q / deep];
  return found;
#else
  return __builtin_shuffle(v, ivec{(i / deep)...} + whole(first));
#endif
}

template <int deep, class Give> INLINE void own_short(const Own& o, Give give) {  // the same, several units in a vector
  typename Upto<W>::type all;
  vec term = {};
  for (int q = 0; q < W; ++q) term[q] = o.operand[0][q % deep];
  real* const p = o.kept[0];
  COLUMNS_OF(o.units) {
    const vec none = {}, keep = o.jacobian[0][0].p ? o.jacobian[0][0].get(j, count) : none;
    const vec add = o.delta[0][0].p ? o.delta[0][0].get(j, count) : none, back = o.read[0] ? load(o.read[0] + j, count) : none;
    for (int part = 0; part < deep; ++part) {
      const int64_t at = j * deep + part * W;
      const int more = left(o.units * deep, at), first = part * (W / deep);
      if (more <= 0) break;
      const vec sum = repeated<deep>(keep, first, all) * load(p + at, more) + repeated<deep>(add, first, all) * term;
      store(p + at, sum, more);
      give(at, repeated<deep>(back, first, all) * sum, more);
    }
  }
}

template <class Give> INLINE void own_update(const Own& o, Give give) {
  const bool is_simple = o.olds == 1 && o.roots == 1 && o.terms == 1 && o.readouts == 1;
  if (is_simple && o.deep == 1) return own_short<1>(o, give);
  if (is_simple && !o.along_units) switch (o.deep) {
    case 2: return own_short<2>(o, give);
    case 4: if constexpr (W > 4) return own_short<4>(o, give); break;
    case 8: if constexpr (W > 8) return own_short<8>(o, give); break;
  }
  if (o.along_units) own_any<true>(o, give);
  else if (is_simple) own_simple(o, give);
  else own_any<false>(o, give);
}

struct Words { const int64_t* at; int64_t length; };

INLINE const int64_t* read_own(const Memory& m, const int64_t* at, Own& o) {  // the arguments of OWN; where they end
  auto next = [&] { return *at++; };
  auto address = [&]() -> real* { const int64_t a = *at++; return a < 0 ? nullptr : m.at(a); };
  auto row = [&]() -> Row { real* const p = address(); return {p, next()}; };
  o.units = next(), o.deep = next(), o.along_units = next(), o.olds = next(), o.roots = next(), o.terms = next();
  o.readouts = next();
  for (int s = 0; s < o.olds; ++s) o.kept[s] = address();
  for (int r = 0; r < o.roots; ++r) for (int s = 0; s < o.olds; ++s) o.jacobian[r][s] = row();
  for (int r = 0; r < o.roots; ++r) for (int t = 0; t < o.terms; ++t) o.delta[r][t] = row();
  for (int t = 0; t < o.terms; ++t) o.operand[t] = row();
  o.read_stride = next();
  for (int r = 0; r < o.roots; ++r) o.read[r] = address();
  o.gradient = address(), o.gradient_stride = next();
  return at;
}

static void own_gradient(const Own& o) {
  own_update(o, [&](int64_t at, vec g, int count) { store(o.gradient + at, g, count); });
}

// ------------------------------------------------------------------------------------------ the interpreter

struct Step { int64_t y, a, b, c; };  // from item to item

struct Element {  // an elementwise word for the item of a memory
  int64_t op, width, flags;
  double attr, attr2;
  real* y;
  Row a, b, c;
  Step step;
};

static void apply(const Element& e, int64_t first, int64_t items) {  // to some items from `first` on
  const int64_t width = e.width, flags = e.flags;
  const double attr = e.attr, attr2 = e.attr2;
  const Step step = e.step;
  real* y = e.y + first * step.y;
  Row a{e.a.p + first * step.a, e.a.step}, b_{e.b.p + first * step.b, e.b.step}, c_{e.c.p + first * step.c, e.c.step};
  (void)flags, (void)attr, (void)attr2;
#define ITEMS for (int64_t i = 0; i < items; ++i, y += step.y, a.p += step.a, b_.p += step.b, c_.p += step.c)
  switch (e.op) { ELEMENTWISE_CASES }
#undef ITEMS
}

static const int64_t* read_element(const Memory& m, const int64_t* at, Element& e) {  // its arguments; where they end
  auto next = [&] { return *at++; };
  auto address = [&](int64_t& step) -> real* { const int64_t a = *at++; step = a < 0 ? 0 : m.strides[a >> 40]; return a < 0 ? nullptr : m.at(a); };
  auto row = [&](int64_t& step) -> Row { real* const p = address(step); return {p, next()}; };
  e.op = next(), e.width = next();
  e.y = address(e.step.y);
  e.a = row(e.step.a), e.b = row(e.step.b), e.c = row(e.step.c);
  memcpy(&e.attr, at++, 8), memcpy(&e.attr2, at++, 8);
  e.flags = next();
  return at;
}

static const int64_t* elementwise(const Memory& m, const int64_t* at, int64_t items) {
  Element e;
  at = read_element(m, at, e);
  apply(e, 0, items);
  return at;
}

static void run_one(const int64_t* program, int64_t length, const Memory m) {  // for one sequence
  const int32_t* const maps = m.maps;
  const int64_t* at = program;
  const int64_t* const end = program + length;
  auto next = [&] { return *at++; };
  auto address = [&]() -> real* { const int64_t a = *at++; return a < 0 ? nullptr : m.at(a); };
  auto row = [&]() -> Row { real* const p = address(); return {p, next()}; };
  auto map = [&]() -> const int32_t* { const int64_t a = *at++; return a < 0 ? nullptr : maps + a; };
  while (at < end) {
    const int64_t code = next();
    switch (code) {
      case ELEMENTWISE: at = elementwise(m, at, 1); break;
      case COPY: { const int64_t width = next(); real* const y = address(); const Row a = row();
        COLUMNS_OF(width) store(y + j, a.get(j, count), count); break; }
      case PRODUCT: { real* const y = address(); const real* v = address(); const real* w = address();
        const int64_t ld = next(), wide = next(), deep = next(); product(y, v, w, ld, wide, deep, next()); break; }
      case ROWSUM: { const int64_t width = next(); real* const y = address(); const Row a = row();
        vec s = {}; COLUMNS_OF(width) s += zero_tail(a.get(j, count), count);
        *y = horizontal_sum(s); break; }
      case ROWMAX: { const int64_t width = next(); real* const y = address(); const Row a = row();
        real most = a[0]; for (int64_t j = 1; j < width; ++j) most = nan_max(most, a[j]); *y = most; break; }
      case GATHER: { const int64_t width = next(); real* const y = address(); const int32_t* mm = map();
        const int64_t terms = next(); const Row a = row(); const int32_t* nn = map(); const Row c = row();
        gather(y, width, mm, terms, a, nn, c, next()); break; }
      case ZERO: { const int64_t width = next(); real* const y = address();
        COLUMNS_OF(width) store(y + j, vec{}, count); break; }
      case ADD_DIAGONAL: { const int64_t width = next(); real* const y = address(); const int64_t step = next();
        const Row d = row(); for (int64_t j = 0; j < width; ++j) y[j * step] += d[j]; break; }
      case ADD_PRODUCT: { const int64_t width = next(); real* const y = address(); const Row a = row(), c = row();
        COLUMNS_OF(width) add_row(y + j, a.get(j, count) * c.get(j, count), count); break; }
      case SCALE_ROWS: { const int64_t rows = next(), width = next(); real* const y = address(); const int64_t ld = next();
        const Row d = row(); const real* w = address(); const int64_t w_ld = next(); const bool flipped = next();
        for (int64_t i = 0; i < rows; ++i) {
          if (!flipped) add_scaled(y + i * ld, w + i * w_ld, d[i], width);
          else for (int64_t k = 0; k < width; ++k) y[i * ld + k] += d[i] * w[k * w_ld + i];
        }
        break; }
      case MULTIPLY: { real* const y = address(); const int64_t ld = next(); const real* a = address();
        const int64_t a_ld = next(), rows = next(); const real* w = address();
        const int64_t w_ld = next(), wide = next(), deep = next(); multiply(y, ld, a, a_ld, rows, w, w_ld, wide, deep, next());
        break; }
      case ADD_SCALED_COLUMNS: { real* const y = address(); const int64_t ld = next(); const real* a = address();
        const int64_t a_ld = next(), rows = next(), width = next(); const Row d = row();
        for (int64_t i = 0; i < rows; ++i)
          COLUMNS_OF(width) add_row(y + i * ld + j, load(a + i * a_ld + j, count) * d.get(j, count), count);
        break; }
      case SUM_SCALED_COLUMNS: { real* const y = address(); const int64_t ld = next(); const real* a = address();
        const int64_t a_ld = next(), rows = next(), width = next(); const Row d = row();
        for (int64_t i = 0; i < rows; ++i) {
          real total = 0;
          for (int64_t j = 0; j < width; ++j) total += a[i * a_ld + j] * d[j];
          y[i * ld] += total;
        }
        break; }
      case SPREAD_COLUMN: { real* const y = address(); const int64_t ld = next(); const real* a = address();
        const int64_t a_ld = next(), rows = next(), width = next();
        for (int64_t i = 0; i < rows; ++i) for (int64_t j = 0; j < width; ++j) y[i * ld + j] += a[i * a_ld];
        break; }
      case SCATTER: { real* const y = address(); const int64_t ld = next(); const real* a = address();
        const int64_t a_ld = next(), rows = next(), width = next(); const int32_t* mm = map(); const int64_t terms = next();
        const int32_t* nn = map(); scatter(y, ld, a, a_ld, rows, width, mm, terms, nn, row()); break; }
      case BACK_DIAGONAL: {  // y (readouts, width) += g (readouts, width) ⊙ d
        const int64_t readouts = next(), width = next(); real* const y = address(); const int64_t ld = next();
        const real* g = address(); const int64_t g_ld = next(); const Row d = row();
        for (int64_t q = 0; q < readouts; ++q)
          COLUMNS_OF(width) add_row(y + q * ld + j, load(g + q * g_ld + j, count) * d.get(j, count), count);
        break; }
      case BACK_MATRIX: {  // y (readouts, width) += g (readouts, rows) a (rows, width)
        const int64_t readouts = next(), rows = next(), width = next(); real* const y = address(); const int64_t ld = next();
        const real* g = address(); const int64_t g_ld = next(); const real* a = address(); const int64_t a_ld = next();
        for (int64_t q = 0; q < readouts; ++q)
          for (int64_t i = 0; i < rows; ++i) add_scaled(y + q * ld, a + i * a_ld, g[q * g_ld + i], width);
        break; }
      case OWN: {
        Own o;
        at = read_own(m, at, o);
        own_gradient(o);
        break;
      }
      case KEEP_ROWS: {  // to[i] += d[i] from[i], rows of the influence
        const int64_t rows = next(), width = next(); real* const to = address(); const int64_t to_ld = next();
        const real* from = address(); const int64_t from_ld = next(); const Row d = row();
        for (int64_t i = 0; i < rows; ++i) if (d[i] != 0) add_scaled(to + i * to_ld, from + i * from_ld, d[i], width);
        break; }
      case OUTER: {  // to[unit j, (j, k)] += d[j] v[k]: immediate influence on the own unit
        const int64_t units = next(), deep = next(), along_units = next(); real* const to = address();
        const int64_t ld = next(); const Row d = row(), v = row();
        for (int64_t j = 0; j < units; ++j)
          for (int64_t k = 0; k < deep; ++k) to[j * ld + (along_units ? k * units + j : j * deep + k)] += d[j] * v[k];
        break; }
      case OUTER_MATRIX: {  // to[i, (j, k)] += a[i, j] v[k]
        const int64_t rows = next(), units = next(), deep = next(), along_units = next(); real* const to = address();
        const int64_t ld = next(); const real* a = address(); const int64_t a_ld = next(); const Row v = row();
        for (int64_t i = 0; i < rows; ++i) {
          real* const y = to + i * ld;
          const real* const f = a + i * a_ld;
          if (along_units) for (int64_t k = 0; k < deep; ++k) add_scaled(y + k * units, f, v[k], units);
          else for (int64_t j = 0; j < units; ++j) {
            const vec s = splat(f[j]);
            for (int64_t k = 0; k < deep; k += W) add_row(y + j * deep + k, s * v.get(k, left(deep, k)), left(deep, k));
          }
        }
        break; }
      case FROM_OWN: {  // to[i, (j, k)] += a[i, j] own[j, k]: the influence on other units of what a unit keeps
        const int64_t rows = next(), units = next(), deep = next(), along_units = next(); real* const to = address();
        const int64_t ld = next(); const real* a = address(); const int64_t a_ld = next(); const real* own = address();
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t k = 0; k < (along_units ? deep : units); ++k) {
            if (!along_units) add_scaled(to + i * ld + k * deep, own + k * deep, a[i * a_ld + k], deep);
            else COLUMNS_OF(units) add_row(to + i * ld + k * units + j,
                                           load(a + i * a_ld + j, count) * load(own + k * units + j, count), count);
          }
        break; }
      case FROM_SHEET: {  // own[j, k] += Σ_i a[j, i] from[i, (j, k)], after the update of what is kept; and its gradient
        const int64_t rows = next(), units = next(), deep = next(), along_units = next(); real* const own = address();
        const real* a = address(); const int64_t a_ld = next(); const real* from = address(); const int64_t ld = next();
        const int64_t readouts = next(); const real* read = address(); const int64_t read_ld = next();
        real* const gradient = address(); const int64_t gradient_ld = next();
        for (int64_t j = 0; j < units; ++j)
          for (int64_t k = 0; k < deep; ++k) {
            const int64_t here = along_units ? k * units + j : j * deep + k;
            real sum = 0;
            for (int64_t i = 0; i < rows; ++i) sum += a[j * a_ld + i] * from[i * ld + here];
            if (own) own[here] += sum;
            for (int64_t q = 0; read && q < readouts; ++q) gradient[q * gradient_ld + here] += read[q * read_ld + j] * sum;
          }
        break; }
      default: return;
    }
  }
}

extern "C" void run(const int64_t* program, int64_t length, real* const* regions, const int64_t* strides,
                    const int32_t* maps, int64_t sequences) {
  for (int64_t b = 0; b < sequences; ++b) run_one(program, length, Memory{regions, strides, maps, b});
}
