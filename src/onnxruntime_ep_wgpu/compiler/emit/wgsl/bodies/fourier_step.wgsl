// An element of one step of a Fourier transform: RADIX transforms of LENGTH elements become one. `roots` are the powers of the
// first root of unity of all elements. `rest` transforms lie next to each other. FIRST: elements after `inputs` are zero. HALF:
// the second half of the elements are the conjugates of the first, and elements that must be real are real.
  let whole = $LENGTH * $RADIX;
  let place = bin % $LENGTH;
  var power = 0u;
  var sum = vec2f();
  for (var j = 0u; j < $RADIX; j++) {
    let part = other + j * $rest;
#if FIRST
#if HALF
    let at = min(part, $ALL - part);
    let imaginary = select(select(1f, -1f, at != part), 0f, part == 0u || 2u * part == $ALL);
#else
    let at = part;
    let imaginary = 1f;
#end
    let inside = at < $inputs;
    let near = select(0u, at, inside);
#if COMPLEX
    let value = select(vec2f(), vec2f(x_at(row, near, place, 0u), imaginary * x_at(row, near, place, 1u)), inside);
#else
    let value = vec2f(select(0f, x_at(row, near, place, 0u), inside), 0f);
#end
#else
    let value = vec2f(x_at(row, part, place, 0u), x_at(row, part, place, 1u));
#end
    let turn = vec2f(roots_at(power * $rest, 0u), roots_at(power * $rest, 1u));
    sum += vec2f(value.x * turn.x - value.y * turn.y, value.x * turn.y + value.y * turn.x);
    power += bin;
    power = select(power, power - whole, power >= whole);
  }
  return $SCALE * select(sum.x, sum.y, c == 1u);
