// Shared by the attention kernels: the keys that a workgroup processes, and the conversion of sums over keys to results.
//
// Rows are $steps queries of one head after those of another. Query i stands at position start + i among the keys. BANDED: it
// sees the keys from $left before its position to $right after it. In any case it sees only keys before the end of its sequence.
// Positions and ends may be data.
#default BANDED False
#default STARTS has("starts")
#default STARTED has("start")
#default LAST not STARTS and not STARTED
#default BEHIND has("behind")
#default ENDS has("ends")
#default SINK has("sink")
#default SPLIT has("levels")
#default WHOLE not SPLIT

// The keys of a workgroup, from `begin` to `end`. `start` is the position of query 0. `parts` is the number of parts that contain
// visible keys, which are the first ones; at least 1.
struct Span { start: i32, begin: u32, end: u32, parts: u32 }

fn end_of(batch: u32) -> i32 {
  var end = i32($keys);
#if ENDS
  end = clamp(ends_at(batch), 0, end);
#end
#if BEHIND
  end = clamp(starts_at(batch) + i32($behind), 0, end);
#end
  return end;
}

fn start_of(batch: u32, end: i32) -> i32 {
#if STARTS
  return starts_at(batch);
#end
#if STARTED
  return i32($start);
#end
#if LAST
  return end - i32($steps);
#end
}

// The part of the keys that rows `first` to `last` see. Parts consist of whole `step`s.
fn span_of(batch: u32, first: u32, last: u32, split: u32, step: u32) -> Span {
  let end = end_of(batch);
  let start = start_of(batch, end);
  var span = Span(start, 0u, u32(end), 1u);
  if ($BANDED) {
    let together = first / $steps == last / $steps;  // of one head
    let begin = clamp(start + select(0, i32(first % $steps), together) - i32($left), 0, end);
    span.begin = u32(begin);
    span.end = u32(clamp(start + select(i32($steps) - 1, i32(last % $steps), together) + i32($right) + 1, begin, end));
  }
#if SPLIT
  let share = max((span.end - span.begin + $splits - 1u) / $splits + step - 1u, step) / step * step;
  span.parts = max((span.end - span.begin + share - 1u) / share, 1u);
  span.begin = min(span.begin + split * share, span.end);
  span.end = min(span.begin + share, span.end);
#end
  return span;
}

fn sees(start: i32, row: u32, key: u32) -> bool {
  if (!$BANDED) { return true; }
  let at = start + i32(row % $steps);
  return i32(key) >= at - i32($left) && i32(key) <= at + i32($right);
}

// The products may be transposed.
fn score_of(batch: u32, row: u32, key: u32, v: f32) -> f32 {
  if ($KEYS_FIRST) { return scored(batch, key, row, v); }
  return scored(batch, row, key, v);
}

// An additional score in each row, of a key without a value. It belongs to the first part of the keys.
fn sink_of(batch: u32, row: u32, split: u32) -> f32 {
#if SINK
  return select(float_bits(0xff800000u), sink_at(batch, row), split == 0u);
#else
  return float_bits(0xff800000u);
#end
}

// The factor for a sum relative to the score `highest`, given the row's `total` relative to `level`. Negative for a row of zeros.
fn factor_of(highest: f32, level: f32, total: f32) -> f32 {
#if SPLIT
  return exp(highest - level);
#end
#if WHOLE
  var factor = exp(highest - level) / total;
  if (total == 0f) { factor = select(float_bits(0x7fc00000u), -1f, $MASKED || $keys == 0u); }
  if ($NAN_IS_ZERO && isnan_f32(factor)) { factor = -1f; }
  return factor;
#end
}

// SPLIT: the results of a part are relative to its level. `level`, `total` and the number of parts are stored for the map that
// combines the parts.
fn store_level(batch: u32, row: u32, split: u32, level: f32, total: f32, parts: u32) {
#if SPLIT
  levels_put(batch, row, split, 0u, level);
  levels_put(batch, row, split, 1u, total);
  levels_put(batch, row, split, 2u, f32(parts));
#end
}
