// What columns of windows add to an element of the image that they were cut from.
  var total = 0f;
#for k RANK
  for (var t#k = 0u; t#k < $kernel#k; t#k++) {
    let p#k = at#k + $begin#k - t#k * $dilation#k;
    let o#k = p#k / $stride#k;
    if (p#k % $stride#k != 0u || o#k >= $out#k) { continue; }
#end
  total += x_at(image, channel, $TAPS, $WINDOWS);
#for k RANK
  }
#end
  return total;
