// A prebuilt argument block for a C call; only pointers are patched per call.

#include <stdint.h>

struct Relocation {
  int64_t word, argument, offset;  // call[word] = arguments[argument] + offset; argument -1: the block itself
};

struct Copy {
  int64_t target, to, source, from, bytes;  // between arguments, at byte offsets; source -1: zeros
};

struct CallTemplate {
  void (*run)(const int64_t* call);
  int64_t words, rest;  // of the block; the index of its tables, to which the first word points
  int64_t relocations, before, after;  // counts; copies before and after the call
};  // followed by the relocations, the copies and the words

static void copy(const Copy* copies, int64_t count, const int64_t* arguments) {
  for (const Copy* c = copies; c < copies + count; ++c) {
    void* const target = (void*)(arguments[c->target] + c->to);
    if (c->source < 0) __builtin_memset(target, 0, c->bytes);
    else __builtin_memcpy(target, (const void*)(arguments[c->source] + c->from), c->bytes);
  }
}

extern "C" void run_template(const CallTemplate* call_template, const int64_t* arguments) {
  const Relocation* const relocations = (const Relocation*)(call_template + 1);
  const Copy* const copies = (const Copy*)(relocations + call_template->relocations);
  const int64_t count = call_template->before + call_template->after;
  int64_t* const call = (int64_t*)__builtin_alloca(call_template->words * sizeof(int64_t));  // on the stack: thread-safe
  __builtin_memcpy(call, copies + count, call_template->words * sizeof(int64_t));
  call[0] = (int64_t)(call + call_template->rest);
  for (const Relocation* p = relocations; p < relocations + call_template->relocations; ++p)
    call[p->word] = (p->argument < 0 ? (int64_t)call : arguments[p->argument]) + p->offset;
  copy(copies, call_template->before, arguments);
  call_template->run(call);
  copy(copies + call_template->before, call_template->after, arguments);
}
