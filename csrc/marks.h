/* Marks of a range of memory (plugin/memory/allocation.py): a number that changes when the range gets other memory, and one that
   changes when its host copy does. What was noted with `place` and `value` stands while they are the same; `valued`: whether what
   the memory holds matters. */
static int marks_stand(const uint64_t *noted, uint64_t place, uint64_t value, int valued) {
  const volatile uint64_t *marks = noted; /* another thread may write them */
  return marks[0] == place && (!valued || marks[1] == value);
}
