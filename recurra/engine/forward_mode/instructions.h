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

static void product(real* y, const real* v, const real* m, int64_t ld, int64_t wide, int64_t deep, bool flipped) {
  if (flipped) {  // y = v M, M (deep, wide)
    COLUMNS_OF(wide) store(y + j, vec{}, count);
    for (int64_t k = 0; k < deep; ++k) add_scaled(y, m + k * ld, v[k], wide);
    return;
  }
  int64_t i = 0;
  for (; i + 4 <= wide; i += 4) {
    const real* r = m + i * ld;
    vec s0 = {}, s1 = {}, s2 = {}, s3 = {};
    int64_t k = 0;
    for (; k + W <= deep; k += W) {
      const vec u = *(const loose*)(v + k);
      s0 += u * *(const loose*)(r + k), s1 += u * *(const loose*)(r + ld + k);
      s2 += u * *(const loose*)(r + 2 * ld + k), s3 += u * *(const loose*)(r + 3 * ld + k);
    }
    if (k < deep) {
      const int c = int(deep - k);
      const vec u = load(v + k, c);
      s0 += u * load(r + k, c), s1 += u * load(r + ld + k, c);
      s2 += u * load(r + 2 * ld + k, c), s3 += u * load(r + 3 * ld + k, c);
    }
    y[i] = horizontal_sum(s0), y[i + 1] = horizontal_sum(s1), y[i + 2] = horizontal_sum(s2), y[i + 3] = horizontal_sum(s3);
  }
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

template <bool by_unit> INLINE void own_update(const Own& o) {  // by_unit: vectors run over units, else over depth
  const int64_t outer = by_unit ? o.deep : o.units, inner = by_unit ? o.units : o.deep;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < inner; j += W) {
      const int count = left(inner, j);
      const int64_t here = i * inner + j;
      vec old[MOST], term[MOST];
      for (int s = 0; s < o.olds; ++s) old[s] = load(o.kept[s] + here, count);
      for (int t = 0; t < o.terms; ++t) term[t] = by_unit ? splat(o.operand[t][i]) : o.operand[t].get(j, count);
      for (int64_t q = 0; q < o.readouts; ++q) store(o.gradient + q * o.gradient_stride + here, vec{}, count);
#define UNITS(row) (by_unit ? (row).get(j, count) : splat((row)[i]))
      for (int r = 0; r < o.roots; ++r) {
        vec sum = {};
        for (int s = 0; s < o.olds; ++s) if (o.jacobian[r][s].p) sum += UNITS(o.jacobian[r][s]) * old[s];
        for (int t = 0; t < o.terms; ++t) if (o.delta[r][t].p) sum += UNITS(o.delta[r][t]) * term[t];
        if (r < o.olds) store(o.kept[r] + here, sum, count);
        if (!o.read[r]) continue;
        for (int64_t q = 0; q < o.readouts; ++q)
          add_row(o.gradient + q * o.gradient_stride + here, UNITS((Row{o.read[r] + q * o.read_stride, 1})) * sum, count);
      }
    }
}

static void own_simple(const Own& o) {  // one state, one product, one readout row, vectors over depth
  const Row d = o.delta[0][0], v = o.operand[0], jacobian = o.jacobian[0][0];
  for (int64_t i = 0; i < o.units; ++i) {
    const vec keep = splat(jacobian.p ? jacobian[i] : real(0)), add = splat(d.p ? d[i] : real(0));
    const vec back = splat(o.read[0] ? o.read[0][i] : real(0));
    real *p = o.kept[0] + i * o.deep, *to = o.gradient + i * o.deep;
    int64_t j = 0;
    for (; j + W <= o.deep; j += W) {
      const vec x = v.step ? *(const loose*)(v.p + j) : splat(*v.p), sum = keep * *(const loose*)(p + j) + add * x;
      *(loose*)(p + j) = sum;
      *(loose*)(to + j) = back * sum;
    }
    if (j < o.deep) {
      const int count = int(o.deep - j);
      const vec sum = keep * load(p + j, count) + add * v.get(j, count);
      store(p + j, sum, count);
      store(to + j, back * sum, count);
    }
  }
}

// ------------------------------------------------------------------------------------------ the interpreter

extern "C" void run(const int64_t* program, int64_t length, real* const* regions, const int64_t* strides,
                    const int32_t* maps, int64_t sequences) {
  for (int64_t b = 0; b < sequences; ++b) {
    const Memory m{regions, strides, maps, b};
    const int64_t* at = program;
    const int64_t* const end = program + length;
    auto next = [&] { return *at++; };
    auto address = [&]() -> real* { const int64_t a = *at++; return a < 0 ? nullptr : m.at(a); };
    auto row = [&]() -> Row { real* const p = address(); return {p, next()}; };
    auto map = [&]() -> const int32_t* { const int64_t a = *at++; return a < 0 ? nullptr : maps + a; };
    while (at < end) {
      const int64_t code = next();
      switch (code) {
        case ELEMENTWISE: {
          const int64_t op = next(), width = next();
          real* const y = address();
          const Row a = row(), b_ = row(), c_ = row();
          double attr, attr2;
          memcpy(&attr, at++, 8), memcpy(&attr2, at++, 8);
          const int64_t flags = next();
          (void)flags, (void)attr, (void)attr2, (void)b_, (void)c_;
          switch (op) { ELEMENTWISE_CASES }
          break;
        }
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
          o.units = next(), o.deep = next(), o.along_units = next(), o.olds = next(), o.roots = next(), o.terms = next();
          o.readouts = next();
          for (int s = 0; s < o.olds; ++s) o.kept[s] = address();
          for (int r = 0; r < o.roots; ++r) for (int s = 0; s < o.olds; ++s) o.jacobian[r][s] = row();
          for (int r = 0; r < o.roots; ++r) for (int t = 0; t < o.terms; ++t) o.delta[r][t] = row();
          for (int t = 0; t < o.terms; ++t) o.operand[t] = row();
          o.read_stride = next();
          for (int r = 0; r < o.roots; ++r) o.read[r] = address();
          o.gradient = address(), o.gradient_stride = next();
          if (o.along_units) own_update<true>(o);
          else if (o.olds == 1 && o.roots == 1 && o.terms == 1 && o.readouts == 1) own_simple(o);
          else own_update<false>(o);
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
}
