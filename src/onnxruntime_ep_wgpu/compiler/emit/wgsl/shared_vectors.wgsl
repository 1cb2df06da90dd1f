// Vectors of four in workgroup memory, TILES of them, with components that different invocations store. They are stored as
// scalars unless the adapter has COMPONENT_STORES. In Metal's language and D3D12's, storing a component may read, change and
// store its vector. A store of another invocation in between is then lost. See "Writing to different components of a vector from
// different invocations", gpuweb, 2021. With scalars the compiler of an H200 must find the vectors again: models take 1.03 times
// as long, and squares 1.09 times.
//
// `vector`, `put_vector` and `put_part` are for indices that a browser can prove to be in TILES, which it does not check then.
// The proof covers `min`, `%`, `/`, `*` and `+` of constants, of numbers with such bounds, and of loops that count by 1 between
// constants. `tile` and `put_tile` are for all other indices. In Dawn on an H100, separate checks of the four loads of a vector
// slowed BERT-base from 19.4 to 33.9 ms.
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

