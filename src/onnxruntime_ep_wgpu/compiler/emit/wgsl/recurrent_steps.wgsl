  // Of one direction and one sequence, which has `length` steps: those that this dispatch takes.
  let direction = w / $batch;
  let sequence = w % $batch;
  let length = min(u32(lengths_at(sequence)), $steps);
  let begin = $repetition * $chunk;
  let end = min(begin + $chunk, $steps);
