// Unrolled, because not every shader compiler unrolls a loop over positions in the block.
#for x SPAN_X
#if USED_X#x
  let x#x = left + #xu;
#end
#end
#for y SPAN_Y
#if USED_Y#y
  let y#y = top + #yu;
  let inside#y = y#y < height;
#for x SPAN_X
#if USED_X#x
  let v#y_#x = pixel(image, channel, y#y, x#x, inside#y && x#x < width);
#end
#end
#for r ROWS
#for k KERNEL_Y
#if #y == #r * STRIDE_Y + #k * DILATION_Y
#for c COLUMNS
  s#r_#c += #[v#y_#(#c * STRIDE_X + #t * DILATION_X) * w#(#k * KERNEL_X + #t) for t KERNEL_X by +];
#end
#end
#end
#end
#end
#end
