// Vectors of four in workgroup memory, TILES of them, whose components different invocations store. As scalars but where the adapter
// has COMPONENT_STORES: in Metal's language and D3D12's to store a component may be to read, change and store its vector, and what
// another invocation stored in between is lost ("Writing to different components of a vector from different invocations", gpuweb,
// 2021). An H200, whose compiler has to find the vectors again, then takes 1.03 times as long for models and 1.09 times for squares.
//
// `vector`, `put_vector` and `put_part` are for places that a browser can prove to be in TILES, which it does not check then: `min`,
// `%`, `/`, `*` and `+` of constants, of numbers bounded so, and of what loops count by 1 from one constant to another. `tile` and
// `put_tile` are for all others. Checked one by one, the four loads of a vector took BERT-base from 19.4 to 33.9 ms on an H100, in Dawn.
#if COMPONENT_STORES
#inline vector(at) tiles[at]
#inline put_vector(at, v) tiles[at] = v
#inline put_part(at, part, x) tiles[at][part] = x
var<workgroup> tiles: array<vec4<tile_t>, TILES>;

fn tile(at: u32) -> vec4<tile_t> { return tiles[at]; }
fn put_tile(at: u32, v: vec4<tile_t>) { tiles[at] = v; }
#else
#inline vector(at) vec4<tile_t>(#[tiles[4u * (at) + #eu] for e 4])
#inline put_vector(at, v) #[tiles[4u * at + #eu] = v[#e] for e 4 by ;]
#inline put_part(at, part, x) tiles[4u * (at) + part] = x
var<workgroup> tiles: array<tile_t, 4u * TILES>;

fn tile(at: u32) -> vec4<tile_t> {
  let k = 4u * min(at, TILES - 1u);
  return vec4<tile_t>(tiles[k], tiles[k + 1u], tiles[k + 2u], tiles[k + 3u]);
}
fn put_tile(at: u32, v: vec4<tile_t>) {
  let k = 4u * min(at, TILES - 1u);
#for e 4
  tiles[k + #eu] = v[#e];
#end
}
#end

