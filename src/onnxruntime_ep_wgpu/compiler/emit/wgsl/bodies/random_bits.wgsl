// The random word of element i. Block i / 4 of this run has words for four neighbours. NORMAL converts two words to a number.
  let counter = vec4<u32>(i >> 2u, 0u, state_at(2u), state_at(3u));
  let words = philox(counter, vec2<u32>(state_at(0u), state_at(1u)));
#if NORMAL
  return normal_number(select(words.xy, words.zw, (i & 2u) == 2u), i & 1u);
#else
  return words[i & 3u];
#end
