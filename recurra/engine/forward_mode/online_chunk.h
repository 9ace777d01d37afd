// The gradient of one step in a stream whose weights change after every step, where whole layers mix.
//
// The influence is that before a chunk of steps. From the cotangents of the newest outputs, one recursion back through the
// chunk gives those of all its products and of its first state: the gradient is Σ δ ⊗ v over the chunk, plus the first
// cotangent times the influence. A step costs (steps so far + n) p multiply-adds instead of n² p.
// Derivatives of a step are those that its weights had then; every field has eight bytes.

struct Items { const real* p; int64_t item, step; };  // a row in all steps and sequences
struct DeltaRow { int64_t root; Items row; };
struct Delta {  // from cotangents of the roots to that of a product
  int64_t width, first_row, row_count;
  const real* matrix;  // (high - low, width) of each item, or null
  int64_t matrix_item, low, high, first_use, use_count;
};
struct Operand { Items row; int64_t units, deep, along_units, at; };  // δ ⊗ row goes to gradient + at
struct Kept { const real* p; int64_t sequence, root, units, deep, along_units, at; };  // influence on the own unit
struct SheetRows { const real* p; int64_t sequence, columns, rows; const int64_t* places; int64_t at; };
struct Chunk {
  int64_t roots, states, scratch_size;
  real *scratch, *x, *state, *gradient;
  int64_t gradient_size;
  const real* jacobian;  // (roots, states) of each item
  int64_t jacobian_item;
  real *cotangents, *first, *delta, *row;  // (items, roots), (batch, states), (items, widest), (items, widest)
  int64_t widest;
  const Delta* deltas;
  int64_t delta_count;
  const DeltaRow* rows;
  const Operand* operands;
  const Kept* kept;
  int64_t kept_count;
  const SheetRows* sheets;
  int64_t sheet_count, readout_count;
  const int64_t *readout_column, *readout_root, *readout_width;
};

// to (rows, width) += Σ over items of outer ⊗ inner
static void add_outer(real* to, Items outer, int64_t rows, const real* inner, int64_t inner_item, int64_t width, int64_t items) {
  for (int64_t i = 0; i < items; i += 4) {
    const int64_t more = items - i < 4 ? items - i : 4;
    const real *v[4], *d[4];
    for (int64_t q = 0; q < 4; ++q) {
      const int64_t own = q < more ? i + q : i;
      v[q] = inner + own * inner_item, d[q] = outer.p + own * outer.item;
    }
    for (int64_t r = 0; r < rows; ++r) {
      real f[4];
      for (int64_t q = 0; q < 4; ++q) f[q] = q < more ? d[q][r * outer.step] : real(0);
      real* const y = to + r * width;
      COLUMNS_OF(width) {
        vec sum = load(y + j, count) + f[0] * load(v[0] + j, count);
        if (more > 1) sum += f[1] * load(v[1] + j, count);
        if (more > 2) sum += f[2] * load(v[2] + j, count);
        if (more > 3) sum += f[3] * load(v[3] + j, count);
        store(y + j, sum, count);
      }
    }
  }
}

static void deltas_of(const Chunk& c, const Delta& d, int64_t items) {
  for (int64_t i = 0; i < items; ++i) {
    real* const to = c.delta + i * c.widest;
    const real* const from = c.cotangents + i * c.roots;
    COLUMNS_OF(d.width) store(to + j, vec{}, count);
    for (int64_t r = d.first_row; r < d.first_row + d.row_count; ++r) {
      const Row row{c.rows[r].row.p + i * c.rows[r].row.item, c.rows[r].row.step};
      const real* const own = from + c.rows[r].root;
      COLUMNS_OF(d.width) add_row(to + j, load(own + j, count) * row.get(j, count), count);
    }
    if (!d.matrix) continue;
    const real* const matrix = d.matrix + i * d.matrix_item;
    for (int64_t r = d.low; r < d.high; ++r)
      if (from[r] != 0) add_scaled(to, matrix + (r - d.low) * d.width, from[r], d.width);
  }
}

static void add_operand(const Chunk& c, const Operand& o, int64_t items) {
  real* const to = c.gradient + o.at;
  const Items delta{c.delta, c.widest, 1};
  if (o.along_units) return add_outer(to, o.row, o.deep, delta.p, delta.item, o.units, items);
  if (o.row.step == 1) return add_outer(to, delta, o.units, o.row.p, o.row.item, o.deep, items);
  for (int64_t i = 0; i < items; ++i)
    for (int64_t k = 0; k < o.deep; ++k) c.row[i * c.widest + k] = o.row.p[i * o.row.item + k * o.row.step];
  add_outer(to, delta, o.units, c.row, c.widest, o.deep, items);
}

static void add_influence(const Chunk& c, int64_t batch) {  // of what was before the chunk
  for (int64_t b = 0; b < batch; ++b) {
    const real* const first = c.first + b * c.states;
    for (int64_t s = 0; s < c.sheet_count; ++s) {
      const SheetRows& sheet = c.sheets[s];
      const real* const from = sheet.p + b * sheet.sequence;
      real* const to = c.gradient + sheet.at;
      for (int64_t r = 0; r < sheet.rows; r += 4) {
        const real* v[4];
        real f[4];
        for (int64_t q = 0; q < 4; ++q) {
          const bool here = r + q < sheet.rows;
          v[q] = from + (here ? r + q : r) * sheet.columns, f[q] = here ? first[sheet.places[r + q]] : real(0);
        }
        COLUMNS_OF(sheet.columns)
          add_row(to + j, (f[0] * load(v[0] + j, count) + f[1] * load(v[1] + j, count)) +
                              (f[2] * load(v[2] + j, count) + f[3] * load(v[3] + j, count)), count);
      }
    }
    for (int64_t k = 0; k < c.kept_count; ++k) {
      const Kept& own = c.kept[k];
      const real *const from = own.p + b * own.sequence, *const f = first + own.root;
      real* const to = c.gradient + own.at;
      for (int64_t i = 0; i < (own.along_units ? own.deep : own.units); ++i)
        if (!own.along_units) add_scaled(to + i * own.deep, from + i * own.deep, f[i], own.deep);
        else COLUMNS_OF(own.units)
          add_row(to + i * own.units + j, load(from + i * own.units + j, count) * load(f + j, count), count);
    }
  }
}

// The gradient of Σ cotangent · outputs of the newest of `steps` steps, summed over sequences. `fresh`: no influence yet.
static void chunk_gradient(const Chunk& c, int64_t steps, int64_t batch, const real* cotangent, int64_t sequence, bool fresh) {
  const int64_t items = steps * batch;
  __builtin_memset(c.cotangents, 0, items * c.roots * sizeof(real));
  __builtin_memset(c.first, 0, batch * c.states * sizeof(real));
  __builtin_memset(c.gradient, 0, c.gradient_size * sizeof(real));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t r = 0; r < c.readout_count; ++r)
      for (int64_t j = 0; j < c.readout_width[r]; ++j)
        c.cotangents[(items - batch + b) * c.roots + c.readout_root[r] + j] += cotangent[b * sequence + c.readout_column[r] + j];
  adjoint_matrices(steps, batch, c.roots, c.states, c.jacobian, c.jacobian_item, c.cotangents, c.first);
  for (int64_t d = 0; d < c.delta_count; ++d) {
    deltas_of(c, c.deltas[d], items);
    for (int64_t u = c.deltas[d].first_use; u < c.deltas[d].first_use + c.deltas[d].use_count; ++u)
      add_operand(c, c.operands[u], items);
  }
  if (!fresh) add_influence(c, batch);
}
