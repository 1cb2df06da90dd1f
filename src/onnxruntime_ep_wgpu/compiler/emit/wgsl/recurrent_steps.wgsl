  // The steps of this dispatch, for one direction and one sequence with `length` steps.
  let direction = w / $batch;
  let sequence = w % $batch;
  let length = min(u32(lengths_at(sequence)), $steps);
  let begin = $repetition * $chunk;
  let end = min(begin + $chunk, $steps);
