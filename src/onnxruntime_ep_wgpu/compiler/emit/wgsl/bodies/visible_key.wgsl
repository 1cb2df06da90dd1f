// Whether a query sees a key: with CAUSAL those up to the query, else up to the last key; with WINDOW only the last so many of
// these. USED: the device holds the number of keys before the first query.
#default USED has("used")
#if USED
  let first = used_at(batch);
#else
  let first = i32($past);
#end
#if CAUSAL
  let last = first + i32(i);
#else
  let last = first + i32($steps) - 1;
#end
#if WINDOW
  return i32(j) <= last && i32(j) > last - #(WINDOW);
#else
  return i32(j) <= last;
#end
