// KF-RTRL: the influence of the weights that are multiplied by one row v is kept as u ⊗ A, beside each sequence. The step
// leaves ∂s'/∂s and ∂s'/∂(products). Structures are filled by kronecker_loop.py; every field has eight bytes.

struct FactorRow { int64_t root, address, step; };  // ∂(root)/∂(product), unit by unit
struct FactorUse {
  int64_t units, along_units, gradient, column;  // its place in the gradient, and among the columns of A
  int64_t matrix, low, high;  // address of ∂(roots low … high)/∂(product), or NOWHERE
  int64_t first_row, row_count;
};
struct FactorGroup { int64_t operand, operand_step, deep, width, operand_at, factor_at, first_use, use_count; };
struct Kronecker {
  int64_t states, roots, weights, jacobian, operand_size, factor_size, group_count;
  const FactorGroup* groups;
  const FactorUse* uses;
  const FactorRow* rows;
  int64_t readout_count;
  const int64_t *readout_column, *readout_root, *readout_width;
  real* work;  // roots + states + widest + states × widest
  int64_t widest;
  const real* signs;  // (steps, groups, 2, batch)
  real *state_part, *weight_part;  // A of all groups, (batch, factor_size); u, (batch, operand_size)
  real* gradient;  // (weights)
};

// to (rows, width) = a (rows, inner) b (inner, width)
static void multiply_into(real* to, const real* a, int64_t rows, int64_t inner, const real* b, int64_t width) {
  for (int64_t i = 0; i < rows; i += 4) {
    const real* v[4];
    for (int64_t q = 0; q < 4; ++q) v[q] = a + (i + q < rows ? i + q : i) * inner;
    COLUMNS_OF(width) {
      vec s0 = {}, s1 = {}, s2 = {}, s3 = {};
      for (int64_t k = 0; k < inner; ++k) {
        const vec from = load(b + k * width + j, count);
        s0 += v[0][k] * from, s1 += v[1][k] * from, s2 += v[2][k] * from, s3 += v[3][k] * from;
      }
      const vec s[4] = {s0, s1, s2, s3};
      for (int64_t q = 0; q < 4 && i + q < rows; ++q) store(to + (i + q) * width + j, s[q], count);
    }
  }
}

static void add_weights(real* to, const real* d, int64_t units, Row v, int64_t deep, bool along_units) {
  if (along_units) for (int64_t k = 0; k < deep; ++k) add_scaled(to + k * units, d, v[k], units);
  else for (int64_t i = 0; i < units; ++i)
    COLUMNS_OF(deep) add_row(to + i * deep + j, d[i] * v.get(j, count), count);
}

struct KroneckerStep {  // of one sequence
  const Kronecker& e;
  const Memory& m;
  const real* jacobian;
  real *roots, *state, *delta, *forward;

  KroneckerStep(const Kronecker& e, const Memory& m) : e(e), m(m), jacobian(m.at(e.jacobian)) {
    roots = e.work, state = roots + e.roots, delta = state + e.states, forward = delta + e.widest;
  }

  void pull(const real* cotangent) {  // to all roots and to the old state
    __builtin_memset(roots, 0, (e.roots + e.states) * sizeof(real));
    for (int64_t r = 0; r < e.readout_count; ++r)
      for (int64_t j = 0; j < e.readout_width[r]; ++j) roots[e.readout_root[r] + j] += cotangent[e.readout_column[r] + j];
    for (int64_t r = 0; r < e.roots; ++r) add_scaled(state, jacobian + r * e.states, roots[r], e.states);
  }

  void add_gradient(const FactorGroup& g, const real* u, const real* factor, Row v) {
    for (int64_t n = g.first_use; n < g.first_use + g.use_count; ++n) {
      const FactorUse& use = e.uses[n];
      __builtin_memset(delta, 0, use.units * sizeof(real));
      for (int64_t i = 0; i < e.states; ++i) add_scaled(delta, factor + i * g.width + use.column, state[i], use.units);
      add_weights(e.gradient + use.gradient, delta, use.units, {u, 1}, g.deep, use.along_units);
      __builtin_memset(delta, 0, use.units * sizeof(real));
      for (int64_t r = use.first_row; r < use.first_row + use.row_count; ++r) {
        const Row row{m.at(e.rows[r].address), e.rows[r].step};
        COLUMNS_OF(use.units) add_row(delta + j, load(roots + e.rows[r].root + j, count) * row.get(j, count), count);
      }
      for (int64_t i = use.low; i < use.high; ++i)
        add_scaled(delta, m.at(use.matrix) + (i - use.low) * use.units, roots[i], use.units);
      add_weights(e.gradient + use.gradient, delta, use.units, v, g.deep, use.along_units);
    }
  }

  double squares_of_delta(const FactorGroup& g) {  // of ∂s'/∂(products): rows of outputs that are no state do not count
    double total = 0;
    for (int64_t n = g.first_use; n < g.first_use + g.use_count; ++n) {
      const FactorUse& use = e.uses[n];
      for (int64_t r = use.first_row; r < use.first_row + use.row_count; ++r)
        if (e.rows[r].root < e.states) total += double(squares({m.at(e.rows[r].address), e.rows[r].step}, use.units));
      const int64_t count = (use.high < e.states ? use.high : e.states) - use.low;
      if (count > 0) total += double(squares({m.at(use.matrix), 1}, count * use.units));
    }
    return total;
  }

  // u ← p₁ c₁ u + p₂ c₂ v, A ← c₁ (∂s'/∂s) A / p₁ + c₂ δ / p₂
  void advance(const FactorGroup& g, real* u, real* factor, Row v, real sign, real other) {
    multiply_into(forward, jacobian, e.states, e.states, factor, g.width);
    const real size = norm(forward, e.states * g.width), immediate = real(__builtin_sqrt(squares_of_delta(g))) + TINY;
    const real keep = real(__builtin_sqrt(double(size / norm(u, g.deep))));
    const real add = real(__builtin_sqrt(double(immediate / (real(__builtin_sqrt(double(squares(v, g.deep)))) + TINY))));
    COLUMNS_OF(g.deep) store(u + j, sign * keep * load(u + j, count) + other * add * v.get(j, count), count);
    const real old = sign / keep, now = other / add;
    COLUMNS_OF(e.states * g.width) store(factor + j, old * load(forward + j, count), count);
    for (int64_t n = g.first_use; n < g.first_use + g.use_count; ++n) {
      const FactorUse& use = e.uses[n];
      for (int64_t r = use.first_row; r < use.first_row + use.row_count; ++r) {
        const FactorRow& own = e.rows[r];
        const Row row{m.at(own.address), own.step};
        real* const to = factor + own.root * g.width + use.column;
        for (int64_t j = 0; j < use.units && own.root < e.states; ++j) to[j * (g.width + 1)] += now * row[j];
      }
      for (int64_t i = use.low; i < use.high && i < e.states; ++i)
        add_scaled(factor + i * g.width + use.column, m.at(use.matrix) + (i - use.low) * use.units, now, use.units);
    }
  }
};

// One step of one sequence: the gradient takes what the factors were before. `signs` (groups, 2, batch) from its own on.
static void kronecker(const Kronecker& e, const Memory& m, const real* cotangent, const real* signs, int64_t batch, bool losses) {
  KroneckerStep step(e, m);
  if (losses) step.pull(cotangent);
  for (int64_t n = 0; n < e.group_count; ++n) {
    const FactorGroup& g = e.groups[n];
    real* const u = e.weight_part + m.sequence * e.operand_size + g.operand_at;
    real* const factor = e.state_part + m.sequence * e.factor_size + g.factor_at;
    const Row v{m.at(g.operand), g.operand_step};
    if (losses) step.add_gradient(g, u, factor, v);
    step.advance(g, u, factor, v, signs[2 * n * batch], signs[(2 * n + 1) * batch]);
  }
}
