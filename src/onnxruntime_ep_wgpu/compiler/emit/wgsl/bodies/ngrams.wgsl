// How often a row contains the n-grams of a column of the result, numbered from first[column] to first[column + 1] - 1. Their
// tokens may be up to STEPS positions apart, with equal distances. Single tokens are counted once. MODE selects the result.
  var total = 0f;
  for (var g = u32(first_at(column)); g < u32(first_at(column + 1u)); g++) {
    let begin = u32(begin_at(g));
    let length = u32(length_at(g));
    var count = 0u;
    for (var apart = 1u; apart <= select($STEPS, 1u, length == 1u); apart++) {
      let reach = (length - 1u) * apart;
      for (var at = 0u; at + reach < $tokens; at++) {
        var found = true;
        for (var j = 0u; j < length && found; j++) { found = x_at(row, at + j * apart) == pool_at(begin + j); }
        count += select(0u, 1u, found);
      }
    }
#if MODE == "TF"
    total += f32(count);
#end
#if MODE == "IDF"
    if (count > 0u) { total = weight_at(g); }
#end
#if MODE == "TFIDF"
    total += weight_at(g) * f32(count);
#end
  }
  return total;
