// A call that is made again and again: all of it is kept but a few words.

#include <stdint.h>

struct Kept {
  void (*run)(const int64_t* call);
  int64_t words, buffers;         // of the call and its buffers, and where these begin
  int64_t changes;                // words that are given each time
  int64_t source, target, bytes;  // afterwards so many bytes are copied from where one word points to where another does
};  // the places of the words that change follow, then all words

extern "C" void again(const Kept* kept, const int64_t* given) {
  const int64_t* const places = (const int64_t*)(kept + 1);
  int64_t* const call = (int64_t*)__builtin_alloca(kept->words * sizeof(int64_t));  // each thread has its own
  __builtin_memcpy(call, places + kept->changes, kept->words * sizeof(int64_t));
  call[0] = (int64_t)(call + kept->buffers);
  for (int64_t i = 0; i < kept->changes; ++i) call[places[i]] = given[i];
  kept->run(call);
  __builtin_memcpy((void*)call[kept->target], (const void*)call[kept->source], kept->bytes);
}
